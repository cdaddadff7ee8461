"""Heads measured on a text: nothing depends on how it is batched, on its order or on the kind of model."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from made_views import random_sentences, tokenizer_of, with_links

from prune_lab.analysis import measure
from prune_lab.analysis.measure import Measured, TextCounts, measure_heads
from prune_lab.analysis.text import Sentence, Side
from prune_lab.analysis.view import SiteView
from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import collate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.surgery import mask_heads, prune_heads

SENTENCES = with_links(random_sentences(24, seed=8), seed=8)
TOKENIZER = tokenizer_of(SENTENCES)
COUNTS = TextCounts.of(TOKENIZER, SENTENCES)
EXAMPLES = [(name, dict(options)) for name, variant in sorted(ATTENTION.items()) for options in ({}, *variant.examples)]
# Measures that are shares of queries or words: they can be equal to the last digit.
SHARES = ("offset_", "best_offset", "at_begin", "rarest", "two_rarest", "diagonal", "aligned")


@pytest.fixture(scope="module")
def built(small_model: Callable[..., Transformer]) -> Callable[..., Transformer]:
    """The small model of the checks with the vocabularies of the text, and the tokenizer."""

    def build(**settings: Any) -> Transformer:
        sizes = {"source_vocab_size": TOKENIZER.source_vocab_size, "target_vocab_size": TOKENIZER.target_vocab_size}
        model = small_model(**sizes, **settings)
        model.tokenizer = TOKENIZER
        return model

    return build


@pytest.fixture(scope="module")
def model(built: Callable[..., Transformer]) -> Transformer:
    return built()


@pytest.fixture(scope="module")
def whole(model: Transformer) -> Measured:
    return measure_heads(model, SENTENCES, COUNTS)


def assert_same(found: Measured, expected: Measured, rel: float = 1e-4) -> None:
    """Shares are equal, other numbers nearly so: a model's own differ a little with the shape of a batch."""
    assert found.numbers == expected.numbers and found.measures.keys() == expected.measures.keys()
    for site, of_site in expected.measures.items():
        assert found.measures[site].keys() == of_site.keys()
        for name, values in of_site.items():
            if name.startswith(SHARES):
                assert found.measures[site][name] == values, (site, name)
            else:
                assert found.measures[site][name] == pytest.approx(values, rel=rel, abs=1e-6), (site, name)
    assert found.uniform == {kind: pytest.approx(values) for kind, values in expected.uniform.items()}
    assert found.relations == expected.relations
    assert found.num_queries == expected.num_queries
    for kind, between in expected.distances.items():
        assert found.distances[kind].numpy() == pytest.approx(between.numpy(), rel=rel, abs=1e-5), kind
    assert (found.num_sentences, found.num_parsed) == (expected.num_sentences, expected.num_parsed)


