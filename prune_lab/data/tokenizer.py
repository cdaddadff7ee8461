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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

FORMAT_VERSION = 1
KINDS = ("bpe", "words")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
MARKS = ("< pad >", "< s >", "< /s >", "< unk >")
UNKNOWN_SHOWN = "⁇"
_WORD_START = "▁"
# The separators U+001C to U+001F end a line for str.splitlines, yet are no white space for regular expressions.
_WHITE_SPACE = r"[\s\x{1c}-\x{1f}]+"
_PUNCTUATION_AFTER_WORD = r"(?<=[\p{L}\p{N}])[^\p{L}\p{N}\p{M}▁]+"
_LINES_AT_ONCE = 10_000


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
        self._content = content
        self.kind: str = content["kind"]
        self.joint: bool = content["joint"]
        self._source = _Side(content["source"], self.kind)
        self._target = self._source if self.joint else _Side(content["target"], self.kind)

    @classmethod
    def train(
        cls,
        pairs: Iterable[tuple[str, str]],
        *,
        kind: str = "bpe",
        joint: bool = True,
        vocab_size: int = 8000,
        source_vocab_size: int | None = None,
        target_vocab_size: int | None = None,
        min_frequency: int = 1,
        split_punctuation: bool = True,
    ) -> "Tokenizer":
        """Learns a vocabulary from training text; the same text gives the same vocabulary.

        Args:
            pairs: (source, target) lines.
            kind: ``bpe`` (pieces of words) or ``words`` (what stands between spaces).
            joint: one vocabulary for both sides, else one each.
            vocab_size: most entries of a vocabulary, the four marks included. At most half of them are single
                characters (``bpe``).
            source_vocab_size: in place of ``vocab_size`` for the source side; only with ``joint=False``.
            target_vocab_size: the same for the target side.
            min_frequency: how often a merge (``bpe``) or a word (``words``) must occur to be an entry.
            split_punctuation: punctuation that follows a letter or digit starts a new piece (``bpe``): right for raw
                text, not needed for text whose tokens stand between spaces.

        Raises:
            ValueError: an unknown kind, a size that leaves no room for text, sizes per side with a joint vocabulary.
        """
        if kind not in KINDS:
            raise ValueError(f"tokenizer kind {kind!r} is unknown; allowed: {', '.join(KINDS)}")
        if joint and (source_vocab_size is not None or target_vocab_size is not None):
            raise ValueError(
                "source_vocab_size and target_vocab_size need joint=False; a joint vocabulary takes vocab_size"
            )
        if min_frequency < 1:
            raise ValueError(f"min_frequency is {min_frequency}; it must be at least 1")
        sizes = {"source": source_vocab_size or vocab_size, "target": target_vocab_size or vocab_size}
        for side, size in sizes.items():
            if size < len(MARKS) + 2:
                raise ValueError(
                    f"the {side} vocabulary has size {size}; it must be at least {len(MARKS) + 2}, marks included"
                )
        pairs = list(pairs)
        texts = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}
        if joint:
            texts = {"source": texts["source"] + texts["target"]}

        content: dict[str, Any] = {"format_version": FORMAT_VERSION, "kind": kind, "joint": joint, "target": None}
        for side, lines in texts.items():
            if kind == "bpe":
                model = _train_bpe(lines, sizes[side], min_frequency, split_punctuation)
            else:
                model = _train_words(lines, sizes[side], min_frequency)
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
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no prune_lab tokenizer: {_first_line(error)}") from error
        if expected_hash is not None and tokenizer.hash != expected_hash:
            raise ValueError(
                f"tokenizer {path} has hash {tokenizer.hash}, but the model was trained with {expected_hash}"
            )
        return tokenizer


class _Side:
    """One vocabulary with its way of cutting text."""

    def __init__(self, serialised: dict[str, Any], kind: str) -> None:
        try:
            self._model = tokenizers.Tokenizer.from_str(json.dumps(serialised))
        except Exception as error:  # the library raises bare Exception for content it cannot read
            raise ValueError(f"its vocabulary cannot be read ({_first_line(error)})") from error
        self._is_bpe = kind == "bpe"
        self.vocab_size: int = self._model.get_vocab_size()
        self.pieces: list[str] = [self._model.id_to_token(index) or "" for index in range(self.vocab_size)]
        if tuple(self.pieces[: len(MARKS)]) != MARKS:
            raise ValueError(f"its first entries are {self.pieces[: len(MARKS)]}; they must be the marks {list(MARKS)}")

    def encode(self, lines: Sequence[str]) -> Iterator[list[int]]:
        rest = iter(lines)
        while chunk := list(islice(rest, _LINES_AT_ONCE)):
            try:
                encodings = self._model.encode_batch_fast(chunk, add_special_tokens=False)
            except TypeError:
                # Half of a surrogate pair (JSON can hold one) is no Unicode text.
                chunk = [line.encode("utf-8", "replace").decode("utf-8") for line in chunk]
                encodings = self._model.encode_batch_fast(chunk, add_special_tokens=False)
            for encoding in encodings:
                yield encoding.ids

    def decode(self, ids: Iterable[int]) -> str:
        shown = [UNKNOWN_SHOWN if index == UNK_ID else self.pieces[index] for index in ids if index >= UNK_ID]
        if not self._is_bpe:
            return " ".join(shown)
        return " ".join("".join(shown).replace(_WORD_START, " ").split())


def _train_bpe(lines: list[str], vocab_size: int, min_frequency: int, split_punctuation: bool) -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(models.BPE(unk_token=MARKS[UNK_ID], fuse_unk=True))
    model.normalizer = normalizers.Sequence([_white_space_and_nfc(), normalizers.Replace(_WORD_START, "_")])
    model.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_WORD_START, prepend_scheme="always")
    if split_punctuation:
        punctuation = pre_tokenizers.Split(Regex(_PUNCTUATION_AFTER_WORD), behavior="isolated")
        model.pre_tokenizer = pre_tokenizers.Sequence([model.pre_tokenizer, punctuation])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=max(1, (vocab_size - len(MARKS)) // 2),
        special_tokens=list(MARKS),
        show_progress=False,
    )
    model.train_from_iterator(lines, trainer, length=len(lines))
    # The trainer also makes the marks patterns that are looked for in text. Here they are entries and nothing else.
    content = json.loads(model.to_str())
    content["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _train_words(lines: list[str], vocab_size: int, min_frequency: int) -> tokenizers.Tokenizer:
    normalizer = _white_space_and_nfc()
    counts = Counter(word for line in lines for word in normalizer.normalize_str(line).split(" ") if word)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in ranked if counts[word] >= min_frequency][: vocab_size - len(MARKS)]
    vocabulary = {word: index for index, word in enumerate([*MARKS, *words])}
    model = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=MARKS[UNK_ID]))
    model.normalizer = normalizer
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return model


def _white_space_and_nfc() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(_WHITE_SPACE), " "), normalizers.Strip()])


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
