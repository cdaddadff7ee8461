"""The configuration of a model: plain JSON in and out, and everything about it that can be wrong is said here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.registry import attention_of_kind, check_attention, is_by_kind
from prune_lab.gates.registry import build_gate
from prune_lab.heads import KINDS, HeadSite

FORMAT_VERSION = 1

CHOICES = {
    "activation": ("relu", "gelu", "swiglu"),
    "norm": ("pre", "post"),
    "positions": ("sinusoidal", "learned", "rotary"),
}
VOCABULARIES = ("source_vocab_size", "target_vocab_size")
SIZES = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_heads",
    "decoder_heads",
    "d_feed_forward",
    "max_positions",
)
# Beyond these no machine could hold the model, and making tables of its sites and heads would take for ever.
_MOST = {
    "source_vocab_size": 100_000_000,
    "target_vocab_size": 100_000_000,
    "d_model": 1_000_000,
    "encoder_layers": 1000,
    "decoder_layers": 1000,
    "encoder_heads": 1000,
    "decoder_heads": 1000,
    "d_feed_forward": 10_000_000,
    "max_positions": 100_000_000,
}
RATES = ("dropout", "attention_dropout")
SWITCHES = ("share_embeddings", "tie_output", "projection_bias", "norm_bias")


@dataclass(kw_only=True)
class ModelConfig:
    """What a model is made of.

    Attributes:
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
        d_model: model width D.
        encoder_layers: layers of the encoder.
        decoder_layers: layers of the decoder.
        encoder_heads: heads at each encoder site of the unpruned model.
        decoder_heads: heads at each decoder site of the unpruned model.
        d_feed_forward: inner width of the feed-forward blocks.
        dropout: probability for embeddings, sub-layer outputs and the inside of the feed-forward.
        attention_dropout: probability for attention weights.
        activation: `relu`, `gelu` or `swiglu` (Shazeer 2020, arXiv 2002.05202).
        norm: `pre` (Xiong 2020, arXiv 2002.04745) or `post` (Vaswani 2017).
        positions: `sinusoidal`, `learned` or `rotary`.
        max_positions: longest sequence of learned positions.
        share_embeddings: one table for source and target (a joint vocabulary).
        tie_output: the vocabulary projection is the target table.
        projection_bias: biases in attention projections and feed-forward.
        norm_bias: biases in layer norms.
        attention: variant, as a name, `{"name", "options"}`, or a mapping from kind of site to either; kept as the
            second, or as a mapping from kind of site to it.
        encoder_head_dim: head width K in the encoder; D / heads when None.
        decoder_head_dim: head width K in the decoder; D / heads when None.
        pad_id: padding mark.
        bos_id: begin mark.
        eos_id: end mark.
        unk_id: stands for pieces that are not in the vocabulary.
        heads: the head table, site -> original numbers of the heads that are still there; all heads when None.
        gates: `{"name", "kinds", "options"}`, or None for a model without gates.

    Raises:
        ValueError: names the key, the value and what is allowed.
    """

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_heads: int = 8
    decoder_heads: int = 8
    d_feed_forward: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "relu"
    norm: str = "pre"
    positions: str = "sinusoidal"
    max_positions: int = 1024
    share_embeddings: bool = False
    tie_output: bool = True
    projection_bias: bool = True
    norm_bias: bool = True
    attention: str | dict[str, Any] = "multi_head"
    encoder_head_dim: int | None = None
    decoder_head_dim: int | None = None
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    unk_id: int = 3
    heads: dict[str, list[int]] | None = field(default=None)
    gates: dict[str, Any] | None = field(default=None)

    def __post_init__(self) -> None:
        for name in (*VOCABULARIES, *SIZES):
            if not _is_whole(getattr(self, name), at_least=1):
                raise ValueError(f"model.{name}: {getattr(self, name)!r}; allowed are whole numbers from 1")
            if getattr(self, name) > _MOST[name]:
                raise ValueError(f"model.{name}: {getattr(self, name)!r}; allowed are numbers up to {_MOST[name]:,}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"model.{name}: {getattr(self, name)!r}; allowed are {', '.join(choices)}")
        for name in RATES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise ValueError(f"model.{name}: {value!r}; allowed are numbers from 0 to below 1")
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"model.{name}: {getattr(self, name)!r}; allowed are true and false")
        self._check_vocabularies()
        for stack in ("encoder", "decoder"):
            self._check_head_dim(stack)
        self.attention = self._checked_attention()
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"model.d_model: {self.d_model}; sinusoidal positions need an even width")
        self.heads = self._checked_heads(self.heads)
        for name in self.sites():
            check_attention(self.attention, kind=HeadSite.parse(name).kind, sizes=self.attention_sizes(name))
        if self.gates is not None:
            self.gates = self._checked_gates(self.gates)

    def _check_vocabularies(self) -> None:
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            sizes = f"{self.source_vocab_size} source and {self.target_vocab_size} target entries"
            raise ValueError(f"model.share_embeddings: true with {sizes}; allowed with one joint vocabulary only")
        marks = [self.pad_id, self.bos_id, self.eos_id, self.unk_id]
        smallest = min(self.source_vocab_size, self.target_vocab_size)
        if not all(_is_whole(mark, at_least=0) and mark < smallest for mark in marks) or len(set(marks)) < 4:
            raise ValueError(
                f"model: pad, bos, eos and unk ids {marks}; allowed are four different ids from 0 to {smallest - 1}"
            )

    def _check_head_dim(self, stack: str) -> None:
        name, heads = f"{stack}_head_dim", getattr(self, f"{stack}_heads")
        if getattr(self, name) is None:
            if self.d_model % heads:
                raise ValueError(
                    f"model.d_model: {self.d_model} is not divisible by model.{stack}_heads: {heads}; "
                    f"choose a multiple, or set model.{name}"
                )
            setattr(self, name, self.d_model // heads)
        elif not _is_whole(getattr(self, name), at_least=1) or getattr(self, name) > _MOST["d_model"]:
            raise ValueError(f"model.{name}: {getattr(self, name)!r}; allowed are whole numbers from 1")
        if self.positions == "rotary" and getattr(self, name) % 2:
            raise ValueError(f"model.{name}: {getattr(self, name)}; rotary positions need an even head width")

    def _checked_attention(self) -> dict[str, Any]:
        """The variant as `{"name", "options"}`, or as a mapping from each kind of site to that."""
        found = {kind: attention_of_kind(self.attention, kind) for kind in KINDS}
        by_kind = {kind: {"name": name, "options": options} for kind, (name, options) in found.items()}
        return by_kind if is_by_kind(self.attention) else by_kind[KINDS[0]]

    def _checked_heads(self, heads: Any) -> dict[str, list[int]]:
        table = {site: list(range(num)) for site, num in self.original_heads().items()}
        if not isinstance(heads, Mapping | None):
            raise ValueError(f"model.heads: {heads!r}; allowed is a mapping from site to the numbers of its heads")
        for site, numbers in (heads or {}).items():
            if site not in table:
                raise ValueError(f"model.heads: site {site!r} is not in this model; it has {', '.join(table)}")
            is_table = isinstance(numbers, list | tuple) and all(
                _is_whole(n, at_least=0) and n < len(table[site]) for n in numbers
            )
            if not is_table or list(numbers) != sorted(set(numbers)):
                raise ValueError(
                    f"model.heads of {site}: {numbers!r}; "
                    f"allowed are ascending numbers from 0 to {len(table[site]) - 1}"
                )
            table[site] = list(numbers)
        return table

    def _checked_gates(self, gates: Any) -> dict[str, Any]:
        if not isinstance(gates, Mapping) or "name" not in gates or not set(gates) <= {"name", "kinds", "options"}:
            raise ValueError(
                f"model.gates: {gates!r}; allowed are null and a mapping with the keys name, kinds and options"
            )
        kinds, options = gates.get("kinds") or KINDS, gates.get("options") or {}
        if not isinstance(kinds, list | tuple) or not all(kind in KINDS for kind in kinds):
            raise ValueError(f"model.gates.kinds: {kinds!r}; allowed are lists of {', '.join(KINDS)}")
        if not isinstance(gates["name"], str):
            raise ValueError(f"model.gates.name: {gates['name']!r}; allowed is the name of a kind of gate")
        if not isinstance(options, Mapping):
            raise ValueError(f"model.gates.options: {options!r}; allowed is a mapping")
        build_gate(gates["name"], num_heads=1, options=dict(options))  # refuses what no gate knows
        return {"name": gates["name"], "kinds": list(kinds), "options": dict(options)}

    def sites(self) -> list[str]:
        """The sites in the order in which data passes them."""
        encoder = [f"encoder.{layer}.self" for layer in range(self.encoder_layers)]
        return encoder + [
            f"decoder.{layer}.{attention}" for layer in range(self.decoder_layers) for attention in ("self", "cross")
        ]

    def original_heads(self) -> dict[str, int]:
        """How many heads each site has in the unpruned model."""
        return {site: self._num_heads(site) for site in self.sites()}

    def _num_heads(self, site: str) -> int:
        return self.encoder_heads if site.startswith("encoder") else self.decoder_heads

    def head_dim(self, site: str) -> int:
        """The head width K at a site."""
        width = self.encoder_head_dim if site.startswith("encoder") else self.decoder_head_dim
        assert width is not None  # resolved in __post_init__
        return width

    def attention_sizes(self, site: str) -> AttentionSizes:
        """What the attention variant of a site is told of it."""
        assert self.heads is not None  # filled in by __post_init__
        parsed = HeadSite.parse(site)
        return AttentionSizes(
            d_model=self.d_model,
            numbers=tuple(self.heads[site]),
            total_heads=self._num_heads(site),
            head_dim=self.head_dim(site),
            cross=parsed.attention == "cross",
            bias=self.projection_bias,
            dropout=self.attention_dropout,
            rotary=self.positions == "rotary" and parsed.attention == "self",
            layer=parsed.layer,
            num_layers=self.encoder_layers if parsed.stack == "encoder" else self.decoder_layers,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with the format version."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`.

        Raises:
            ValueError: no mapping, an unknown or missing key, or a format version from the future.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"model: a {type(values).__name__}; allowed is a mapping, as `to_dict` gives")
        values = dict(values)
        version = values.pop("format_version", FORMAT_VERSION)
        if version != FORMAT_VERSION:
            raise ValueError(f"format_version: {version!r}; this version of prune_lab reads {FORMAT_VERSION}")
        known = [item.name for item in dataclasses.fields(cls)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"model: unknown key {unknown[0]!r}; allowed are {', '.join(known)}")
        for name in VOCABULARIES:
            if name not in values:
                raise ValueError(f"model: key {name!r} is missing")
        return cls(**values)


def _is_whole(value: Any, *, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least
