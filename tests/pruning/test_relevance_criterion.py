"""Relevance as a criterion: means over decoding steps, against plain loops over sentences."""

import pytest
import torch
from criterion_models import assert_close, examples, flat, gated_model, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.model.relevance import head_relevance
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.surgery import mask_heads, prune_heads


def steps_of(model, pairs):
    """The relevances of all steps of all sentences, one after the other: site -> [steps, H]."""
    rows = {name: [] for name in model.sites()}
    for pair in pairs:
        for name, relevances in head_relevance(model, collate([pair])).heads.items():
            rows[name].extend(relevances[0])
    return {name: torch.stack(of_site) for name, of_site in rows.items()}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_means_over_the_steps_of_single_sentences(norm):
    model, pairs = small_model(norm=norm).double(), examples((2, 5, 9))
    rows = steps_of(model, pairs)
    expected = {
        "absolute": lambda row: row.abs() / row.abs().sum(),
        "sum": lambda row: row / row.sum(),
        "none": lambda row: row.abs(),
    }
    for share, of_step in expected.items():
        scores = score_heads(model, [collate(pairs[:1]), collate(pairs[1:])], "relevance", share=share)
        for site, of_heads in scores.values.items():
            mean = torch.stack([of_step(row) for row in rows[site]]).mean(0)
            assert list(of_heads.values()) == pytest.approx(mean.tolist(), rel=1e-9, abs=1e-12), (share, site)
            if share != "none":
                assert sum(of_heads.values()) == pytest.approx(1)
        assert scores.settings == {"share": share, "num_sentences": 3, "num_steps": 5 + 8 + 12}


def test_padding_batch_split_and_repetition_do_not_change_the_scores():
    model, pairs = small_model(), examples()
    together = score_heads(model, [collate(pairs)], "relevance")
    assert_close(score_heads(model, [collate([pair]) for pair in pairs], "relevance"), together, 1e-4)
    twice = score_heads(model, [collate(pairs), collate(pairs[3:]), collate(pairs[:3])], "relevance")
    assert_close(twice, together, 1e-4)
    assert twice.settings["num_sentences"] == 16
    assert twice.settings["num_steps"] == 2 * together.settings["num_steps"]


@pytest.mark.parametrize("share", ["absolute", "sum", "none"])
def test_masked_equals_pruned_and_closed_heads_score_nothing(share):
    model, batches = gated_model().double(), [collate(examples((3, 8)))]
    gone = HeadMask.removing({"encoder.1.self": [1, 2], "decoder.0.cross": range(4), "decoder.1.self": [3]}, model)
    masked, pruned = (
        score_heads(each(model, gone), batches, "relevance", share=share) for each in (mask_heads, prune_heads)
    )
    assert_close(masked, pruned, 1e-9)
    assert {site: list(of_heads) for site, of_heads in masked.values.items()} == gone.to_dict()
    assert all(of_heads[0] == 0 for of_heads in pruned.values.values() if 0 in of_heads), "closed gates"


def test_threads_that_share_the_batches_change_nothing(monkeypatch):
    batches = [collate(examples((3, 7, 12), seed=seed)) for seed in range(5)]
    found = []
    for num_threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)  # noqa: B023
        monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
        found.append(score_heads(small_model(), batches, "relevance"))
    torch.testing.assert_close(flat(found[0]), flat(found[1]), rtol=1e-5, atol=1e-9)


def test_other_shares_are_refused():
    with pytest.raises(ValueError, match="criterion.share: 'l2'; allowed are absolute, sum, none"):
        score_heads(small_model(), [collate(examples())], "relevance", share="l2")
    with pytest.raises(ValueError, match="batches: no sentences; relevance is measured on at least one"):
        score_heads(small_model(), [], "relevance")