@pytest.mark.parametrize(
    "constants",
    [
        {"_MAX_WEIGHTS": 1},
        {"_MAX_WEIGHTS": 10_000},
        {"_WINDOW": 1},
        {"_WINDOW": 7},
        {"_WINDOW": 5, "_MAX_WEIGHTS": 5000},
    ],
    ids=str,
)
def test_batches_and_windows_make_no_difference(
    constants: dict[str, int], model: Transformer, whole: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def observe(*args: Any) -> dict[str, SiteView]:
        sizes.append(len(args[1].sentences))
        return observed(*args)

    observed = measure._observe
    monkeypatch.setattr(measure, "_observe", observe)
    for name, value in constants.items():
        monkeypatch.setattr(measure, name, value)
    assert_same(measure_heads(model, SENTENCES, TextCounts.of(TOKENIZER, SENTENCES)), whole)
    assert sum(sizes) == 24 and len(sizes) > 2
    if constants.get("_MAX_WEIGHTS") == 1 or constants.get("_WINDOW") == 1:
        assert sizes == [1] * 24


def test_the_order_of_sentences_makes_no_difference(model: Transformer, whole: Measured) -> None:
    assert_same(measure_heads(model, SENTENCES[::-1], COUNTS), whole)
    assert_same(measure_heads(model, iter(SENTENCES[12:] + SENTENCES[:12]), COUNTS), whole)


def test_a_text_read_twice_says_the_same(model: Transformer, whole: Measured) -> None:
    twice = measure_heads(model, SENTENCES * 2, COUNTS)
    assert {kind: 2 * number for kind, number in whole.num_queries.items()} == twice.num_queries
    for site, of_site in whole.measures.items():
        for name, values in of_site.items():
            assert twice.measures[site][name] == pytest.approx(values, rel=1e-4, abs=1e-6)


def test_a_sentence_is_measured_by_itself(model: Transformer, whole: Measured) -> None:
    first, second = (measure_heads(model, part, COUNTS) for part in (SENTENCES[:9], SENTENCES[9:]))
    for kind, number in whole.num_queries.items():
        shares = first.num_queries[kind] / number, second.num_queries[kind] / number
        assert sum(shares) == 1
        joined = shares[0] * first.distances[kind] + shares[1] * second.distances[kind]
        assert joined.numpy() == pytest.approx(whole.distances[kind].numpy(), abs=1e-6)
        for site in (name for name in whole.measures if name.startswith(kind[:7]) and name.endswith(kind[8:])):
            # Those that count the same queries as distances do.
            for name in ("top_1", "to_punctuation", "rarest", "diagonal"):
                if name in whole.measures[site]:
                    parts = zip(first.measures[site][name], second.measures[site][name], strict=True)
                    expected = [shares[0] * a + shares[1] * b for a, b in parts]
                    assert whole.measures[site][name] == pytest.approx(expected, rel=1e-4)
    parts = [{score.relation: score for score in part.relations} for part in (first, second)]
    for score in whole.relations:
        there = [part[score.relation] for part in parts if score.relation in part]
        assert score.num_words == sum(part.num_words for part in there)
        for site, values in score.shares.items():
            hits = [sum(part.num_words * part.shares[site][head] for part in there) for head in range(len(values))]
            assert [score.num_words * value for value in values] == pytest.approx(hits)


def test_frequencies_are_all_that_comes_from_the_rest_of_the_text(model: Transformer, whole: Measured) -> None:
    other = TextCounts(source=torch.randperm(TOKENIZER.source_vocab_size), num_sentences=24)
    found = measure_heads(model, SENTENCES, other)
    for site, of_site in whole.measures.items():
        for name, values in of_site.items():
            same = pytest.approx(values, rel=1e-5, abs=1e-7)
            assert (found.measures[site][name] == same) is (name not in ("rarest", "two_rarest")), (site, name)


def test_confidence_is_that_of_the_criterion(model: Transformer, whole: Measured) -> None:
    encoded = [
        (TOKENIZER.encode_source(each.source.text), TOKENIZER.encode_target(each.target.text)) for each in SENTENCES
    ]
    scores = score_heads(model, [collate(encoded)], "confidence")
    for site, values in scores.values.items():
        assert whole.measures[site]["confidence"] == pytest.approx(list(values.values()), rel=1e-5)


def test_what_is_counted(whole: Measured) -> None:
    sources = sum(len(TOKENIZER.encode_source(each.source.text)) - 1 for each in SENTENCES)
    targets = sum(len(TOKENIZER.encode_target(each.target.text)) - 2 for each in SENTENCES)
    assert whole.num_queries == {"encoder.self": sources, "decoder.self": targets, "decoder.cross": targets + 24}
    assert (whole.num_sentences, whole.num_blank, whole.num_long) == (24, 0, 0)
    assert whole.num_parsed == sum(each.source.parse is not None for each in SENTENCES) < 24
    assert {kind: between.shape for kind, between in whole.distances.items()} == dict.fromkeys(
        ("encoder.self", "decoder.self", "decoder.cross"), (8, 8)
    )
    for between in whole.distances.values():
        assert (between <= math.log(2)).all() and torch.equal(between, between.T) and not between.diagonal().any()
    assert whole.uniform.keys() == whole.num_queries.keys()
    assert all(score.shares.keys() == {"encoder.0.self", "encoder.1.self"} for score in whole.relations)


def test_progress_is_told_in_sentences(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_WINDOW", 10)
    told: list[int] = []
    measure_heads(model, SENTENCES, COUNTS, progress=told.append)
    assert told == [10, 10, 4]


# Models


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[SiteView]:
    """What measures are made from, as it comes."""
    seen: list[SiteView] = []

    def keep(*args: Any) -> SiteView:
        seen.append(view_site(*args))
        return seen[-1]

    view_site = measure.view_site
    monkeypatch.setattr(measure, "view_site", keep)
    return seen


def assert_distributions(views: Sequence[SiteView], tolerance: float = 1e-5) -> None:
    assert views
    for view in views:
        rows = view.weights.transpose(1, 2)[view.counted]
        assert (rows >= 0).all() and rows.sum(-1).numpy() == pytest.approx(
            torch.ones(rows.shape[:2]).numpy(), abs=tolerance
        )
        assert (rows > 0).sum(-1).amax(-1).le(view.num_keys[view.counted]).all()


@pytest.mark.parametrize(("name", "options"), EXAMPLES, ids=str)
def test_every_variant_is_measured(
    name: str, options: dict, built: Callable[..., Transformer], views: list[SiteView]
) -> None:
    model = built(attention={"name": name, "options": options})
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for site in model.attention_sites().values():
            for parameter in site.attention.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    found = measure_heads(model, SENTENCES[:6], COUNTS)
    assert_distributions(views)
    assert found.numbers == model.heads()
    assert all(len(values) == 4 for of_site in found.measures.values() for values in of_site.values())


def test_every_kind_of_model_is_measured(
    variant: dict, built: Callable[..., Transformer], views: list[SiteView]
) -> None:
    model = built(**{**variant, "share_embeddings": False})  # the text has a vocabulary for each side
    found = measure_heads(model, SENTENCES[:6], COUNTS)
    assert_distributions(views)
    assert list(found.measures) == model.sites()


REMOVED = {
    "some heads": {"encoder.0.self": [1], "encoder.1.self": [0, 3], "decoder.0.cross": [0, 1, 2]},
    "a whole site": {"encoder.0.self": [0, 1, 2, 3], "decoder.1.cross": [0, 1, 2, 3]},
    "a whole kind": {"decoder.0.self": [0, 1, 2, 3], "decoder.1.self": [0, 1, 2, 3]},
    "all of the encoder": {"encoder.0.self": [0, 1, 2, 3], "encoder.1.self": [0, 1, 2, 3]},
}


@pytest.mark.parametrize("removed", REMOVED.values(), ids=REMOVED)
def test_heads_that_are_gone_are_left_out(removed: dict, model: Transformer) -> None:
    mask = HeadMask.removing(removed, model)
    masked, pruned = (measure_heads(change(model, mask), SENTENCES, COUNTS) for change in (mask_heads, prune_heads))
    assert masked.numbers == mask.to_dict()
    assert_same(pruned, masked)
    for site, of_site in pruned.measures.items():
        assert all(len(values) == 4 - len(removed.get(site, ())) for values in of_site.values())
    for score in pruned.relations:
        assert {site: len(values) for site, values in score.shares.items()} == {
            site: len(heads) for site, heads in mask.to_dict().items() if site.startswith("encoder")
        }
    kinds = {"encoder.self", "decoder.self", "decoder.cross"}
    gone = {"a whole kind": {"decoder.self"}, "all of the encoder": {"encoder.self"}}
    expected = kinds - next((gone.get(name, set()) for name, heads in REMOVED.items() if heads is removed))
    assert pruned.distances.keys() == pruned.num_queries.keys() == expected


def test_a_model_without_heads_is_measured(model: Transformer) -> None:
    bare = prune_heads(model, HeadMask.keeping(dict.fromkeys(model.sites(), []), model))
    found = measure_heads(bare, SENTENCES, COUNTS)
    assert found.num_sentences == 24 and found.distances == {} and found.numbers == dict.fromkeys(model.sites(), [])


def test_first_layers_do_not_depend_on_heads_after_them(model: Transformer, whole: Measured) -> None:
    pruned = prune_heads(model, HeadMask.removing({"encoder.1.self": [0, 1, 2, 3], "decoder.1.cross": [2]}, model))
    found = measure_heads(pruned, SENTENCES, COUNTS)
    assert found.measures["encoder.0.self"]["entropy"] == pytest.approx(whole.measures["encoder.0.self"]["entropy"])
    assert found.measures["decoder.1.self"]["entropy"] != pytest.approx(whole.measures["decoder.1.self"]["entropy"])


def test_bfloat16_weights_give_nearly_the_same(
    built: Callable[..., Transformer], whole: Measured, views: list[SiteView]
) -> None:
    found = measure_heads(built().bfloat16(), SENTENCES, COUNTS)
    assert_distributions(views, tolerance=0.02)
    for site, of_site in whole.measures.items():
        assert found.measures[site]["entropy"] == pytest.approx(of_site["entropy"], abs=0.02)
        assert found.measures[site]["confidence"] == pytest.approx(of_site["confidence"], abs=0.02)


def test_a_gated_model_stays_as_it_was(built: Callable[..., Transformer]) -> None:
    model = built(dropout=0.3, attention_dropout=0.2)
    evaluated = measure_heads(model, SENTENCES, COUNTS)
    model.add_gates("hard_concrete")
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.copy_(torch.tensor([3.0, 1.0, 0.5, 2.0]))
    model.train()
    model.encoder.layers[1].eval()
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = measure_heads(model, SENTENCES, COUNTS)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    # All gates are open where they are rounded, so nothing is dropped or drawn.
    assert_same(found, evaluated)


def test_the_mode_comes_back_after_an_error(built: Callable[..., Transformer]) -> None:
    model = built().train()
    with pytest.raises(ValueError, match="no sentence to measure"):
        measure_heads(model, [], COUNTS)
    assert model.training


# Text


def line(source: str, target: str | None) -> Sentence:
    return Sentence(source=Side.of_text(source), target=None if target is None else Side.of_text(target))


def test_blank_and_long_sentences_are_left_out_and_counted(model: Transformer, whole: Measured) -> None:
    more = [
        line("", "a"),
        line(" \t", None),
        line("a", "  "),
        line("", ""),
        line("ab " * 40, "a"),
        line("a", "gg " * 40),
    ]
    mixed = [*more[:3], *SENTENCES, *more[3:]]
    # Shorter than the made-up ones none is, with the mark that is read with it.
    longest = max(
        max(len(TOKENIZER.encode_source(each.source.text)), len(TOKENIZER.encode_target(each.target.text)) - 1)
        for each in SENTENCES
    )
    found = measure_heads(model, mixed, COUNTS, max_positions=longest)
    assert (found.num_blank, found.num_long) == (4, 2)
    assert_same(found, whole)
    shorter = measure_heads(model, mixed, COUNTS, max_positions=longest - 1)
    assert shorter.num_long > 2 and shorter.num_sentences == 24 + 2 - shorter.num_long


@pytest.mark.parametrize("longer", ["source", "target"])
def test_a_side_is_as_long_as_what_is_read_of_it(longer: str, model: Transformer) -> None:
    # Three pieces and one mark: the end mark of the source, the begin mark of the target.
    text = {"source": ".", "target": "."} | {longer: ". . ."}
    sentences = [line(**text), line(".", ".")]
    assert len(TOKENIZER.encode_source(". . .")) == len(TOKENIZER.encode_target(". . .")) - 1 == 4
    for longest, num_long in ((4, 0), (3, 1)):
        assert measure_heads(model, sentences, COUNTS, max_positions=longest).num_long == num_long


def test_positions_that_are_learned_bound_the_length(built: Callable[..., Transformer]) -> None:
    def source(num: int) -> str:
        return " ".join(["."] * num)

    num = len(TOKENIZER.encode_source(source(6)))
    learned = built(positions="learned", max_positions=num)
    found = measure_heads(learned, [line(source(6), "a"), line(source(7), "a")], COUNTS)
    assert (found.num_sentences, found.num_long) == (1, 1)
    found = measure_heads(learned, [line(source(6), "a"), line(source(5), "a")], COUNTS, max_positions=num - 1)
    assert (found.num_sentences, found.num_long) == (1, 1)
    with pytest.raises(ValueError, match=f"0 are blank on a side, 1 longer than {num} positions; allowed is a text"):
        measure_heads(learned, [line(source(7), "a")], COUNTS)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (
            [],
            "no sentence to measure: 0 are blank on a side, 0 longer than 256 positions; allowed is",
        ),
        ([line("", "a"), line("a", "")], "no sentence to measure: 2 are blank on a side, 0 longer"),
        ([line("a " * 300, "a")], "no sentence to measure: 0 are blank on a side, 1 longer"),
        ([line("a", None)], "sentences: some have no target, and there is nothing to translate them with"),
    ],
    ids=["nothing", "blank", "long", "no target"],
)
def test_a_text_that_cannot_be_measured_is_refused(sentences: list, message: str, model: Transformer) -> None:
    with pytest.raises(ValueError) as error:
        measure_heads(model, sentences, COUNTS)
    assert str(error.value).startswith(message)


