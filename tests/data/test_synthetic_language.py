"""The synthetic language pair: trees, alignment, word order, agreement and case, checked on every sentence."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from prune_lab.data.synthetic import Lexicon, SyntheticPair, generate
from prune_lab.data.synthetic.lexicon import Verb

SINGULAR, PLURAL = 0, 1
RELATIONS = {"root", "nsubj", "obj", "obl", "nmod", "case", "det", "amod", "advmod", "aux", "acl:relcl", "punct"}


@dataclass(frozen=True)
class Sentence:
    """One side of a pair, with indices from 0 and head None for the root."""

    words: list[str]
    tags: tuple[str, ...]
    relations: tuple[str, ...]
    heads: list[int | None]

    def dependents(self, head: int, relation: str) -> list[int]:
        return [index for index, above in enumerate(self.heads) if above == head and self.relations[index] == relation]

    def subject(self, verb: int) -> int:
        """The subject's noun; for a subject relative clause the noun that it modifies."""
        (subject,) = self.dependents(verb, "nsubj")
        if self.tags[subject] != "PRON":
            return subject
        assert (noun := self.heads[verb]) is not None
        return noun

    def indices(self, tag: str) -> list[int]:
        return [index for index, other in enumerate(self.tags) if other == tag]


def source_side(pair: SyntheticPair) -> Sentence:
    heads = [head - 1 if head else None for head in pair.source_heads]
    return Sentence(pair.source.split(" "), pair.source_tags, pair.source_relations, heads)


def target_side(pair: SyntheticPair) -> Sentence:
    heads = [head - 1 if head else None for head in pair.target_heads]
    return Sentence(pair.target.split(" "), pair.target_tags, pair.target_relations, heads)


# Trees and alignment


@pytest.mark.parametrize("side", [source_side, target_side])
def test_trees_are_projective_with_one_root(corpus, side):
    for pair in corpus:
        sentence = side(pair)
        count = len(sentence.words)
        assert len(sentence.heads) == len(sentence.relations) == len(sentence.tags) == count
        assert [sentence.relations[index] for index, head in enumerate(sentence.heads) if head is None] == ["root"]
        spans = [{index} for index in range(count)]
        for index in range(count):
            above, steps = sentence.heads[index], 0
            while above is not None:
                spans[above].add(index)
                above, steps = sentence.heads[above], steps + 1
                assert steps < count, "the tree has a cycle"
        assert all(max(span) - min(span) + 1 == len(span) for span in spans)


@pytest.mark.parametrize("side", [source_side, target_side])
def test_every_relation_is_frequent(corpus, side):
    counts = Counter(relation for pair in corpus for relation in side(pair).relations)
    expected = RELATIONS if side is source_side else RELATIONS - {"aux"}
    assert set(counts) == expected
    assert all(count >= 0.01 * counts.total() for count in counts.values())


def test_relations_are_found_at_several_distances(corpus):
    for relation in ("nsubj", "obj", "amod", "advmod"):
        offsets = Counter(
            head - index
            for pair in corpus
            for index, head in enumerate(source_side(pair).heads)
            if head is not None and pair.source_relations[index] == relation
        )
        assert offsets.most_common(1)[0][1] < 0.9 * offsets.total()
        assert len(offsets) >= 3


def test_alignment_carries_the_source_tree_to_the_target_tree(corpus):
    for pair in corpus:
        source, target = source_side(pair), target_side(pair)
        to_target = dict(pair.alignment)
        assert len(to_target) == len(pair.alignment), "a source word has two target words"
        assert all(tag == "DET" for index, tag in enumerate(source.tags) if index not in to_target)
        unaligned = set(range(len(target.words))) - set(to_target.values())
        assert all(target.relations[index] == "case" for index in unaligned)
        for left, right in pair.alignment:
            if source.tags[left] == "AUX":
                assert right == to_target[source.heads[left]]
                continue
            head = source.heads[left]
            assert target.heads[right] == (None if head is None else to_target[head])
            assert (target.relations[right], target.tags[right]) == (source.relations[left], source.tags[left])


def test_word_orders_differ(corpus):
    for pair in corpus:
        source, target = source_side(pair), target_side(pair)
        for index in source.indices("ADJ"):
            assert source.heads[index] > index
        for index in target.indices("ADJ"):
            assert target.heads[index] < index
        for index in source.indices("NOUN"):
            assert source.relations[index] != "obj" or source.heads[index] < index
        for verb in target.indices("VERB"):
            dependents = (index for index, head in enumerate(target.heads) if head == verb)
            assert all(index < verb or target.relations[index] == "punct" for index in dependents)


# Agreement and case


def source_number(sentence: Sentence, noun: int, lexicon: Lexicon) -> int:
    """The number of a noun phrase from all words that show it; fails when they disagree or none does."""
    if sentence.tags[noun] == "PROPN":
        return SINGULAR
    numbers = [numbers_of({entry.forms for entry in lexicon.nouns.entries}, sentence.words[noun])]
    for determiner in sentence.dependents(noun, "det"):
        forms = {entry.forms for entry in lexicon.determiners.values()}
        numbers.append(numbers_of(forms, sentence.words[determiner]))
    numbers += [
        {verb_number(sentence, verb, lexicon)} for verb in sentence.indices("VERB") if sentence.subject(verb) == noun
    ]
    (number,) = set.intersection(*numbers)
    return number


