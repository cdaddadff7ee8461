"""Heads of a real model that are made to do one thing get the role of just that, and numbers that are known exactly."""

import math
from collections import Counter

import pytest
from constructed_model import CROSS_HEADS, DECODER_HEADS, ENCODER_HEADS, LENGTHS, constructed_model, made_text

from prune_lab.analysis.heads_table import HeadRow, head_rows
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.measure import Measured, TextCounts, measure_heads

ROLES = {
    "encoder.0.self": {
        "previous": ["positional -1"],
        "next": ["positional +1"],
        "self": ["positional 0"],
        "uniform": [],
        "rarest": ["rare word"],
        "subject": ["nsubj to dependent"],
    },
    "decoder.0.self": {
        "previous": ["positional -1"],
        "self": ["positional 0"],
        "begin": ["begin mark"],
        # Of equal weights the first counts.
        "even": ["begin mark"],
    },
    "decoder.0.cross": {
        "diagonal": ["diagonal"],
        "predicted": ["alignment"],
        "read": [],
        "rarest": ["rare word"],
    },
}
NAMES = {"encoder.0.self": ENCODER_HEADS, "decoder.0.self": DECODER_HEADS, "decoder.0.cross": CROSS_HEADS}


def mean(of_length):
    """The mean over queries of a text, half of whose sentences have either length: n -> (sum over queries, queries)."""
    sums, numbers = zip(*(of_length(length) for length in LENGTHS), strict=True)
    return sum(sums) / sum(numbers)


@pytest.fixture(scope="module", params=["pre", "post"])
def measured(request: pytest.FixtureRequest) -> Measured:
    sentences = made_text()
    model = constructed_model(sentences, request.param)
    return measure_heads(model, sentences, TextCounts.of(model.tokenizer, sentences))


@pytest.fixture(scope="module")
def rows(measured: Measured) -> dict[tuple[str, str], HeadRow]:
    return {(row.site, NAMES[row.site][row.head]): row for row in head_rows(measured, Thresholds())}


def test_the_text_is_as_it_says() -> None:
    sentences = made_text()
    counts = Counter(word for sentence in sentences for word in sentence.source.words)
    for sentence in sentences:
        alone = [word for word in sentence.source.words if counts[word] == 1]
        assert len(set(sentence.source.words)) == len(sentence.source.words) and len(alone) == 1
    assert Counter(len(sentence.source.words) for sentence in sentences) == dict.fromkeys(LENGTHS, 10)
    # No fixed offset finds the subjects, nor does the first word of a sentence.
    verbs, subjects = (
        [
            next(place for place, word in enumerate(sentence.source.words) if word.startswith(start))
            for sentence in sentences
        ]
        for start in ("verb", "subject")
    )
    assert max(Counter(b - a for a, b in zip(verbs, subjects, strict=True)).values()) < 8 and 0 not in subjects


@pytest.mark.parametrize("site", ROLES)
def test_every_head_has_the_roles_that_it_was_made_for(site: str, rows: dict) -> None:
    assert {name: [role.name for role in rows[site, name].roles] for name in NAMES[site]} == ROLES[site]


@pytest.mark.parametrize(
    ("head", "confidence", "entropy"),
    [
        ("previous", 1, 0),
        # The last piece looks at the end mark, which is left out.
        ("next", mean(lambda n: (n - 1, n)), 0),
        ("self", 1, 0),
        ("uniform", mean(lambda n: (n / (n + 1), n)), 1),
        ("rarest", 1, 0),
        ("subject", 1, 0),
    ],
)
def test_encoder_heads_are_as_sure_as_they_were_made(head: str, confidence: float, entropy: float, rows: dict) -> None:
    measures = rows["encoder.0.self", head].measures
    assert measures["confidence"] == pytest.approx(confidence, abs=1e-7)
    assert measures["entropy"] == pytest.approx(entropy, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "confidence", "entropy"),
    [
        ("previous", 1, 0),
        ("self", 1, 0),
        ("begin", 1, 0),
        ("even", mean(lambda n: (sum(1 / keys for keys in range(1, n + 2)), n + 1)), 1),
    ],
)
def test_decoder_heads_are_as_sure_as_they_were_made(head: str, confidence: float, entropy: float, rows: dict) -> None:
    measures = rows["decoder.0.self", head].measures
    assert measures["confidence"] == pytest.approx(confidence, abs=1e-6)
    assert measures["entropy"] == pytest.approx(entropy, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "confidence", "entropy"),
    [
        # Where the end mark is predicted, they look at the end mark; so does the next at the begin mark.
        ("diagonal", mean(lambda n: (n, n + 1)), 0),
        ("predicted", mean(lambda n: (n, n + 1)), 0),
        ("read", mean(lambda n: (n, n + 1)), 0),
        ("rarest", 1, 0),
    ],
)
def test_cross_heads_are_as_sure_as_they_were_made(head: str, confidence: float, entropy: float, rows: dict) -> None:
    measures = rows["decoder.0.cross", head].measures
    assert measures["confidence"] == pytest.approx(confidence, abs=1e-6)
    assert measures["entropy"] == pytest.approx(entropy, abs=1e-6)


