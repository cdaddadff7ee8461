"""How a tokenizer is trained, checked before any text is read."""

from dataclasses import dataclass

from prune_lab.data.marks import MARKS

KINDS = ("bpe", "words")
_SMALLEST = len(MARKS) + 2
_LARGEST = 10_000_000  # entries; the library asks for the memory of all of them before it reads text


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """What a vocabulary is made of.

    Attributes:
        kind: ``bpe`` (pieces of words) or ``words`` (what stands between spaces).
        joint: one vocabulary for both sides, else one each.
        vocab_size: most entries of a vocabulary, the four marks included. At most half of them are single characters
            (``bpe``).
        source_vocab_size: in place of ``vocab_size`` for the source side; only with ``joint=False``.
        target_vocab_size: the same for the target side.
        min_frequency: how often a merge (``bpe``) or a word (``words``) must occur to be an entry.
        split_punctuation: punctuation that follows a letter or digit starts a new piece (``bpe``): right for raw text,
            not needed for text whose tokens stand between spaces.

    Raises:
        ValueError: names the option, its value and what is allowed.
    """

    kind: str = "bpe"
    joint: bool = True
    vocab_size: int = 8000
    source_vocab_size: int | None = None
    target_vocab_size: int | None = None
    min_frequency: int = 1
    split_punctuation: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"tokenizer.kind: {self.kind!r}; allowed are {', '.join(KINDS)}")
        for name in ("joint", "split_punctuation"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"tokenizer.{name}: {getattr(self, name)!r}; allowed are true and false")
        if self.joint and (self.source_vocab_size is not None or self.target_vocab_size is not None):
            raise ValueError(
                "tokenizer: source_vocab_size and target_vocab_size need joint=False; "
                "a joint vocabulary takes vocab_size"
            )
        smallest = {"vocab_size": _SMALLEST, "min_frequency": 1}
        for name in ("source_vocab_size", "target_vocab_size"):
            if getattr(self, name) is not None:
                smallest[name] = _SMALLEST
        for name, least in smallest.items():
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= _LARGEST:
                raise ValueError(f"tokenizer.{name}: {number!r}; allowed are whole numbers from {least} to {_LARGEST}")

    @property
    def sizes(self) -> dict[str, int]:
        """Side -> most entries of its vocabulary."""
        most = self.vocab_size
        return {"source": self.source_vocab_size or most, "target": self.target_vocab_size or most}
