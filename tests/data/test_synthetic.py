"""The synthetic language pair: reproducible, disjoint splits, a function of the source; frequencies, options."""

import hashlib
import math
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from prune_lab.data.synthetic import SPLITS, GrammarOptions, SyntheticPair, build_lexicon, generate, split_of
from prune_lab.data.synthetic.lexicon import Determiner


def digest(pairs: list[SyntheticPair]) -> str:
    return hashlib.sha256("\n".join(map(repr, pairs)).encode()).hexdigest()[:16]


# Reproducibility and splits


def test_same_seed_gives_the_same_corpus_in_every_process():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_synthetic import digest, generate\n"
        "print(digest(generate(num_pairs=300, seed=5, split='test')))"
    )
    here = digest(generate(num_pairs=300, seed=5, split="test"))
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program, os.path.dirname(__file__)]
        assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip() == here


def test_the_corpus_is_the_one_of_earlier_versions():
    assert digest(generate(num_pairs=200, seed=1)) == "9151e1fdd836e141"


def test_fewer_pairs_are_a_prefix_of_more(corpus):
    assert generate(num_pairs=50, seed=1) == corpus[:50]


def test_seeds_give_other_words_and_other_sentences(corpus):
    other = generate(num_pairs=100, seed=2)
    assert not {pair.source for pair in other} & {pair.source for pair in corpus}


def test_splits_share_no_source_sentence():
    sources = {split: {pair.source for pair in generate(num_pairs=3000, seed=1, split=split)} for split in SPLITS}
    assert not sources["train"] & sources["validation"]
    assert not sources["train"] & sources["test"]
    assert not sources["validation"] & sources["test"]
    assert all(split_of(source) == split for split in SPLITS for source in sources[split])


def test_splits_share_the_vocabulary(corpus):
    known = {word for pair in corpus for word in f"{pair.source} {pair.target}".split()}
    for split in ("validation", "test"):
        words = {
            word for pair in generate(num_pairs=500, split=split) for word in f"{pair.source} {pair.target}".split()
        }
        assert all(word[0].isupper() for word in words - known)


# The translation is a function of the source


@pytest.mark.parametrize("seed", range(4))
def test_target_and_trees_are_a_function_of_the_source(seed):
    few_words = {f"num_{name}": 2 for name in ("nouns", "adjectives", "oblique_prepositions", "nominal_prepositions")}
    few_words |= {f"num_{name}": 1 for name in ("manner_adverbs", "time_adverbs", "degree_adverbs")}
    few_words |= {f"num_{name}_verbs": 1 for name in ("intransitive", "transitive", "labile")}
    shares = {f"{name}_share": 0.5 for name in ("homonym_noun", "homonym_verb", "invariant_noun", "animate")}
    options = GrammarOptions(
        **few_words, **shares, name_probability=0.01, relative_clause_probability=0.3, max_words=12
    )
    seen: dict[str, SyntheticPair] = {}
    repeated = 0
    for pair in generate(num_pairs=10_000, seed=seed, options=options):
        repeated += pair.source in seen
        assert seen.setdefault(pair.source, pair) == pair
    assert repeated > 2000


# Words


def test_frequencies_follow_zipf(corpus, lexicon):
    for side in ("source", "target"):
        counts = Counter(word for pair in corpus for word in getattr(pair, side).split() if word[0].islower())
        assert 120 <= len(counts) <= 310
        ranked = [count for _, count in counts.most_common(100)]
        points = [(math.log(rank), math.log(count)) for rank, count in enumerate(ranked, start=1)]
        mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
        assert -1.5 < slope < -0.8
    counts = Counter(word for pair in corpus for word in pair.source.split())
    first, tenth = (sum(counts[form] for form in set(lexicon.nouns.entries[rank].forms)) for rank in (0, 9))
    assert 7 < first / tenth < 14


def test_words_of_the_two_languages_differ(corpus):
    source = {word for pair in corpus for word in pair.source.split() if word[0].islower()}
    target = {word for pair in corpus for word in pair.target.split() if word[0].islower()}
    assert not source & target


def test_lengths(corpus):
    lengths = [len(pair.source.split(" ")) for pair in corpus]
    assert min(lengths) == 4
    assert max(lengths) <= 22
    assert 8 < sum(lengths) / len(lengths) < 10.5
    assert max(len(pair.target.split(" ")) for pair in corpus) <= 32
    assert all(pair.source.endswith(" .") and pair.target.endswith(" .") for pair in corpus)


def test_twenty_thousand_pairs_take_under_three_seconds():
    start = time.process_time()
    generate(num_pairs=20_000)
    assert time.process_time() - start < 3


def test_large_lexicons_get_longer_words():
    entries = build_lexicon(1, GrammarOptions(num_nominal_prepositions=1200)).nominal_prepositions.entries
    assert len({entry.source for entry in entries}) == 1200
    assert max(len(entry.source) for entry in entries) > 3


# Options


def test_options_change_the_sentences():
    options = GrammarOptions(relative_clause_probability=0.0, name_probability=0.0, max_words=8)
    pairs = generate(num_pairs=300, options=options)
    assert all("acl:relcl" not in pair.source_relations and "PROPN" not in pair.source_tags for pair in pairs)
    assert max(len(pair.source.split()) for pair in pairs) <= 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_nouns": 0}, "num_nouns is 0: it must be at least 1"),
        ({"num_nouns": 2.5}, "num_nouns is 2.5: it must be a whole number"),
        ({"past_probability": 1.5}, "past_probability is 1.5: it must lie between 0 and 1"),
        ({"past_probability": "often"}, "past_probability is 'often': it must be a number"),
        ({"zipf_exponent": -1}, "zipf_exponent is -1: it must not be negative"),
        ({"max_depth": -1}, "max_depth is -1: it must not be negative"),
        ({"min_words": 30}, "min_words is 30: it must lie between 1 and max_words, 22"),
        ({"num_cats": 3}, "num_cats is no option of the synthetic grammar: allowed are adjective_probability, "),
    ],
)
def test_bad_options_are_named(values, message):
    with pytest.raises(ValueError) as error:
        GrammarOptions.from_dict(values)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_pairs": 0}, "num_pairs is 0: it must be at least 1"),
        ({"num_pairs": 1, "split": "dev"}, "split is 'dev': it must be one of train, validation, test"),
        (
            {"num_pairs": 1, "options": GrammarOptions(min_words=500, max_words=500)},
            "min_words is 500 and max_words 500: the other grammar options give no sentence",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(**arguments)


def test_determiners_show_number_or_are_neutral(lexicon):
    neutral = [name for name, word in lexicon.determiners.items() if word.forms[0] == word.forms[1]]
    assert neutral == ["definite"]
    assert all(isinstance(word, Determiner) and any(word.targets) for word in lexicon.determiners.values())