def test_wrong_settings_are_refused(built: Callable[..., Transformer]) -> None:
    model = built()
    with pytest.raises(ValueError, match=r"^offsets: \(3, -2\); allowed are"):
        measure_heads(model, SENTENCES, COUNTS, offsets=(3, -2))
    model.tokenizer = None
    with pytest.raises(ValueError, match="^model: has no tokenizer"):
        measure_heads(model, SENTENCES, COUNTS)


def test_sentences_without_a_target_get_the_translation(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_WINDOW", 10)
    asked: list[list[str]] = []

    def translate(lines: Sequence[str]) -> list[str]:
        asked.append(list(lines))
        # Some have an empty translation.
        return ["" if "." in text else text[::-1] for text in lines]

    def without(number: int, each: Sentence) -> Sentence:
        return Sentence(source=each.source, links=each.links) if number % 2 else each

    found = measure_heads(
        model,
        [line("", None), *(without(number, each) for number, each in enumerate(SENTENCES))],
        COUNTS,
        translate=translate,
    )
    odd = [each.source.text for each in SENTENCES[1::2]]
    assert [text for lines in asked for text in lines] == odd and [len(lines) for lines in asked] == [4, 5, 3]
    read = [
        Sentence(source=each.source, target=Side.of_text("" if "." in each.source.text else each.source.text[::-1]))
        if number % 2
        else each
        for number, each in enumerate(SENTENCES)
    ]
    assert_same(found, measure_heads(model, read, COUNTS))
    assert found.num_blank == 1 + sum("." in text for text in odd) > 1
    assert found.num_translated == len(odd)


def test_a_text_is_told_by_its_sentences_however_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(sentences: Sequence[Sentence]) -> str:
        return TextCounts.of(TOKENIZER, sentences).sentences_hash

    plain = [line(each.source.text, each.target.text) for each in SENTENCES]
    expected = hashed(SENTENCES)
    assert hashed(plain) == expected, "trees and links are no text"
    monkeypatch.setattr(measure, "_WINDOW", 7)
    assert hashed(SENTENCES) == expected
    first, second = plain[:2]
    others = [
        plain[:-1],
        [second, first, *plain[2:]],
        [line(first.target.text, first.source.text), *plain[1:]],
        [line(first.source.text, None), *plain[1:]],
        [line(first.source.text, ""), *plain[1:]],
    ]
    assert len({expected, *map(hashed, others)}) == 1 + len(others)


def test_text_without_trees_or_links_has_neither_measure(model: Transformer) -> None:
    found = measure_heads(model, [line(each.source.text, each.target.text) for each in SENTENCES], COUNTS)
    assert found.relations == [] and found.num_parsed == 0
    assert "aligned" not in found.measures["decoder.0.cross"] and "diagonal" in found.measures["decoder.0.cross"]


def test_subtypes_and_offsets_reach_the_relations(model: Transformer) -> None:
    found = measure_heads(model, SENTENCES, COUNTS, subtypes=True, offsets=(-1, -1))
    assert {score.offset for score in found.relations} == {-1}
    assert "nsubj:pass" in {score.relation.name for score in found.relations}


def test_pieces_are_counted_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train([("a b", "x")], kind="words", joint=False)
    sentences = [line("a a b", "x"), line("", "x"), line("b z", None), line("b", "x")]
    for window in (1024, 1, 3):
        monkeypatch.setattr(measure, "_WINDOW", window)
        counts = TextCounts.of(tokenizer, iter(sentences))
        assert counts.num_sentences == 4
        a, b, unknown = (tokenizer.encode_source(word)[0] for word in ("a", "b", "z"))
        assert [int(counts.source[index]) for index in (a, b, unknown)] == [2, 3, 1]
    assert TextCounts.of(tokenizer, []).source.tolist() == [0] * tokenizer.source_vocab_size
