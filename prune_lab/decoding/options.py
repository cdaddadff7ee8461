"""The settings of decoding, which every record repeats."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

LENGTH_PENALTY_FORMULA = "sum log P / ((5 + n) / 6)^alpha, n target tokens with the end mark"
STOP_RULE = (
    "beam_size hypotheses finished, or no unfinished one can still win; the end mark is forced at the maximum length"
)

PRODUCTS = ("float32", "bfloat16", "int8")
# Beyond these a search overflows or fills the memory; nothing sensible comes near them.
_MOST = {"beam_size": 10_000, "length_penalty": 100, "max_length_a": 1_000_000, "max_length_b": 1_000_000}


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How hypotheses are searched.

    Attributes:
        beam_size: hypotheses kept for each sentence; 1 is greedy search.
        length_penalty: alpha of ((5 + n) / 6)^alpha (Wu 2016, arXiv 1609.08144, eq. 14); 0 ranks by the plain sum.
        max_length_a: the longest hypothesis has a + b * S tokens before its end mark, S source tokens without the
            end mark.
        max_length_b: see `max_length_a`.
        products: type of the products of linear layers: `float32`, or `bfloat16` or `int8`, which are faster where the
            processor has them, and round (see `prune_lab.attention.reduced`).

    Raises:
        ValueError: names the key, the value and what is allowed.
    """

    beam_size: int = 5
    length_penalty: float = 0.6
    max_length_a: int = 10
    max_length_b: float = 1.5
    products: str = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.beam_size, bool) or not isinstance(self.beam_size, int) or self.beam_size < 1:
            raise ValueError(f"decoding.beam_size: {self.beam_size!r}; allowed are whole numbers from 1")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if isinstance(value, int | float) and value > most:
                raise ValueError(f"decoding.{name}: {value!r}; allowed are numbers up to {most:,}")
        for name in ("length_penalty", "max_length_a", "max_length_b"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"decoding.{name}: {value!r}; allowed are numbers from 0")
        if self.length_penalty < 0:
            raise ValueError(f"decoding.length_penalty: {self.length_penalty!r}; allowed are numbers from 0")
        if self.max_length_a < 0 or self.max_length_b < 0 or self.max_length_a + self.max_length_b <= 0:
            lengths = f"{self.max_length_a!r} and {self.max_length_b!r}"
            raise ValueError(
                f"decoding.max_length_a and max_length_b: {lengths}; allowed are numbers from 0, not both 0"
            )

        if self.products not in PRODUCTS:
            raise ValueError(f"decoding.products: {self.products!r}; allowed are {', '.join(PRODUCTS)}")

    @property
    def search(self) -> str:
        """`greedy` or `beam N`, for people: BLEU of another search is another number."""
        return "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"

    def to_record(self) -> dict[str, Any]:
        """The settings with the formulas spelled out, for a record."""
        return {
            **dataclasses.asdict(self),
            "search": "greedy" if self.beam_size == 1 else "beam",
            "length_penalty_formula": LENGTH_PENALTY_FORMULA,
            "max_length_formula": "a + b * S, S source tokens without the end mark",
            "stop_rule": STOP_RULE,
        }


DEFAULT_DECODING = DecodingOptions()
