"""One vocabulary of a tokenizer: pieces and marks, text to ids and back, and how the pieces are learnt."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from prune_lab.data.marks import MARKS, UNK_ID

UNKNOWN_SHOWN = "⁇"
_WORD_START = "▁"
# The separators U+001C to U+001F end a line for str.splitlines, yet are no white space for regular expressions.
_WHITE_SPACE = r"[\s\x{1c}-\x{1f}]+"
_PUNCTUATION_AFTER_WORD = r"(?<=[\p{L}\p{N}])[^\p{L}\p{N}\p{M}▁]+"
_LINES_AT_ONCE = 10_000


class Vocabulary:
    """One side of a tokenizer: its pieces, and its way of cutting text into them.

    Args:
        serialised: the form of the `tokenizers` library, as plain data.
        kind: ``bpe`` or ``words``.

    Raises:
        ValueError: the library cannot read it, or its first pieces are not the marks.
    """

    def __init__(self, serialised: dict[str, Any], kind: str) -> None:
        try:
            self._model = tokenizers.Tokenizer.from_str(json.dumps(serialised))
        except Exception as error:  # the library raises bare Exception for content it cannot read
            raise ValueError(f"its vocabulary cannot be read ({first_line(error)})") from error
        self._is_bpe = kind == "bpe"
        self.vocab_size: int = self._model.get_vocab_size()
        self.pieces: list[str] = [self._model.id_to_token(index) or "" for index in range(self.vocab_size)]
        if tuple(self.pieces[: len(MARKS)]) != MARKS:
            raise ValueError(f"its first entries are {self.pieces[: len(MARKS)]}; they must be the marks {list(MARKS)}")

    def encode(self, lines: Sequence[str]) -> Iterator[list[int]]:
        """The ids of each line, without marks."""
        for encoding in self._encodings(lines, self._model.encode_batch_fast):
            yield encoding.ids

    def spans(self, lines: Sequence[str]) -> Iterator[list[tuple[int, int]]]:
        """Where the pieces of each line stand in it: (start, end) in characters; a space before a word may be in it."""
        for encoding in self._encodings(lines, self._model.encode_batch):
            yield encoding.offsets

    def _encodings(self, lines: Sequence[str], encode_batch: Callable[..., list[Any]]) -> Iterator[Any]:
        rest = iter(lines)
        while chunk := list(islice(rest, _LINES_AT_ONCE)):
            try:
                yield from encode_batch(chunk, add_special_tokens=False)
            except TypeError:
                # Half of a surrogate pair (JSON can hold one) is no Unicode text.
                chunk = [line.encode("utf-8", "replace").decode("utf-8") for line in chunk]
                yield from encode_batch(chunk, add_special_tokens=False)

    def decode(self, ids: Iterable[int]) -> str:
        """The line that ids stand for; padding, begin and end marks are left out."""
        shown = [UNKNOWN_SHOWN if index == UNK_ID else self.pieces[index] for index in ids if index >= UNK_ID]
        if not self._is_bpe:
            return " ".join(shown)
        return " ".join("".join(shown).replace(_WORD_START, " ").split())


def train_bpe(lines: list[str], vocab_size: int, min_frequency: int, split_punctuation: bool) -> tokenizers.Tokenizer:
    """Pieces of words by byte-pair merges; see `Tokenizer.train`."""
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


def train_words(lines: list[str], vocab_size: int, min_frequency: int) -> tokenizers.Tokenizer:
    """What stands between spaces, the most frequent first; see `Tokenizer.train`."""
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


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error) or type(error).__name__).splitlines()[0]
