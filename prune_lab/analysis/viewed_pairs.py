"""Sentence pairs with what every head reads in them, as the attention viewer shows them.

Shapes: H live heads of a site, T tokens that read, S tokens that are read. At encoder sites both are the source with
its end mark, at decoder self sites the decoder inputs with their begin mark; at cross sites the inputs read the source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.heads import checked_heads, kind_of_site
from prune_lab.model.fitting import check_model, check_tokenizer
from prune_lab.model.observation import Observation
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import is_number, is_whole

# What rounding in 16 bits leaves of a sum of weights.
SUM_TOLERANCE = 0.01
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class ViewedPair:
    """One sentence pair and the attention weights of a model on it.

    Attributes:
        source: the source tokens as the model reads them, end mark last.
        target: the decoder inputs, begin mark first: one token for each position that predicts the next.
        weights: site -> [H, T, S] for its live heads, by ascending number; each row sums to 1, or is zero where
            nothing may be read. Kept as float32 arrays.

    Raises:
        ValueError: no tokens, an unknown kind of site, weights of another shape, numbers outside of 0 to 1, or rows
            with another sum.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Mapping[str, Tensor | np.ndarray]

    def __post_init__(self) -> None:
        for side, mark in (("source", "end mark"), ("target", "begin mark")):
            tokens = getattr(self, side)
            if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens) or not len(tokens):
                raise ValueError(f"{side}: {tokens!r}; allowed are tokens, at least the {mark}")
            object.__setattr__(self, side, tuple(tokens))
        arrays = {site: _as_array(weights) for site, weights in self.weights.items()}
        for site, array in arrays.items():
            _check_weights(site, array, self.lengths(site))
        object.__setattr__(self, "weights", arrays)

    def lengths(self, site: str) -> tuple[int, int]:
        """T and S at a site; ValueError where that is no name of one."""
        queries = self.source if kind_of_site(site) == "encoder.self" else self.target
        keys = self.target if kind_of_site(site) == "decoder.self" else self.source
        return len(queries), len(keys)


@dataclass(frozen=True)
class ViewedHead:
    """A live head, and what is known of it.

    Attributes:
        number: its number in the unpruned model.
        gate: the factor on its output in evaluation; None where it has no gate.
        roles: what it was found to do (`positional -1`, `nsubj`), in words; may be empty.

    Raises:
        ValueError: a number below 0, a gate that is no finite number, or roles that are no strings.
    """

    number: int
    gate: float | None = None
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_whole(self.number) or self.number < 0:
            raise ValueError(f"head {self.number!r}: allowed are whole numbers from 0")
        if self.gate is not None and not (is_number(self.gate) and math.isfinite(self.gate)):
            raise ValueError(f"gate of head {self.number}: {self.gate!r}; allowed are finite numbers, or None")
        if isinstance(self.roles, str) or not all(isinstance(role, str) for role in self.roles):
            raise ValueError(f"roles of head {self.number}: {self.roles!r}; allowed are strings")
        object.__setattr__(self, "roles", tuple(self.roles))


