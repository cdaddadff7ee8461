"""The kinds of data a configuration can name, and how each becomes a source of sentence pairs for every split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.data.corpus import NumberedPairs, PairSource, Part, TextFiles
from prune_lab.data.tables import HubDataset, JsonLines, ParquetFile

if TYPE_CHECKING:
    from prune_lab.data.synthetic import SyntheticPair

SPLITS = ("train", "validation", "test")
_COLUMN_KEYS = ("source_column", "target_column")
_NOT_TEXT = ("options", "seed", "tokenized", "num_pairs", "part")


@dataclass(frozen=True, kw_only=True)
class SyntheticPairs:
    """Sentence pairs of the synthetic language pair.

    Args:
        num_pairs: how many.
        seed: of the languages and their sentences.
        split: train, validation or test.
        options: of the grammar, as plain data.

    Raises:
        ValueError: num_pairs or seed is no such number.
    """

    num_pairs: int
    seed: int
    split: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if isinstance(self.num_pairs, bool) or not isinstance(self.num_pairs, int) or self.num_pairs < 1:
            raise ValueError(f"data.{self.split}.num_pairs is {self.num_pairs!r}; it must be a whole number from 1")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"data.seed is {self.seed!r}; it must be a whole number")
        if not isinstance(self.options, Mapping):
            raise ValueError(f"data.options is {self.options!r}; it must be a mapping from options to values")

    @property
    def origin(self) -> str:
        return f"the synthetic languages of seed {self.seed} ({self.split})"

    def check(self) -> None:
        self._draw(1)

    def read(self) -> NumberedPairs:
        return NumberedPairs.whole([(pair.source, pair.target) for pair in self.drawn()])

    def drawn(self) -> list[SyntheticPair]:
        """The pairs with their trees and word alignments."""
        return self._draw(self.num_pairs)

    def _draw(self, num_pairs: int) -> list[SyntheticPair]:
        from prune_lab.data.synthetic import GrammarOptions, generate

        options = GrammarOptions.from_dict(self.options)
        return generate(num_pairs=num_pairs, seed=self.seed, split=self.split, options=options)


def check_keys(config: Mapping[str, Any], where: str, allowed: tuple[str, ...]) -> None:
    """Refuses keys that are not allowed.

    Raises:
        ValueError: names the key, its value and the keys that are allowed.
    """
    for key, value in config.items():
        if key not in allowed:
            raise ValueError(f"unknown key {where}.{key} (value {value!r}); allowed: {', '.join(allowed)}")


def check_texts(config: Mapping[str, Any], where: str, keys: Iterable[str]) -> None:
    """Refuses numbers, lists and the like where a name or a path is needed; a key may be missing or null.

    Raises:
        ValueError: names the key and its value.
    """
    for key in keys:
        value = config.get(key)
        if value is not None and not isinstance(value, str | Path):
            raise ValueError(f"{where}.{key} is {value!r}; it must be text")


@dataclass(frozen=True)
class Kind:
    """A kind of data.

    Args:
        keys: those of the configuration, besides the ones that all kinds have.
        split_keys: those of each split; none when the splits follow from the configuration.
        needed: the keys that a split must have; it is not set when it has none of them.
        build: makes a source from the configuration, the settings of a split, and the name of the split.
    """

    keys: tuple[str, ...]
    split_keys: tuple[str, ...]
    needed: tuple[str, ...]
    build: Callable[[Mapping[str, Any], Mapping[str, Any], str], PairSource]

    def sources(self, config: Mapping[str, Any]) -> dict[str, PairSource]:
        """The source of each split that is set."""
        found: dict[str, PairSource] = {}
        check_texts(config, "data", [key for key in self.keys if key not in _NOT_TEXT])
        for split in SPLITS:
            settings = (config.get(split) or {}) if self.split_keys else {}
            if not isinstance(settings, Mapping):
                raise ValueError(f"data.{split} is {settings!r}; it must hold {', '.join(self.split_keys)}")
            check_keys(settings, f"data.{split}", self.split_keys)
            check_texts(settings, f"data.{split}", [key for key in self.split_keys if key not in _NOT_TEXT])
            missing = [key for key in self.needed if settings.get(key) in (None, "")]
            if self.needed and len(missing) == len(self.needed):
                continue
            if missing:
                needed = " and ".join(f"data.{split}.{key}" for key in self.needed)
                raise ValueError(f"data.{split}.{missing[0]} is not set; needed are {needed}")
            part = settings.get("part")
            source = self.build(config, settings, split)
            found[split] = source if part is None else _part_of(source, part, split)
        return found


def _text(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    return TextFiles(source=settings["source"], target=settings["target"])


def _jsonl(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    return JsonLines(path=settings["path"], **_columns(config))


def _parquet(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    return ParquetFile(path=settings["path"], **_columns(config))


def _hub(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    if not config.get("dataset"):
        raise ValueError(
            f"data.dataset is {config.get('dataset')!r}; it must be the id of a hub data set, as wmt/wmt16"
        )
    return HubDataset(
        dataset=config["dataset"],
        split=settings["split"],
        config_name=config.get("config_name"),
        data_dir=config.get("data_dir"),
        revision=config.get("revision"),
        **_columns(config),
    )


def _multi30k(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    languages = config["source_language"], config["target_language"]
    tokenized = config.get("tokenized", False)
    if not isinstance(tokenized, bool):
        raise ValueError(f"data.tokenized is {tokenized!r}; allowed: true, false")
    if not config.get("directory"):
        if tokenized:
            raise ValueError(
                "data.tokenized is true, but the hub has raw text only; set data.directory, or tokenized=false"
            )
        return HubDataset(
            dataset=config["dataset"], split=split, source_column=languages[0], target_column=languages[1]
        )
    directory = Path(config["directory"])
    if not directory.is_dir():
        raise FileNotFoundError(f"data.directory={directory} is no directory; it must hold train.en.gz, val.en.gz, ...")
    stem = {"train": "train", "validation": "val", "test": config.get("test_set") or "test_2016_flickr"}[split]
    form = ".lc.norm.tok" if tokenized else ""
    paths = [directory / f"{stem}{form}.{language}" for language in languages]
    compressed = [path.with_name(f"{path.name}.gz") for path in paths]
    source, target = (
        plain if plain.exists() and not packed.exists() else packed
        for plain, packed in zip(paths, compressed, strict=True)
    )
    return TextFiles(source=source, target=target)


def _synthetic(config: Mapping[str, Any], settings: Mapping[str, Any], split: str) -> PairSource:
    return SyntheticPairs(
        num_pairs=settings["num_pairs"], seed=config.get("seed", 1), split=split, options=config.get("options", {})
    )


KINDS = {
    "text": Kind((), ("source", "target", "part"), ("source", "target"), _text),
    "jsonl": Kind(_COLUMN_KEYS, ("path", "part"), ("path",), _jsonl),
    "parquet": Kind(_COLUMN_KEYS, ("path", "part"), ("path",), _parquet),
    "hub": Kind(("dataset", "config_name", "data_dir", "revision", *_COLUMN_KEYS), ("split", "part"), ("split",), _hub),
    "multi30k": Kind(("directory", "dataset", "tokenized", "test_set"), (), (), _multi30k),
    "synthetic": Kind(("seed", "options"), ("num_pairs",), ("num_pairs",), _synthetic),
}


def _columns(config: Mapping[str, Any]) -> dict[str, str]:
    """The column of each side, by default named like its language."""
    return {
        f"{side}_column": config.get(f"{side}_column") or config[f"{side}_language"] for side in ("source", "target")
    }


def _part_of(source: PairSource, part: Any, split: str) -> PairSource:
    try:
        start, stop = (float(bound) for bound in part)
    except (TypeError, ValueError):
        raise ValueError(
            f"data.{split}.part is {part!r}; it must be [start, stop] with 0 <= start < stop <= 1"
        ) from None
    return Part(whole=source, start=start, stop=stop)
