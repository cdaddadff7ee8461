"""The vocabulary of heads: sites, masks and scores.

A **site** is one attention block, written ``encoder.0.self``, ``decoder.2.self`` or ``decoder.2.cross``. A **head**
is a site and a number, ``decoder.2.cross.5``; the number is always the one that the head had in the unpruned model.
Nothing here needs torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from operator import index
from typing import Any, Protocol

KINDS = ("encoder.self", "decoder.self", "decoder.cross")


class HasHeads(Protocol):
    """Anything whose heads can be chosen: a model, or a record of one."""

    def heads(self) -> dict[str, list[int]]:
        """The live heads of each site, by original number."""

    def original_heads(self) -> dict[str, int]:
        """How many heads each site had in the unpruned model."""


@dataclass(frozen=True, order=True)
class HeadSite:
    """One attention block of an encoder-decoder Transformer.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        layer: layer number, from 0.
        attention: ``self`` or ``cross`` (the decoder alone has cross sites).
    """

    stack: str
    layer: int
    attention: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not isinstance(self.layer, int) or self.layer < 0:
            raise ValueError(
                f"site {self}: allowed are encoder.N.self, decoder.N.self and decoder.N.cross with N from 0"
            )

    @classmethod
    def parse(cls, text: str) -> HeadSite:
        """Read ``encoder.0.self`` and the like; ValueError for anything else."""
        parts = text.split(".") if isinstance(text, str) else []
        if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit()):
            raise ValueError(
                f"site {text!r}: allowed are encoder.N.self, decoder.N.self and decoder.N.cross with N from 0"
            )
        return cls(parts[0], int(parts[1]), parts[2])

    @property
    def kind(self) -> str:
        """``encoder.self``, ``decoder.self`` or ``decoder.cross``."""
        return f"{self.stack}.{self.attention}"

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.attention}"


@dataclass(frozen=True, order=True)
class HeadId:
    """One head: its site and the number it had in the unpruned model."""

    site: HeadSite
    head: int

    @classmethod
    def parse(cls, text: str) -> HeadId:
        """Read ``decoder.2.cross.5``; ValueError for anything else."""
        site, _, head = text.rpartition(".") if isinstance(text, str) else ("", "", "")
        if not (head.isascii() and head.isdigit()):
            raise ValueError(f"head {text!r}: a head is written SITE.NUMBER, for instance decoder.2.cross.5")
        return cls(HeadSite.parse(site), int(head))

    def __str__(self) -> str:
        return f"{self.site}.{self.head}"


def kind_of_site(site: str) -> str:
    """The kind of a site given by name: ``encoder.0.self`` -> ``encoder.self``."""
    return HeadSite.parse(site).kind


def checked_heads(heads: Mapping[str, Iterable[int]], model: HasHeads) -> dict[str, list[int]]:
    """The choice as sorted lists of head numbers; ValueError names an unknown site or a number out of range."""
    if not all(callable(getattr(model, name, None)) for name in ("heads", "original_heads")):
        raise ValueError(f"model: a {type(model).__name__}; allowed is a model, or a record of its heads")
    if not isinstance(heads, Mapping):
        raise ValueError(f"heads: {heads!r}; allowed is a mapping such as {{'encoder.0.self': [0, 2]}}")
    original = model.original_heads()
    checked: dict[str, list[int]] = {}
    for site, numbers in heads.items():
        if site not in original:
            raise ValueError(f"site {site!r} is not in this model; it has {', '.join(original)}")
        if isinstance(numbers, str) or not isinstance(numbers, Iterable):
            raise ValueError(
                f"heads of {site}: {numbers!r}; allowed is a list of numbers from 0 to {original[site] - 1}"
            )
        checked[site] = sorted({_number(number, site, original[site]) for number in numbers})
    return checked


def _number(number: Any, site: str, num_original: int | None = None) -> int:
    """A head number as a plain int; whole numbers of other kinds (NumPy's) are welcome."""
    try:
        plain = -1 if isinstance(number, bool) else index(number)
    except TypeError:
        plain = -1
    if plain < 0 or (num_original is not None and plain >= num_original):
        most = "" if num_original is None else f" to {num_original - 1}"
        raise ValueError(f"head {number!r} of {site}: allowed are whole numbers from 0{most}")
    return plain


@dataclass(frozen=True)
class HeadMask:
    """Which heads of a model stay, for every site, by original number.

    Build one with `removing` or `keeping`; both refer to original numbers, whatever was removed before. Masks that keep
    the same heads are equal, and one can be the key of a dict: do not change what is in `kept`.

    Attributes:
        kept: site -> original numbers of the heads that stay.

    Raises:
        ValueError: no mapping from sites to head numbers.
    """

    kept: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        if not isinstance(self.kept, Mapping):
            raise ValueError(f"kept: {self.kept!r}; allowed is a mapping such as {{'encoder.0.self': [0, 2]}}")
        kept = {}
        for site, numbers in self.kept.items():
            HeadSite.parse(site)
            if isinstance(numbers, str) or not isinstance(numbers, Iterable):
                raise ValueError(f"kept heads of {site}: {numbers!r}; allowed is a list of numbers from 0")
            kept[site] = tuple(sorted({_number(number, site) for number in numbers}))
        object.__setattr__(self, "kept", kept)

    def __hash__(self) -> int:
        return hash(frozenset(self.kept.items()))

    @classmethod
    def removing(cls, heads: Mapping[str, Iterable[int]], model: HasHeads) -> HeadMask:
        """Remove these heads and keep all other live ones.

        A head that is gone already gives a warning and changes nothing.

        Raises:
            ValueError: an unknown site, or a number outside the range that the unpruned model had.
        """
        removed = checked_heads(heads, model)
        live = model.heads()
        for site, numbers in removed.items():
            gone = [number for number in numbers if number not in live[site]]
            if gone:
                warnings.warn(
                    f"{site}: heads {gone} are gone already, live are {live[site]}", UserWarning, stacklevel=2
                )
        return cls(
            {site: tuple(head for head in heads_ if head not in removed.get(site, ())) for site, heads_ in live.items()}
        )

    @classmethod
    def keeping(cls, heads: Mapping[str, Iterable[int]], model: HasHeads) -> HeadMask:
        """Keep only these heads at the sites named; sites that are not named keep all their live heads.

        Raises:
            ValueError: an unknown site, a number out of range, or a head that is gone already.
        """
        kept = checked_heads(heads, model)
        live = model.heads()
        for site, numbers in kept.items():
            gone = [number for number in numbers if number not in live[site]]
            if gone:
                raise ValueError(f"{site}: heads {gone} cannot be kept, they are gone already; live are {live[site]}")
        return cls({site: tuple(kept.get(site, heads_)) for site, heads_ in live.items()})

    @property
    def num_kept(self) -> int:
        """Remaining heads over all sites."""
        return sum(len(heads) for heads in self.kept.values())

    def to_dict(self) -> dict[str, list[int]]:
        """Plain lists, for JSON."""
        return {site: list(heads) for site, heads in self.kept.items()}

    def __iter__(self) -> Iterator[HeadId]:
        for site, heads in self.kept.items():
            for head in heads:
                yield HeadId(HeadSite.parse(site), head)


@dataclass(frozen=True)
class HeadScores:
    """What each live head is worth by one criterion: higher means keep.

    Attributes:
        values: site -> original head number -> score, in the order of the model's sites.
        criterion: the criterion's name.
        settings: the options that made the scores, and what they were measured on.
        pairs: site -> head -> head -> what removing both costs beyond each alone, halved (the site's symmetric matrix,
            with the scores on its diagonal); None where the criterion looks at single heads.
    """

    values: Mapping[str, Mapping[int, float]]
    criterion: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    pairs: Mapping[str, Mapping[int, Mapping[int, float]]] | None = None

    def to_dict(self) -> dict[str, dict[int, float]]:
        """``{site: {head: score}}``, live heads only."""
        return {site: dict(heads) for site, heads in self.values.items()}

    @property
    def num_heads(self) -> int:
        """How many heads have a score."""
        return sum(len(heads) for heads in self.values.values())


def budget_from_share(share: float, num_heads: int) -> int:
    """The whole number of heads nearest to `share` of `num_heads`.

    This is the largest remainder rule between the heads kept and those removed; a half goes to those kept. A share is
    taken as the decimal number that it is written as, so that 0.35 of 10 heads is 3.5 exactly.

    Raises:
        ValueError: not a number from 0 to 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"shares: {share!r}; allowed are numbers from 0 to 1")
    return int((Decimal(str(share)) * num_heads).to_integral_value(ROUND_HALF_UP))
