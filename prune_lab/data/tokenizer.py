"""Tokenizers: lines of text to ids and back, as byte-pair encoding or plain words, kept in one JSON file.

Both sides of a tokenizer use the same four marks: padding 0, begin 1, end 2, unknown 3. Their names in the vocabulary
hold a space, which no piece of text can, so ``<pad>`` or ``</s>`` in a text is read as the characters it is made of.

What comes back from ``decode`` is the line after normalisation: Unicode NFC, every run of white space one space, none
at the ends. Characters (``bpe``) or words (``words``) that training text did not have become the unknown id and are
shown as ``⁇``; neighbouring unknown characters of one word share one id. The character ``▁`` (U+2581) marks the start
of a word inside ``bpe`` pieces; in text it is read as ``_``.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from prune_lab.data.marks import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from prune_lab.data.tokenizer_options import KINDS, TokenizerOptions
from prune_lab.data.vocabulary import UNKNOWN_SHOWN, Vocabulary, first_line, train_bpe, train_words

__all__ = ["BOS_ID", "EOS_ID", "PAD_ID", "UNKNOWN_SHOWN", "UNK_ID", "Tokenizer"]

FORMAT_VERSION = 1


class Tokenizer:
    """Turns lines into ids and ids into lines, for a source and a target side that may share one vocabulary.

    Built by :meth:`train` or :meth:`load`; the constructor takes the content of a stored file.

    Args:
        content: what ``tokenizer.json`` holds: ``format_version``, ``kind``, ``joint``, ``source`` and ``target``
            (each the serialised form of the `tokenizers` library; ``target`` is None when joint).

    Raises:
        ValueError: the content has another format version or kind, or its marks have other ids.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        if content.get("format_version") != FORMAT_VERSION:
            raise ValueError(f"format_version is {content.get('format_version')!r}; allowed: {FORMAT_VERSION}")
        if content.get("kind") not in KINDS:
            raise ValueError(f"kind is {content.get('kind')!r}; allowed: {', '.join(KINDS)}")
        for key in ("joint", "source", "target"):
            if key not in content:
                raise ValueError(f"key {key!r} is missing")
        self._content = content
        self.kind: str = content["kind"]
        self.joint: bool = content["joint"]
        self._source = Vocabulary(content["source"], self.kind)
        self._target = self._source if self.joint else Vocabulary(content["target"], self.kind)

    @classmethod
    def train(cls, pairs: Iterable[tuple[str, str]], **options: Any) -> "Tokenizer":
        """Learns a vocabulary from training text; the same text gives the same vocabulary.

        Args:
            pairs: (source, target) lines.
            options: see `TokenizerOptions`.

        Raises:
            ValueError: an option that cannot work.
        """
        wanted = TokenizerOptions(**options)
        pairs = list(pairs)
        texts = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}
        if wanted.joint:
            texts = {"source": texts["source"] + texts["target"]}

        content: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "kind": wanted.kind,
            "joint": wanted.joint,
            "target": None,
        }
        for side, lines in texts.items():
            size = wanted.sizes[side]
            if wanted.kind == "bpe":
                model = train_bpe(lines, size, wanted.min_frequency, wanted.split_punctuation)
            else:
                model = train_words(lines, size, wanted.min_frequency)
            content[side] = json.loads(model.to_str())
        return cls(content)

    @property
    def source_vocab_size(self) -> int:
        return self._source.vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self._target.vocab_size

    @cached_property
    def hash(self) -> str:
        """Sha256 of the content, in hexadecimal: equal for tokenizers that give every text the same ids."""
        canonical = json.dumps(self._content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()

    def encode_source(self, line: str) -> list[int]:
        """Ids of a source line, the end mark last."""
        return self.encode_sources([line])[0]

    def encode_target(self, line: str) -> list[int]:
        """Ids of a target line between begin and end mark."""
        return self.encode_targets([line])[0]

    def encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Like :meth:`encode_source` for many lines, in parallel."""
        return [[*ids, EOS_ID] for ids in self._source.encode(lines)]

    def encode_targets(self, lines: Sequence[str]) -> list[list[int]]:
        """Like :meth:`encode_target` for many lines, in parallel."""
        return [[BOS_ID, *ids, EOS_ID] for ids in self._target.encode(lines)]

    def source_spans(self, lines: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Where each piece of source lines stands, in characters (start, end) of the line, marks left out."""
        return list(self._source.spans(lines))

    def target_spans(self, lines: Sequence[str]) -> list[list[tuple[int, int]]]:
        """The same for target lines."""
        return list(self._target.spans(lines))

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """The entries of the source vocabulary that ids stand for, marks too: the tokens as a model reads them."""
        return [self._source.pieces[index] for index in ids]

    def target_pieces(self, ids: Iterable[int]) -> list[str]:
        """The same of the target vocabulary."""
        return [self._target.pieces[index] for index in ids]

    def decode_source(self, ids: Iterable[int]) -> str:
        """The line that source ids stand for; padding, begin and end marks are left out."""
        return self._source.decode(ids)

    def decode_target(self, ids: Iterable[int]) -> str:
        """The line that target ids stand for; padding, begin and end marks are left out."""
        return self._target.decode(ids)

    @property
    def content(self) -> dict[str, Any]:
        """What :meth:`save` writes, as plain data; the constructor takes it back."""
        return self._content

    def save(self, path: str | Path) -> None:
        """Writes the one file that :meth:`load` reads."""
        Path(path).write_text(json.dumps(self._content, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, expected_hash: str | None = None) -> "Tokenizer":
        """Reads a stored tokenizer.

        Args:
            path: the file ``tokenizer.json``.
            expected_hash: the hash of the tokenizer that a model was trained with; another one is refused.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no tokenizer, or its hash is not the expected one.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"tokenizer file {path} does not exist")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it holds no JSON object")
            tokenizer = cls(content)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is no prune_lab tokenizer: {first_line(error)}") from error
        if expected_hash is not None and tokenizer.hash != expected_hash:
            raise ValueError(
                f"tokenizer {path} has hash {tokenizer.hash}, but the model was trained with {expected_hash}"
            )
        return tokenizer
