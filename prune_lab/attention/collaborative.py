"""Collaborative attention (Cordonnier 2020, arXiv 2006.16362): heads share the channels in which queries meet keys.

Shapes: B batch, T query positions, S key positions, D model width, H heads that remain, K head width, M shared width,
V value width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prune_lab.attention.contract import AttentionSizes, ScoreMatrices
from prune_lab.attention.core import attend, attend_by_scores, note_memory
from prune_lab.attention.cost import NOTHING, AttentionCost, PartCost, linear_cost
from prune_lab.attention.factorisation import channels_of_heads, factorise_scores
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.multi_head import MultiHeadAttention, check_source, check_value_dim
from prune_lab.attention.options import choice_option, switch_option, value_dim_of, whole_option
from prune_lab.attention.products import linear
from prune_lab.attention.projected import ProjectedAttention
from prune_lab.attention.projection import cut, rows_of

FORMS = ("concatenation", "shared", "compressed")


class CollaborativeAttention(ProjectedAttention):
    """score_h = [(X W_Q) diag(m_h) (Y W_K)^T + 1 (Y c_h)^T] / sqrt(K), W_Q and W_K of width M for all heads (eq. 8).

    Values and output are those of multi-head attention. The scale is that of the heads of width K, whatever M is (the
    released code divides by sqrt(M/H)). c_h is the content bias, what is left of the biases of queries: those of keys
    add the same to all scores of a query.

    Three forms say where the mixing m [H, M], which is trained, starts: `concatenation`, with ones in the K channels of
    each head, is multi-head attention at M = H*K; `shared` has ones everywhere, so that heads begin alike; in
    `compressed` they are drawn from a normal distribution of variance K/M. Scores start as large as those of multi-head
    attention but for `shared`, whose M channels have the scale of K: sqrt(M/K) times as large, sqrt(H) times at
    M = H*K. Glorot's bound adds to that where M is below H*K: 4/3 at half of the channels with H*K = D.

    Up to M queries heads share keys, with tensors [B, H, T, S]: one is held for the backward pass, three with dropout,
    about two are there without one; a warning tells where all layers hold more than a gibibyte. Above, keys of all
    heads [B, H, S, M] go to fused attention.

    A head that is removed takes m_h, c_h, its values and its part of W_O with it; W_Q and W_K, which are everybody's,
    go with the last one.

    Args:
        sizes: of the site.
        form: see above.
        shared_width: M; H*K of the unpruned site when None, half of that for `compressed`.
        content_bias: whether there are c_h; where the projections have biases when None.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: an option that is not allowed, a concatenation of another width, or rotary positions, whose turns
            mixed channels would not undo.
    """

    name: ClassVar[str] = "collaborative"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"form": "shared"},
        {"form": "compressed", "shared_width": 6, "value_head_dim": 5},
        {"form": "compressed", "shared_width": 3},
        {"form": "compressed", "shared_width": 1, "content_bias": False},
    )
    takes_rotary: ClassVar[bool] = False
    reads_all_once: ClassVar[bool] = False

    def __init__(
        self,
        sizes: AttentionSizes,
        *,
        form: str = "concatenation",
        shared_width: int | None = None,
        content_bias: bool | None = None,
        value_head_dim: int | None = None,
    ) -> None:
        name, full = self.name, sizes.total_heads * sizes.head_dim
        choice_option(name, "form", form, FORMS)
        if sizes.rotary:
            raise ValueError("attention: collaborative with rotary positions; allowed are sinusoidal and learned ones")
        if shared_width is None:
            shared_width = (full + 1) // 2 if form == "compressed" else full
        width = whole_option(name, "shared_width", shared_width, "null and whole numbers from 1", 1)
        if form == "concatenation" and width != full:
            raise ValueError(
                f"attention.options of {name}: shared_width: {width}; allowed with form: concatenation is {full}, "
                "heads times head width"
            )
        content_bias = sizes.bias if content_bias is None else content_bias
        switch_option(name, "content_bias", content_bias)
        value_dim = value_dim_of(sizes, name, value_head_dim)
        num_heads = len(sizes.numbers)
        rows = width if num_heads else 0
        super().__init__(
            sizes,
            query_rows=rows,
            key_rows=rows,
            value_rows=num_heads * value_dim,
            value_dim=value_dim,
            score_bias=False,
        )
        self.mixing = nn.Parameter(torch.zeros(num_heads, rows))
        self.content = nn.Parameter(torch.zeros(num_heads, sizes.d_model)) if content_bias else None
        with torch.no_grad():
            if form == "concatenation" and num_heads:
                self.mixing.copy_(channels_of_heads(sizes.numbers, sizes.head_dim, width))
            elif form == "shared":
                self.mixing.fill_(1.0)
            elif num_heads:
                nn.init.normal_(self.mixing, std=(sizes.head_dim / width) ** 0.5)

    @property
    def shared_width(self) -> int:
        """M, or 0 where no head is left."""
        return self.mixing.shape[1]

    def score_dim(self) -> int:
        """See `ProjectedAttention.score_dim`."""
        return self.shared_width

    def split_queries(self, projected: Tensor) -> Tensor:
        """[B, T, M] -> [B, H, T, M], mixed."""
        # In the type of the product: autocast has keys and values in it too.
        return projected[:, None] * self.mixing[:, None].to(projected.dtype)

    def split_keys(self, projected: Tensor) -> Tensor:
        """[B, S, M] -> [B, 1, S, M], the same for all heads."""
        return projected[:, None]

    def more_entries(self, key_value: Tensor) -> tuple[Tensor, ...]:
        """The content bias of each key and head [B, H, S, 1]."""
        return () if self.content is None else (linear(key_value, self.content).transpose(1, 2)[..., None],)

    def attend_heads(
        self, query: Tensor, queries: Tensor, entries: Sequence[Tensor], mask: AttentionMask, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See `ProjectedAttention.attend_heads`; here queries are [B, H, T, M] and keys [B, 1, S, M]."""
        keys, values, *content = entries
        num_queries, num_heads = queries.shape[2], queries.shape[1]
        if need_weights or self._scores_are_smaller(num_queries):
            num_tensors = (3 if self.dropout_now else 1) if torch.is_grad_enabled() else 2
            note_memory(self.name, queries, keys, num_tensors, self.sizes.num_layers)
            scores = (queries.flatten(1, 2) @ keys[:, 0].transpose(1, 2)).unflatten(1, (num_heads, num_queries))
            for each in content:
                scores = scores + each.transpose(2, 3)
            heads, weights = attend_by_scores(scores * self.scale, values, mask, dropout=self.dropout_now)
            return heads, weights if need_weights else None
        keys = keys.expand(-1, num_heads, -1, -1)
        for each in content:
            # One channel more, in which every query is 1.
            queries = torch.cat((queries, torch.ones_like(queries[..., :1])), dim=-1)
            keys = torch.cat((keys, each), dim=-1)
        return attend(queries, keys, values, mask, scale=self.scale, dropout=self.dropout_now)

    def _scores_are_smaller(self, num_queries: int) -> bool:
        """Whether scores hold fewer numbers than keys for each head would; heads then share the product."""
        return num_queries <= self.shared_width

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`. One head takes M + D + 2*D*V weights and V biases with it."""
        keep_heads(self, kept)

    def cost(self, num_queries: int, num_keys: int, num_new_keys: int | None = None) -> AttentionCost:
        """See `Attention.cost`; the mixing is no product, its weights count for those of attention."""
        whole = super().cost(num_queries, num_keys, num_new_keys)
        if not self.numbers:
            return whole
        projections, products = NOTHING, PartCost(weights=self.mixing.numel())
        num_scores = num_queries * num_keys * self.num_heads
        if self._scores_are_smaller(num_queries):
            products += PartCost(read=num_scores, written=num_scores)
        elif self.content is not None:
            # The content bias as one channel more.
            products += PartCost(flops=2 * num_scores, read=num_queries * self.num_heads)
        if self.content is not None:
            num_new_keys = num_keys if num_new_keys is None else num_new_keys
            projections = linear_cost(num_new_keys, self.content).as_entries()
        return whole.plus(projections=projections, products=products)

    def num_entry_elements(self) -> int:
        """See `ProjectedAttention.num_entry_elements`: channels of keys are everybody's."""
        return super().num_entry_elements() + (0 if self.content is None else self.num_heads)

    def score_matrices(self) -> ScoreMatrices:
        """See `Attention.score_matrices`: A_h is W_Q with its channels multiplied by m_h, B is everybody's W_K."""
        found = super().score_matrices()
        left_out = ("biases",) if self.content is not None and self.numbers else ()
        return found._replace(key=found.key.expand(self.num_heads, -1, -1), left_out=left_out)

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`."""
        return {"form": "concatenation"}

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: a decomposition of the heads' W_Q,h^T W_K,h (section 4.2), exact from H*K on.

        Returns:
            `reconstruction_error`, the relative Frobenius error of these products, where the shared width is below H*K,
            and how many `sweeps` of alternating least squares were made.

        Raises:
            ValueError: a block with other sizes or value width, or with biases of queries where this has no content
                bias.
        """
        check_source(self, source)
        check_value_dim(self, source)
        self.value.copy_from(source.value.weight, source.value.bias)
        self.output.copy_from(source.output.weight, source.output.bias)
        if not self.numbers:
            return {}
        queries, keys = (
            each.weight.unflatten(0, (self.num_heads, self.head_dim)) for each in (source.query, source.key)
        )
        bias = source.query.bias
        if bias is not None and self.content is None and bool((bias != 0).any()):
            raise ValueError(
                "attention.options of collaborative: content_bias: false; allowed for a block whose queries have no "
                "biases"
            )
        if self.content is not None:
            self.content.zero_()
            if bias is not None:
                by_head = bias.unflatten(0, (self.num_heads, self.head_dim))
                self.content.copy_(torch.einsum("hk,hkd->hd", by_head, keys))
        found = factorise_scores(queries, keys, self.shared_width)
        self.mixing.copy_(found.mixing)
        self.query.weight.copy_(found.query)
        self.key.weight.copy_(found.key)
        return {} if found.is_exact else {"reconstruction_error": found.error, "sweeps": found.num_sweeps}


def keep_heads(module: CollaborativeAttention, kept: Sequence[int]) -> None:
    """Cut what belongs to single heads to those at the positions `kept`; all of it where none is kept."""
    places = torch.tensor(list(kept), dtype=torch.long)
    rows = rows_of(kept, module.value_dim)
    module.value.keep_outputs(rows)
    module.output.keep_inputs(rows)
    module.mixing = cut(module.mixing, 0, places)
    if module.content is not None:
        module.content = cut(module.content, 0, places)
    if not len(kept):
        nothing = places[:0]
        module.query.keep_outputs(nothing)
        module.key.keep_outputs(nothing)
        module.mixing = cut(module.mixing, 1, nothing)
    module.keep_numbers(kept)
