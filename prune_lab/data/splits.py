"""From a data configuration to the corpora of its splits; each is read when it is first used.

A configuration is plain data, as in ``conf/data/*.yaml``: ``kind`` says where the text is (see ``kinds``); ``train``,
``validation`` and ``test`` say which part of it. A split that is not set does not exist.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prune_lab.data.corpus import Corpus, PairSource, load_corpus
from prune_lab.data.kinds import KINDS, SPLITS, check_keys, check_texts

_COMMON_KEYS = ("name", "kind", "source_language", "target_language", "score_tokenize", "lowercase")


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The corpora of a data configuration, and how translations of them are scored.

    Args:
        name: of the configuration.
        source_language: code of the source language, such as ``en``.
        target_language: code of the target language.
        score_tokenize: the tokenizer of sacrebleu: ``13a`` for raw text, ``none`` for tokenised text.
        lowercase: whether BLEU ignores case.
        sources: where each split is; a split that is not set is missing.
        needed: the keys that set a split, for messages.
    """

    name: str
    source_language: str
    target_language: str
    score_tokenize: str
    lowercase: bool
    sources: Mapping[str, PairSource]
    needed: tuple[str, ...] = ()

    @cached_property
    def train(self) -> Corpus:
        return self._load("train")

    @cached_property
    def validation(self) -> Corpus:
        return self._load("validation")

    @cached_property
    def test(self) -> Corpus:
        return self._load("test")

    @property
    def available(self) -> tuple[str, ...]:
        """The splits that are set."""
        return tuple(split for split in SPLITS if split in self.sources)

    def check(self, splits: Collection[str] = SPLITS) -> None:
        """Looks at the local files of those splits that are set, without reading them into memory as text.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: line counts differ, or a column is missing.
        """
        for split in self.available:
            if split in splits:
                self.sources[split].check()

    def _load(self, split: str) -> Corpus:
        if split not in self.sources:
            needed = " and ".join(f"data.{split}.{key}" for key in self.needed)
            raise ValueError(f"data.{split} is not set; data={self.name} needs {needed}")
        return load_corpus(self.sources[split], name=f"data.{split}")


def load_splits(data_config: Mapping[str, Any], check: Collection[str] = SPLITS) -> Splits:
    """Resolves a data configuration; no text is read, and nothing is downloaded.

    Args:
        data_config: plain data, as in ``conf/data/*.yaml``.
        check: the splits whose local files are looked at now (see :meth:`Splits.check`).

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: an unknown kind or key, a value of the wrong type, or files that are no parallel text.
    """
    if not isinstance(data_config, Mapping):
        raise ValueError(f"data is {data_config!r}; it must be a mapping with the key kind")
    config = dict(data_config)
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"data.kind is {kind!r}; allowed: {', '.join(KINDS)}")
    reader = KINDS[kind]
    check_keys(config, "data", (*_COMMON_KEYS, *reader.keys, *(SPLITS if reader.split_keys else ())))
    for key in ("source_language", "target_language"):
        if not isinstance(config.get(key), str):
            raise ValueError(f"data.{key} is {config.get(key)!r}; it must be a language code such as de")
    check_texts(config, "data", ("score_tokenize",))
    lowercase = config.get("lowercase", False)
    if not isinstance(lowercase, bool):
        raise ValueError(f"data.lowercase is {lowercase!r}; allowed: true, false")
    splits = Splits(
        name=str(config.get("name") or kind),
        source_language=config["source_language"],
        target_language=config["target_language"],
        score_tokenize=config.get("score_tokenize") or ("none" if config.get("tokenized") else "13a"),
        lowercase=lowercase,
        sources=reader.sources(config),
        needed=reader.needed,
    )
    splits.check(check)
    return splits