@torch.inference_mode()
def view_pairs(
    model: Transformer, pairs: Sequence[tuple[str, str | None]], *, decoding: DecodingOptions = DEFAULT_DECODING
) -> list[ViewedPair]:
    """Runs a model on sentence pairs, one by one in evaluation mode, and keeps all attention weights.

    Args:
        model: with its tokenizer; left as it was.
        pairs: (source, target) lines; where the target is None, the decoder reads the model's own translation, token
            for token as it was found.
        decoding: how translations are searched.

    Raises:
        ValueError: no pairs, a blank source, a model without a tokenizer that fits it, or a sentence that is longer
            than learned positions allow.
    """
    check_model(model)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("the model has no tokenizer; text needs the one it was trained with (tokenizer.json)")
    check_tokenizer(model.config, tokenizer, "tokenizer")
    _check_pairs(pairs)
    device = model.source_table.weight.device
    sites = model.attention_sites()
    live = {name: [place for place, here in enumerate(site.head_mask.tolist()) if here] for name, site in sites.items()}
    viewed = []
    for source, target in pairs:
        source_ids = tokenizer.encode_source(source)
        source_row = torch.tensor([source_ids], device=device)
        if target is None:
            target_ids = [model.config.bos_id, *model.search(source_row, decoding).ids[0]]
        else:
            target_ids = tokenizer.encode_target(target)[:-1]
        seen = Observation(need_weights=True)
        with evaluation_mode(model):
            model.hidden(source_row, torch.tensor([target_ids], device=device), seen=seen)
        weights = {name: seen.weights[name][0, live[name]] for name in sites}
        tokens = tuple(tokenizer.source_pieces(source_ids)), tuple(tokenizer.target_pieces(target_ids))
        viewed.append(ViewedPair(*tokens, weights))
    return viewed


def viewed_heads(
    model: Transformer, roles: Mapping[str, Mapping[int, Sequence[str]]] | None = None
) -> dict[str, list[ViewedHead]]:
    """The live heads of a model by site, with their gates in evaluation.

    Args:
        model: whose heads are listed.
        roles: site -> original number -> roles; those of heads that are gone are left out.

    Raises:
        ValueError: roles of a site or of a head that the unpruned model did not have.
    """
    roles = roles or {}
    checked_heads(roles, model)
    found = {}
    for name, site in model.attention_sites().items():
        gates: dict[int, float] = {}
        if site.gate is not None and site.numbers:
            gates = dict(zip(site.numbers, site.gate.value().tolist(), strict=True))  # type: ignore[operator]
        known = roles.get(name, {})
        found[name] = [ViewedHead(number, gates.get(number), tuple(known.get(number, ()))) for number in site.heads()]
    return found


def _as_array(weights: Any) -> np.ndarray:
    if isinstance(weights, Tensor):
        weights = weights.detach().float().cpu().numpy()
    return np.asarray(weights, dtype=np.float32)


def _check_weights(site: str, weights: np.ndarray, lengths: tuple[int, int]) -> None:
    """ValueError unless weights [H, T, S] are those of heads at a site whose sides have these lengths."""
    if weights.ndim != 3 or weights.shape[1:] != lengths:
        allowed = f"[heads, {lengths[0]}, {lengths[1]}], for tokens that read and tokens that are read"
        raise ValueError(f"weights of {site}: shape {list(weights.shape)}; allowed is {allowed}")
    # NaN is within no range.
    wrong = ~((weights >= 0) & (weights <= 1 + _ROUNDING))
    if wrong.any():
        head, query, key = map(int, np.argwhere(wrong)[0])
        value = weights[head, query, key]
        raise ValueError(f"weights of {site}: {value:g} at [{head}, {query}, {key}]; allowed are numbers from 0 to 1")
    sums = weights.sum(2)
    wrong = (np.abs(sums - 1) > SUM_TOLERANCE) & weights.any(2)
    if wrong.any():
        head, query = map(int, np.argwhere(wrong)[0])
        allowed = f"allowed are 1, within {SUM_TOLERANCE:g}, and 0"
        raise ValueError(f"weights of {site}: row [{head}, {query}] sums to {sums[head, query]:g}; {allowed}")


def _check_pairs(pairs: Any) -> None:
    if isinstance(pairs, str | Mapping) or not isinstance(pairs, Sequence) or not pairs:
        raise ValueError(f"pairs: {pairs!r}; allowed is a list of (source, target) lines, one at least")
    for number, pair in enumerate(pairs, start=1):
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str) or not isinstance(pair[1], str | None):
            raise ValueError(f"pair {number}: {pair!r}; allowed are two lines, the second may be None")
        if not pair[0].strip():
            raise ValueError(f"pair {number}: the source {pair[0]!r} is blank; allowed are lines with a token")
