"""What a head has that looks at all keys alike: the mean over heads that each look at one key."""

import pytest
import torch
from made_views import SITES, batch_of, can_read, prescribed_view, random_sentences, words_batch

from prune_lab.analysis.chance import by_chance
from prune_lab.analysis.measure import TextCounts, measure_heads
from prune_lab.analysis.patterns import patterns
from prune_lab.analysis.roles import look
from prune_lab.analysis.text import Sentence, Side
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer

ENCODER, DECODER, CROSS = SITES
# Weights on keys, which a head has that gives all the same weight; and shares of queries.
WEIGHTS = {
    ENCODER: {"top_1", "top_2", "top_5", "to_self", "to_previous", "to_next"},
    DECODER: {"top_1", "top_2", "top_5", "to_self", "to_previous"},
    CROSS: {"top_1", "top_2", "top_5"},
}
SHARES = {
    ENCODER: {"rarest", "two_rarest"},
    DECODER: {"at_begin"},
    CROSS: {"rarest", "two_rarest", "diagonal"},
}


@pytest.mark.parametrize("site", SITES)
def test_weights_are_those_of_a_head_with_equal_weights(site: str) -> None:
    batch = batch_of(random_sentences(12, seed=3))

    def alike(sentence: int, query: int) -> dict[int, float]:
        keys = can_read(site, batch, sentence, query)
        return dict.fromkeys(keys, 1 / len(keys))

    view = prescribed_view(site, batch, alike)
    expected, found = patterns(view), by_chance(view)
    assert found.keys() == WEIGHTS[site] | SHARES[site]
    for name in WEIGHTS[site]:
        values, counted = found[name]
        assert (counted == expected[name].counted).all()
        torch.testing.assert_close(values[:, 0][counted], expected[name].values[:, 0][counted])


@pytest.mark.parametrize("site", SITES)
def test_roles_are_the_mean_over_heads_that_each_look_at_one_key(site: str) -> None:
    batch = batch_of(random_sentences(12, seed=4))
    keys = batch.target if site == DECODER else batch.source
    num_keys = keys.ids.shape[1]
    view = prescribed_view(site, batch, *(lambda _, __, key=key: {key: 1.0} for key in range(num_keys)))
    expected, found = look(view), by_chance(view)
    for name in SHARES[site]:
        values, counted = found[name]
        assert (counted == expected[name].counted).all() and counted.any()
        for sentence, query in counted.nonzero().tolist():
            readable = can_read(site, batch, sentence, query)
            hits = expected[name].values[sentence, readable, query]
            assert float(values[sentence, 0, query]) == pytest.approx(float(hits.mean())), (name, sentence, query)


def test_equally_rare_pieces_all_count() -> None:
    batch = words_batch(("a b c", "x"), ("a a", "x"))
    values, counted = by_chance(prescribed_view(ENCODER, batch, lambda _, __: {0: 1.0}))["rarest"]
    # b and c of a, b, c and the end mark; both a of two and the end mark.
    assert values[0, 0][counted[0]].tolist() == [0.5] * 3
    assert values[1, 0][counted[1]].tolist() == pytest.approx([2 / 3] * 2)


def test_a_text_has_the_means_of_each_kind() -> None:
    pairs = [("a b c", "x y"), ("a a", "y")]
    tokenizer = Tokenizer.train(pairs, kind="words", joint=False)
    config = ModelConfig(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        d_model=8,
        encoder_layers=2,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=1,
        d_feed_forward=8,
    )
    model = Transformer(config)
    model.tokenizer = tokenizer
    sentences = [Sentence(source=Side.of_text(source), target=Side.of_text(target)) for source, target in pairs]
    found = measure_heads(model, sentences, TextCounts.of(tokenizer, sentences)).uniform
    assert list(found) == ["encoder.self", "decoder.self", "decoder.cross"]
    # Three queries with four keys, two with three.
    assert found["encoder.self"]["top_1"] == pytest.approx((3 / 4 + 2 / 3) / 5)
    assert found["encoder.self"]["top_5"] == 1
    assert found["encoder.self"]["to_self"] == found["encoder.self"]["to_next"] == found["encoder.self"]["top_1"]
    # The first of each sentence has no key before it; y of the first sentence reads three keys.
    assert found["encoder.self"]["to_previous"] == pytest.approx((2 / 4 + 1 / 3) / 3)
    assert found["decoder.self"]["to_previous"] == found["decoder.self"]["to_self"]
    assert found["encoder.self"]["rarest"] == pytest.approx((3 * 2 / 4 + 2 * 2 / 3) / 5)
    # x and y read two keys and three, the other y two; the last y of the first is further away than one position.
    assert found["decoder.self"]["top_1"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 3)
    assert found["decoder.self"]["at_begin"] == pytest.approx(1 / 3)
    # Begin mark and pieces: three queries with four keys, two with three.
    assert found["decoder.cross"]["top_2"] == pytest.approx((3 * 2 / 4 + 2 * 2 / 3) / 5)
