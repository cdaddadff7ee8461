"""What chance gives: the mean of what heads have that look at one key each, over all keys."""

import pytest
import torch
from constructed_model import LENGTHS, constructed_model, made_text
from made_views import SITES, batch_of, can_read, prescribed_view, random_sentences

from prune_lab.analysis.chance import by_chance
from prune_lab.analysis.measure import TextCounts, measure_heads
from prune_lab.analysis.patterns import patterns
from prune_lab.analysis.roles import look

WEIGHTS = {
    "encoder.0.self": ("top_1", "top_2", "top_5", "to_self", "to_previous", "to_next"),
    "decoder.0.self": ("top_1", "top_2", "top_5", "to_self", "to_previous"),
    "decoder.0.cross": ("top_1", "top_2", "top_5"),
}
SHARES = {
    "encoder.0.self": {"rarest", "two_rarest"},
    "decoder.0.self": {"at_begin"},
    "decoder.0.cross": {"rarest", "two_rarest", "diagonal"},
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_means_over_all_keys(site: str, seed: int) -> None:
    batch = batch_of(random_sentences(6, seed))
    keys = {
        (sentence, query): can_read(site, batch, sentence, query)
        for sentence in range(6)
        for query in range((batch.source if site.startswith("encoder") else batch.target).ids.shape[1])
    }
    view = prescribed_view(site, batch, lambda *query: {key: 1 / len(keys[query]) for key in keys[query]})
    found = by_chance(view)
    assert found.keys() == {*WEIGHTS[site], *SHARES[site]}
    for name in SHARES[site]:
        total = torch.zeros(view.counted.shape)
        for key in range(view.weights.shape[3]):
            at_key = prescribed_view(
                site, batch, lambda *query, key=key: {key: 1.0} if key in keys[query] else {0: 1.0}
            )
            reads = torch.tensor([[key in keys[row, place] for place in range(total.shape[1])] for row in range(6)])
            total += look(at_key)[name].values[:, 0] * reads
        counted = look(view)[name].counted
        assert torch.equal(found[name].counted, counted)
        expected = total[counted] / view.num_keys[counted]
        assert found[name].values[:, 0][counted].tolist() == pytest.approx(expected.tolist())
    for name in WEIGHTS[site]:
        values, counted = patterns(view)[name]
        assert torch.equal(found[name].counted, counted)
        assert found[name].values[:, 0][counted].tolist() == pytest.approx(values[:, 0][counted].tolist())


def test_a_text_on_which_it_is_known() -> None:
    sentences = made_text()
    model = constructed_model(sentences, "pre")
    found = measure_heads(model, sentences, TextCounts.of(model.tokenizer, sentences)).uniform

    def mean(pairs: list[tuple[float, int]]) -> float:
        return sum(share for share, _ in pairs) / sum(number for _, number in pairs)

    # One piece of each sentence is the rarest, of its n words and the end mark.
    assert found["encoder.self"]["rarest"] == pytest.approx(mean([(n / (n + 1), n) for n in LENGTHS]))
    assert found["decoder.cross"]["rarest"] == pytest.approx(mean([(1, n + 1) for n in LENGTHS]))
    # The first and the last of n + 1 positions have one neighbour, the others two.
    assert found["decoder.cross"]["diagonal"] == pytest.approx(mean([((3 * n + 1) / (n + 1), n + 1) for n in LENGTHS]))
    begin = [(sum(1 / keys for keys in range(3, n + 2)), n - 1) for n in LENGTHS]
    assert found["decoder.self"]["at_begin"] == pytest.approx(mean(begin))
