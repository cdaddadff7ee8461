"""Writes a sentence structure as words of the source language.

Subject, verb, object; determiner, adjectives and noun; prepositions; modifiers of a noun after it.
Positions of the words are noted in the structure, for the alignment.
"""

from prune_lab.data.synthetic.lexicon import SOURCE_MARK, Lexicon
from prune_lab.data.synthetic.phrases import Clause, NounPhrase, PrepositionalPhrase, Tokens


def write_source(clause: Clause, lexicon: Lexicon) -> Tokens:
    """Returns the source sentence of a main clause."""
    tokens = Tokens()
    root = _write_clause(tokens, clause, lexicon, "root")
    clause.mark_at = tokens.add(SOURCE_MARK, "PUNCT", "punct")
    tokens.attach([clause.mark_at], root)
    return tokens


def _write_clause(tokens: Tokens, clause: Clause, lexicon: Lexicon, relation: str) -> int:
    dependents = []
    if clause.time is not None:
        clause.time_at = tokens.add(clause.time.source, "ADV", "advmod")
        dependents.append(clause.time_at)
    if clause.fronted:
        dependents.append(_write_prepositional(tokens, clause.obliques[0], lexicon, "obl"))
    if clause.gap:
        clause.relative_at = tokens.add(lexicon.relative, "PRON", clause.gap)
        dependents.append(clause.relative_at)
    if clause.gap != "nsubj":
        dependents.append(_write_noun_phrase(tokens, clause.subject, lexicon, "nsubj"))
    plural = clause.subject.plural
    if clause.past:
        clause.auxiliary_at = tokens.add(lexicon.auxiliary[plural], "AUX", "aux")
        dependents.append(clause.auxiliary_at)
    if clause.manner is not None and not clause.manner_last:
        clause.manner_at = tokens.add(clause.manner.source, "ADV", "advmod")
        dependents.append(clause.manner_at)
    clause.at = verb = tokens.add(clause.verb.forms[plural or clause.past], "VERB", relation)
    if clause.object is not None and clause.gap != "obj":
        dependents.append(_write_noun_phrase(tokens, clause.object, lexicon, "obj"))
    for oblique in clause.obliques[clause.fronted :]:
        dependents.append(_write_prepositional(tokens, oblique, lexicon, "obl"))
    if clause.manner is not None and clause.manner_last:
        clause.manner_at = tokens.add(clause.manner.source, "ADV", "advmod")
        dependents.append(clause.manner_at)
    tokens.attach(dependents, verb)
    return verb


def _write_prepositional(tokens: Tokens, prepositional: PrepositionalPhrase, lexicon: Lexicon, relation: str) -> int:
    prepositional.at = tokens.add(prepositional.preposition.source, "ADP", "case")
    noun = _write_noun_phrase(tokens, prepositional.phrase, lexicon, relation)
    tokens.attach([prepositional.at], noun)
    return noun


def _write_noun_phrase(tokens: Tokens, phrase: NounPhrase, lexicon: Lexicon, relation: str) -> int:
    if phrase.noun is None:
        phrase.at = tokens.add(phrase.name, "PROPN", relation)
        return phrase.at
    dependents = []
    if phrase.determiner is not None:
        phrase.determiner_at = tokens.add(phrase.determiner.forms[phrase.plural], "DET", "det")
        dependents.append(phrase.determiner_at)
    for adjective in phrase.adjectives:
        if adjective.degree is not None:
            adjective.degree_at = tokens.add(adjective.degree.source, "ADV", "advmod")
        adjective.at = tokens.add(adjective.adjective.source, "ADJ", "amod")
        dependents.append(adjective.at)
        if adjective.degree is not None:
            tokens.attach([adjective.degree_at], adjective.at)
    phrase.at = noun = tokens.add(phrase.noun.forms[phrase.plural], "NOUN", relation)
    if phrase.modifier is not None:
        dependents.append(_write_prepositional(tokens, phrase.modifier, lexicon, "nmod"))
    if phrase.relative is not None:
        dependents.append(_write_clause(tokens, phrase.relative, lexicon, "acl:relcl"))
    tokens.attach(dependents, noun)
    return noun