def test_where_encoder_heads_look(rows: dict) -> None:
    def look(head: str, name: str) -> float:
        return rows["encoder.0.self", head].measures[name]

    assert look("previous", "offset_-1") == look("next", "offset_1") == look("self", "offset_0") == 1
    assert look("previous", "to_previous") == look("next", "to_next") == look("self", "to_self") == 1
    assert look("previous", "offset_0") == mean(lambda n: (1, n))  # the first piece looks at itself
    assert look("previous", "to_end") == look("self", "to_end") == 0
    assert look("next", "to_end") == mean(lambda n: (1, n))
    assert look("uniform", "to_end") == pytest.approx(mean(lambda n: (n / (n + 1), n)))
    for number in (1, 2, 5):
        share = mean(lambda n, number=number: (number * n / (n + 1), n))
        assert look("uniform", f"top_{number}") == pytest.approx(share)
        assert look("rarest", f"top_{number}") == 1
    assert look("rarest", "rarest") == look("rarest", "two_rarest") == 1
    assert look("subject", "offset_0") == mean(lambda n: (1, n))  # all but the verb look at the first word


def test_where_decoder_heads_look(rows: dict) -> None:
    def look(site: str, head: str, name: str) -> float:
        return rows[f"decoder.0.{site}", head].measures[name]

    assert look("self", "previous", "to_previous") == look("self", "self", "to_self") == 1
    assert look("self", "previous", "to_begin") == mean(lambda n: (1, n))
    assert look("self", "begin", "to_begin") == look("self", "begin", "at_begin") == 1
    assert "to_next" not in rows["decoder.0.self", "self"].measures
    assert look("cross", "diagonal", "diagonal") == 1
    assert look("cross", "diagonal", "aligned") == look("cross", "diagonal", "aligned_input") == 0
    assert look("cross", "predicted", "aligned") == look("cross", "read", "aligned_input") == 1
    assert look("cross", "predicted", "aligned_input") == look("cross", "read", "aligned") == 0
    assert look("cross", "predicted", "diagonal") == mean(lambda n: (1, n + 1))  # the end mark
    # Of four words, the first two are read one position before that of the word that they translate.
    assert look("cross", "read", "diagonal") == mean(lambda n: (n / 2, n + 1))
    assert look("cross", "rarest", "rarest") == 1


def test_relations_of_the_subject_head(measured: Measured, rows: dict) -> None:
    scores = {str(score.relation): score for score in measured.relations}
    assert {name: score.num_words for name, score in scores.items()} == {
        **{f"{name} to head": 20 for name in ("nsubj", "obj")},
        **{f"{name} to dependent": 20 for name in ("nsubj", "obj", "all")},
        "all to head": 40,
    }
    found = rows["encoder.0.self", "subject"].relations
    assert found["nsubj to dependent"] == found["all to dependent"] == 1
    assert found["obj to dependent"] == found["nsubj to head"] == found["obj to head"] == 0
    # A head that looks at a fixed offset is never above the best of them.
    for head in ("previous", "next", "self"):
        for name, share in rows["encoder.0.self", head].relations.items():
            assert share <= scores[name].baseline < 0.5


def test_distances_of_heads_that_are_told_apart(measured: Measured) -> None:
    place = {name: number for number, name in enumerate(ENCODER_HEADS)}
    between = measured.distances["encoder.self"]
    assert measured.num_queries == {
        "encoder.self": sum(10 * n for n in LENGTHS),
        "decoder.self": sum(10 * n for n in LENGTHS),
        "decoder.cross": sum(10 * (n + 1) for n in LENGTHS),
    }
    # The next and the previous position have nothing in common, and the first piece has itself and the next.
    assert between[place["previous"], place["next"]] == pytest.approx(math.log(2), rel=1e-12)
    # Previous and self are the same for the first piece alone, and so are self and subject.
    apart = mean(lambda n: ((n - 1) * math.log(2), n))
    assert between[place["previous"], place["self"]] == pytest.approx(apart, rel=1e-12)
    assert between[place["subject"], place["self"]] == pytest.approx(apart, rel=1e-12)

    # One key of n + 1 against all of them.
    def one_of_all(n: int) -> tuple[float, int]:
        keys = n + 1
        mixture = [(1 + 1 / keys) / 2] + [1 / keys / 2] * n
        entropy = -sum(each * math.log(each) for each in mixture)
        return n * (entropy - math.log(keys) / 2), n

    assert between[place["self"], place["uniform"]] == pytest.approx(mean(one_of_all), rel=1e-5)