def numbers_of(paradigms: set[tuple[str, ...]], word: str) -> set[int]:
    numbers = {number for forms in paradigms for number in (SINGULAR, PLURAL) if forms[number] == word}
    assert numbers, f"{word} is no form of its class"
    return numbers


def verb_number(sentence: Sentence, verb: int, lexicon: Lexicon) -> int:
    paradigms = {entry.forms for entry in (*lexicon.intransitive_verbs.entries, *lexicon.transitive_verbs.entries)}
    (form,) = numbers_of(paradigms, sentence.words[verb])
    auxiliaries = sentence.dependents(verb, "aux")
    if not auxiliaries:
        return form
    assert form == PLURAL, "after an auxiliary stands the bare form"
    return lexicon.auxiliary.index(sentence.words[auxiliaries[0]])


def test_source_words_agree_and_show_the_number_of_every_noun(corpus, lexicon):
    for pair in corpus[:3000]:
        sentence = source_side(pair)
        for noun in sentence.indices("NOUN"):
            source_number(sentence, noun, lexicon)
        for verb in sentence.indices("VERB"):
            subject_number = source_number(sentence, sentence.subject(verb), lexicon)
            assert verb_number(sentence, verb, lexicon) == subject_number


def test_target_words_agree_in_gender_number_and_tense(corpus, lexicon):
    nouns = {
        form: (sense.agreement(bool(number)), number)
        for entry in lexicon.nouns.entries
        for sense in entry.senses
        for number, form in enumerate(sense.forms)
    }
    classes = [entry.targets for entry in (*lexicon.adjectives.entries, *lexicon.determiners.values())]
    agreement = {form: index for forms in classes for index, form in enumerate(forms) if form}
    verbs = {
        form: index
        for entry in (*lexicon.intransitive_verbs.entries, *lexicon.transitive_verbs.entries)
        for forms in (entry.intransitive, *(entry.transitive or ()))
        for index, form in enumerate(forms or ())
    }
    for pair in corpus[:3000]:
        source, target = source_side(pair), target_side(pair)
        to_target = dict(pair.alignment)
        for noun in source.indices("NOUN"):
            index, number = nouns[target.words[to_target[noun]]]
            assert number == source_number(source, noun, lexicon)
            for relation in ("amod", "det"):
                for dependent in target.dependents(to_target[noun], relation):
                    assert agreement[target.words[dependent]] == index
        for verb in source.indices("VERB"):
            past, plural = divmod(verbs[target.words[to_target[verb]]], 2)
            assert past == len(source.dependents(verb, "aux"))
            assert plural == source_number(source, source.subject(verb), lexicon)


def test_case_follows_role_and_verb(corpus, lexicon):
    verbs: dict[str, Verb] = {form: verb for verb in lexicon.transitive_verbs.entries for form in verb.forms}
    seen = Counter()
    for pair in corpus:
        source, target = source_side(pair), target_side(pair)
        to_target = dict(pair.alignment)
        for index, relation in enumerate(source.relations):
            if relation not in ("nsubj", "obj"):
                continue
            case = "nominative" if relation == "nsubj" else verbs[source.words[source.heads[index]]].object_case
            seen[case] += 1
            if source.tags[index] == "PRON":
                assert target.words[to_target[index]] == lexicon.relative_pronouns[case]
            else:
                (particle,) = target.dependents(to_target[index], "case")
                assert target.words[particle] == lexicon.case_particles[case]
    assert min(seen.values()) > 0.02 * seen.total()
    assert len(seen) == 3


def test_agreement_reaches_across_relative_clauses(corpus):
    distances = [
        verb - sentence.subject(verb) for sentence in map(source_side, corpus) for verb in sentence.indices("VERB")
    ]
    assert sum(distance > 3 for distance in distances) > 0.05 * len(distances)


# Words


def test_every_homonym_occurs_in_both_senses(corpus):
    translations = defaultdict(Counter)
    for pair in corpus:
        source, target = source_side(pair), target_side(pair)
        for left, right in pair.alignment:
            if source.tags[left] in ("VERB", "ADP", "NOUN"):
                stem = target.words[right][:4] if source.tags[left] != "ADP" else target.words[right]
                translations[source.tags[left], source.words[left]][stem] += 1
    for tag in ("VERB", "ADP", "NOUN"):
        ambiguous = [counts for (kind, _), counts in translations.items() if kind == tag and counts.most_common(2)[1:]]
        assert len(ambiguous) >= 3
        assert all(counts.most_common(2)[1][1] >= 3 for counts in ambiguous)


def test_names_are_copied_and_mostly_new_in_the_test_set(corpus):
    train = {word for pair in corpus for word in pair.source.split() if word[0].isupper()}
    test = generate(num_pairs=1000, seed=1, split="test")
    for pair in (*corpus, *test):
        source, target = source_side(pair), target_side(pair)
        names = [source.words[index] for index in source.indices("PROPN")]
        assert sorted(names) == sorted(target.words[index] for index in target.indices("PROPN"))
        assert names == [word for word in source.words if word[0].isupper()]
        assert all(target.words[dict(pair.alignment)[i]] == source.words[i] for i in source.indices("PROPN"))
    test_names = [word for pair in test for word in pair.source.split() if word[0].isupper()]
    assert len(test_names) > 100
    assert sum(name not in train for name in test_names) > 0.5 * len(test_names)
