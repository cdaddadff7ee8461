"""The settings of a study's analysis of its base: which text, where its trees are, and thresholds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.sources import AnalysisText, conllu_text, split_text
from prune_lab.data.kinds import SyntheticPairs
from prune_lab.data.splits import Splits
from prune_lab.results.files import hash_lines
from prune_lab.study.checks import check_whole, fields_of

KEY = "study.analysis"
_SPLIT = "validation"


@dataclass(frozen=True, kw_only=True)
class Trees:
    """CoNLL-U files; see `conllu_text`.

    Raises:
        ValueError: a target without a source, or a value of another type.
    """

    source: str | None = None
    target: str | None = None
    tokenized: bool = False
    lowercase: bool = False

    def __post_init__(self) -> None:
        where = f"{KEY}.conllu"
        for key in ("source", "target"):
            path = getattr(self, key)
            if path is not None and not isinstance(path, str):
                raise ValueError(f"{where}.{key}: {path!r}; allowed are the path of a file, and null")
        for key in ("tokenized", "lowercase"):
            if not isinstance(getattr(self, key), bool):
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed are true and false")
        if self.target is not None and self.source is None:
            raise ValueError(f"{where}.target: set without {where}.source; allowed are both, or the source alone")

    @property
    def files(self) -> dict[str, str]:
        """Key of the configuration -> path, of those that are set."""
        paths = {"source": self.source, "target": self.target}
        return {f"{KEY}.conllu.{key}": path for key, path in paths.items() if path is not None}


@dataclass(frozen=True, kw_only=True)
class HeadAnalysis:
    """How the heads of a study's base are looked at.

    Attributes:
        conllu: where the trees are; with the synthetic task not needed.
        without_trees: look at the validation split also where there are no trees.
        max_sentences: the first so many; None for all.
        thresholds: from when on a head has a role.

    Raises:
        ValueError: a number or a switch that is none.
    """

    conllu: Trees = field(default_factory=Trees)
    without_trees: bool = False
    max_sentences: int | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        if not isinstance(self.without_trees, bool):
            raise ValueError(f"{KEY}.without_trees: {self.without_trees!r}; allowed are true and false")
        if self.max_sentences is not None:
            check_whole(f"{KEY}.max_sentences", self.max_sentences, least=1)

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None) -> HeadAnalysis | None:
        """Read the key `study.analysis`, None for no analysis; errors name the key, the value and what is allowed."""
        if config is None:
            return None
        values = fields_of(cls, config, KEY)
        values["conllu"] = Trees(**fields_of(Trees, values.get("conllu", {}), f"{KEY}.conllu"))
        thresholds = config.get("thresholds", {})
        if not isinstance(thresholds, Mapping):
            raise ValueError(f"{KEY}.thresholds: {thresholds!r}; allowed is a mapping, such as {{positional: 0.8}}")
        try:
            values["thresholds"] = Thresholds.from_config(thresholds)
        except ValueError as error:
            raise ValueError(f"{KEY}.{error}") from error
        return cls(**values)

    @property
    def translates(self) -> bool:
        """Whether the model's own translations are read, since there is no target side."""
        return self.conllu.source is not None and self.conllu.target is None

    def text(self, splits: Splits) -> AnalysisText | None:
        """The text, told by a hash; None where it has no trees and `without_trees` is not set."""
        conllu = self.conllu
        if conllu.source is not None:
            text = conllu_text(**asdict(conllu), max_sentences=self.max_sentences)
            return _told(text, _hash_of_files(conllu.files.values()))
        if not self.without_trees and not isinstance(splits.sources.get(_SPLIT), SyntheticPairs):
            return None
        pairs = getattr(splits, _SPLIT).pairs
        text = split_text(splits, _SPLIT, max_sentences=self.max_sentences)
        return _told(text, hash_lines(line for pair in pairs for line in pair))

    def check_text(self) -> None:
        """Reads the CoNLL-U files once: the analysis comes when the base is trained.

        Raises:
            FileNotFoundError: a file that is not there.
            ValueError: no CoNLL-U, unlike numbers of sentences, or no sentence at all.
        """
        if self.conllu.source is None:
            return
        for key, path in self.conllu.files.items():
            if not Path(path).is_file():
                raise FileNotFoundError(f"{key}={path}: no such file")
        sentences = conllu_text(**asdict(self.conllu), max_sentences=self.max_sentences).read()
        if not sum(bool(each.source.text.strip()) for each in sentences):
            raise ValueError(f"{KEY}.conllu.source={self.conllu.source}: has no sentence; allowed is one or more")


def _told(text: AnalysisText, content: str) -> AnalysisText:
    return replace(text, about={**text.about, "hash": content})


def _hash_of_files(paths: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return digest.hexdigest()
