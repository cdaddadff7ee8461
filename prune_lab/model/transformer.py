"""The encoder-decoder Transformer whose heads can be gated, scored, masked and removed.

Shapes: B batch, S source positions, T target positions, D model width, V target vocabulary, H heads at a site.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn

from prune_lab.attention.masks import AttentionMask, padding_mask
from prune_lab.attention.products import linear
from prune_lab.attention.site import AttentionSite
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.decoding.result import Hypotheses
from prune_lab.heads import KINDS
from prune_lab.model.config import ModelConfig
from prune_lab.model.decoder import Decoder
from prune_lab.model.embeddings import Positions, TokenTable
from prune_lab.model.encoder import Encoder
from prune_lab.model.freezing import freeze_unread
from prune_lab.model.gating import gates_config, place_gates
from prune_lab.model.observation import Observation
from prune_lab.model.search import search_hypotheses


class Transformer(nn.Module, PyTorchModelHubMixin):
    """An encoder-decoder Transformer (Vaswani 2017, arXiv 1706.03762).

    Args:
        config: what it is made of. The model keeps a copy as `config`, which goes along with its gates and heads.

    Attributes:
        tokenizer: the tokenizer that belongs to the model and is stored in its exports, or None.
        languages: codes of the source and the target language, stored in exports, or None.

    Raises:
        ValueError: `config` is no ModelConfig.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise ValueError(
                f"config: a {type(config).__name__}; allowed is a ModelConfig, as ModelConfig.from_dict gives"
            )
        self.config = config = copy.deepcopy(config)
        self.tokenizer: Any | None = None
        self.languages: tuple[str, str] | None = None
        build_table = partial(TokenTable, d_model=config.d_model, pad_id=config.pad_id)
        build_positions = partial(
            Positions,
            kind=config.positions,
            d_model=config.d_model,
            max_positions=config.max_positions,
            dropout=config.dropout,
        )
        target_size = config.target_vocab_size
        self.source_table = build_table(vocab_size=config.source_vocab_size)
        self.target_table = None if config.share_embeddings else build_table(vocab_size=target_size)
        self.output_table = None if config.tie_output else build_table(vocab_size=target_size)
        self.source_positions = build_positions()
        self.target_positions = build_positions()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        if config.gates is not None:
            place_gates(self, config.gates)
        self.freeze_unused()

    # The way of the data

    def embed_source(self, source_ids: Tensor) -> Tensor:
        """[B, S] -> [B, S, D]."""
        return self.source_positions(self.source_table(source_ids))

    def embed_target(self, target_ids: Tensor, start: int = 0, num: int | None = None) -> Tensor:
        """[B, T] -> [B, T, D]; see `Positions.forward` for `start` and `num`."""
        table = self.source_table if self.target_table is None else self.target_table
        return self.target_positions(table(target_ids), start, num)

    @property
    def output_weight(self) -> Tensor:
        """The vocabulary projection [V, D]."""
        for table in (self.output_table, self.target_table):
            if table is not None:
                return table.weight
        return self.source_table.weight

    def project(self, hidden: Tensor) -> Tensor:
        """[..., D] -> logits [..., V]."""
        return linear(hidden, self.output_weight)

    def encode(
        self, source_ids: Tensor, head_gates: Mapping[str, Tensor] | None = None, seen: Observation | None = None
    ) -> Tensor:
        """Source ids [B, S] -> memory [B, S, D]."""
        # Which positions are real is asked for while a model trains alone.
        real = source_ids != self.config.pad_id if self.training else None
        mask = padding_mask(source_ids, self.config.pad_id, queries=real)
        return self.encoder(self.embed_source(source_ids), mask, head_gates or {}, seen or Observation())

    def hidden(
        self,
        source_ids: Tensor,
        target_ids: Tensor,
        head_gates: Mapping[str, Tensor] | None = None,
        seen: Observation | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """What the vocabulary projection reads, under teacher forcing.

        Args:
            source_ids: [B, S], each with its end mark, padded at the end.
            target_ids: [B, T], each with its begin mark, padded at the end.
            head_gates: more factors on heads, site -> [H], [B, H] or [B, H, T] (positions of the query side).
            seen: collects attention weights and auxiliary losses.
            memory: what `encode` gave for the same source and gates [B, S, D]; None to encode now.

        Returns:
            [B, T, D]; values at padded positions mean nothing.
        """
        seen = seen or Observation()
        memory = self.encode(source_ids, head_gates, seen) if memory is None else memory
        # Real are the positions that predict a token: where the end mark is read, nothing follows.
        real = (target_ids != self.config.pad_id) & (target_ids != self.config.eos_id) if self.training else None
        cross_mask = padding_mask(source_ids, self.config.pad_id, queries=real)
        # Padding stands at the end of the target, where a causal mask hides it from every real token.
        causal, gates = AttentionMask(causal=True, queries=real), head_gates or {}
        return self.decoder(self.embed_target(target_ids), memory, causal, cross_mask, gates, seen, {})

    def forward(self, source_ids: Tensor, target_ids: Tensor, head_gates: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits [B, T, V] of the token after each target position; see `hidden`."""
        return self.project(self.hidden(source_ids, target_ids, head_gates))

    def search(
        self, source_ids: Tensor, options: DecodingOptions, use_cache: bool = True, max_length: int | None = None
    ) -> Hypotheses:
        """The best hypotheses with their scores, for sources [B, S]; see `DecodingOptions`.

        Args:
            source_ids: [B, S].
            options: how to search.
            use_cache: False computes every prefix anew (slow, an oracle for tests).
            max_length: tokens before the end mark, the same for every sentence; a + b * S of the options when
                None. With learned positions no hypothesis is longer than these allow.

        Raises:
            ValueError: a `max_length` below 1, sources that are no rows of the model's ids with padding at their ends,
                one longer than learned positions allow, or logits that are NaN or infinite.
        """
        return search_hypotheses(self, source_ids, options, use_cache=use_cache, max_length=max_length)

    def generate(
        self,
        source_ids: Tensor,
        beam_size: int = DEFAULT_DECODING.beam_size,
        length_penalty: float = DEFAULT_DECODING.length_penalty,
        max_length: int | None = None,
        use_cache: bool = True,
    ) -> list[list[int]]:
        """Translate.

        Args:
            source_ids: [B, S], each with its end mark, padded at the end.
            beam_size: hypotheses kept; 1 is greedy search.
            length_penalty: alpha of ((5 + n) / 6)^alpha.
            max_length: tokens before the end mark; by the rule of `DecodingOptions` when None.
            use_cache: False computes every prefix anew.

        Returns:
            target ids of each sentence, begin and end marks removed.

        Raises:
            ValueError: see `search`; also a `beam_size` or a `length_penalty` that is not allowed.
        """
        options = DecodingOptions(beam_size=beam_size, length_penalty=length_penalty)
        return self.search(source_ids, options, use_cache=use_cache, max_length=max_length).ids

    # Heads

    def attention_sites(self) -> dict[str, AttentionSite]:
        """The sites by name, in the order in which data passes them."""
        return {module.name: module for module in self.modules() if isinstance(module, AttentionSite)}

    def sites(self) -> list[str]:
        """The names of the sites: ``["encoder.0.self", ...]``."""
        return self.config.sites()

    def heads(self) -> dict[str, list[int]]:
        """The live heads of each site by original number: neither removed nor masked."""
        return {name: site.heads() for name, site in self.attention_sites().items()}

    def original_heads(self) -> dict[str, int]:
        """How many heads each site had in the unpruned model."""
        return self.config.original_heads()

    def open_heads(self) -> dict[str, list[int]]:
        """The live heads whose evaluation gate is not zero: what an evaluation of this model really uses."""
        table = {}
        for name, site in self.attention_sites().items():
            live = set(site.heads())
            if site.gate is not None:
                live -= {n for n, value in zip(site.numbers, site.gate.value().tolist(), strict=True) if value == 0}  # type: ignore[operator]
            table[name] = sorted(live)
        return table

    def freeze_unused(self) -> None:
        """Freeze what no forward pass reads since heads are gone; see `freeze_unread`."""
        freeze_unread(self)

    # Gates

    def gates(self) -> dict[str, nn.Module]:
        """The gate modules of the gated sites, by site."""
        return {name: site.gate for name, site in self.attention_sites().items() if site.gate is not None}

    def add_gates(
        self, name: str = "hard_concrete", kinds: Iterable[str] = KINDS, options: Mapping[str, Any] | None = None
    ) -> None:
        """Put a gate on every head of the sites of these kinds, in place; gates that are there already are replaced.

        Raises:
            ValueError: an unknown name, kind or option, or a value that is not allowed; the model stays as it was.
        """
        place_gates(self, gates_config(name, kinds, options))
        self.freeze_unused()

    def remove_gates(self) -> None:
        """Take all gates off, in place; heads count as fully open afterwards."""
        for site in self.attention_sites().values():
            site.gate = None
        self.config.gates = None

    # Copies and files

    def copy(self) -> Transformer:
        """An independent copy with the same weights, masks, gates, mode, device and type."""
        shared = {} if self.tokenizer is None else {id(self.tokenizer): self.tokenizer}
        return copy.deepcopy(self, shared)

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        config: Any = None,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        model_card_kwargs: dict[str, Any] | None = None,
        **hub: Any,
    ) -> str | None:
        """Write an export: `config.json`, `model.safetensors`, `README.md`, and `tokenizer.json` if the model has one.

        Args:
            save_directory: made if needed.
            config: None; there for `PyTorchModelHubMixin`, the model's own is written.
            push_to_hub: upload it as well; returns the commit's address.
            repo_id: where to; the directory's name when None.
            model_card_kwargs: not used; there for `PyTorchModelHubMixin`.
            hub: private, token, commit_message and the like, for the upload.

        Raises:
            ValueError: `save_directory` is a file, or a `config` is given.
            TypeError: an argument that the upload does not know.
        """
        if config is not None:
            raise ValueError(f"config: {config!r}; allowed is None, the model's own is written")
        unknown = sorted(set(hub) - set(inspect.signature(self.push_to_hub).parameters))
        if unknown:
            raise TypeError(f"save_pretrained() got an unexpected keyword argument {unknown[0]!r}")
        from prune_lab.model.storage import save_export

        save_export(self, save_directory)
        return self.push_to_hub(repo_id or Path(save_directory).name, **hub) if push_to_hub else None

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **hub: Any) -> Transformer:
        """Read an export from a directory, or download one from the hub by its id.

        Raises:
            FileNotFoundError: no such directory, or a file of the export is missing.
            ValueError: a file that cannot be read, or that does not belong to the others.
        """
        from prune_lab.model.storage import load_export

        return load_export(pretrained_model_name_or_path, **hub)
