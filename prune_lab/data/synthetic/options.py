"""Sizes and probabilities of the synthetic language pair."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GrammarOptions:
    """What the two languages look like; the defaults give sentences of about 9 words, the final mark included.

    Fields named `num_*` count words, `*_share` is a share of the words of a class, `*_probability` is drawn for
    every sentence, clause or noun phrase.

    Raises:
        ValueError: a value lies outside its range; the message names the option.
    """

    num_nouns: int = 36
    num_adjectives: int = 16
    num_intransitive_verbs: int = 8
    num_transitive_verbs: int = 12
    num_labile_verbs: int = 3
    """Verbs with and without an object, translated by different words."""
    num_manner_adverbs: int = 8
    num_time_adverbs: int = 3
    num_degree_adverbs: int = 2
    num_oblique_prepositions: int = 6
    num_nominal_prepositions: int = 2
    zipf_exponent: float = 1.0

    animate_share: float = 0.4
    feminine_share: float = 0.5
    invariant_noun_share: float = 0.25
    """Nouns with one form: their number shows on the determiner or the verb."""
    homonym_noun_share: float = 0.1
    """Nouns with two translations, chosen by the verb whose object they are."""
    homonym_verb_share: float = 0.25
    """Verbs with two translations, chosen by the animacy of their object."""
    homonym_preposition_share: float = 0.5
    """Prepositions with two translations, chosen by the animacy of their noun."""
    dative_verb_share: float = 0.25

    transitive_probability: float = 0.6
    past_probability: float = 0.3
    plural_probability: float = 0.4
    bare_plural_probability: float = 0.2
    name_probability: float = 0.1
    adjective_probability: float = 0.3
    degree_probability: float = 0.2
    nominal_modifier_probability: float = 0.1
    relative_clause_probability: float = 0.15
    object_relative_probability: float = 0.45
    oblique_probability: float = 0.3
    second_oblique_probability: float = 0.1
    fronted_oblique_probability: float = 0.2
    manner_adverb_probability: float = 0.3
    final_adverb_probability: float = 0.4
    time_adverb_probability: float = 0.12

    max_depth: int = 2
    """How deep relative clauses and nominal modifiers nest."""
    min_words: int = 4
    max_words: int = 22
    """Bounds on the source sentence, the final mark included."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int if field.type is int else int | float):
                kind = "a whole number" if field.type is int else "a number"
                raise ValueError(f"{field.name} is {value!r}: it must be {kind}")
            if field.name.startswith("num_") and value < 1:
                raise ValueError(f"{field.name} is {value}: it must be at least 1")
            if field.name.endswith(("_share", "_probability")) and not 0 <= value <= 1:
                raise ValueError(f"{field.name} is {value}: it must lie between 0 and 1")
        if self.zipf_exponent < 0:
            raise ValueError(f"zipf_exponent is {self.zipf_exponent}: it must not be negative")
        if self.max_depth < 0:
            raise ValueError(f"max_depth is {self.max_depth}: it must not be negative")
        if not 1 <= self.min_words <= self.max_words:
            raise ValueError(f"min_words is {self.min_words}: it must lie between 1 and max_words, {self.max_words}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "GrammarOptions":
        """Builds options from plain data, such as a YAML file holds.

        Raises:
            ValueError: a key is no option, or a value lies outside its range.
        """
        allowed = sorted(field.name for field in fields(cls))
        for key in values:
            if key not in allowed:
                raise ValueError(f"{key} is no option of the synthetic grammar: allowed are {', '.join(allowed)}")
        return cls(**values)
