"""What a sentence is made of before it is written down in either language."""

from dataclasses import dataclass, field

from prune_lab.data.synthetic.lexicon import Adjective, Adverb, Determiner, Noun, Preposition, Verb


class Tokens:
    """The words of one sentence in order, as a dependency tree; positions count from 1 and head 0 is the root."""

    __slots__ = ("heads", "relations", "tags", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []

    def add(self, word: str, tag: str, relation: str) -> int:
        """Appends a word, for the time being below the root, and returns its position."""
        self.words.append(word)
        self.tags.append(tag)
        self.heads.append(0)
        self.relations.append(relation)
        return len(self.words)

    def attach(self, positions: list[int], head: int) -> None:
        for position in positions:
            self.heads[position - 1] = head


@dataclass(slots=True, eq=False)
class AdjectivePhrase:
    adjective: Adjective
    degree: Adverb | None
    at: int = 0  # positions in the source sentence, here and below
    degree_at: int = 0


@dataclass(slots=True, eq=False)
class NounPhrase:
    """A noun with its dependents, or a name (then `noun` is None)."""

    noun: Noun | None
    name: str = ""
    plural: bool = False
    determiner: Determiner | None = None
    adjectives: list[AdjectivePhrase] = field(default_factory=list)
    modifier: "PrepositionalPhrase | None" = None
    relative: "Clause | None" = None
    at: int = 0
    determiner_at: int = 0

    @property
    def animate(self) -> bool:
        return self.noun is None or self.noun.animate


@dataclass(slots=True, eq=False)
class PrepositionalPhrase:
    preposition: Preposition
    phrase: NounPhrase
    at: int = 0


@dataclass(slots=True, eq=False)
class Clause:
    """A main clause, or a relative clause whose `gap` (nsubj or obj) is the noun phrase that it modifies."""

    verb: Verb
    past: bool
    subject: NounPhrase
    object: NounPhrase | None
    gap: str = ""
    obliques: list[PrepositionalPhrase] = field(default_factory=list)
    fronted: bool = False  # the first oblique opens the source sentence
    manner: Adverb | None = None
    manner_last: bool = False
    time: Adverb | None = None
    at: int = 0
    auxiliary_at: int = 0
    relative_at: int = 0
    manner_at: int = 0
    time_at: int = 0
    mark_at: int = 0
