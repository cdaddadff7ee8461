"""Caches: what is kept of the past equals reading it again.

Shapes: N sentences, E hypotheses a sentence, S cached entries, H heads, K head width.
"""

import pytest
import torch

from prune_lab.attention.cache import FixedCache, GrowingCache
from prune_lab.decoding.cache import Ancestry
from prune_lab.decoding.options import DecodingOptions
from prune_lab.heads import HeadMask
from prune_lab.model.stepping import CachedState, UncachedState
from prune_lab.pruning.surgery import mask_heads, prune_heads


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a7_a_pruned_model_decodes_the_same_with_and_without_a_cache(small_model, sources, beam_size):
    model = small_model()
    kept = {"encoder.1.self": [2], "decoder.1.self": [0], "decoder.0.cross": [1, 3], "decoder.1.cross": [0, 1, 3]}
    model = prune_heads(model, HeadMask.keeping(kept, model))
    counts = [len(heads) for heads in model.heads().values()]
    assert counts == [4, 1, 4, 2, 1, 3]
    source_ids = sources([1 + (5 * number) % 11 for number in range(50)])
    options = DecodingOptions(beam_size=beam_size)
    cached = model.search(source_ids, options, max_length=12)
    uncached = model.search(source_ids, options, max_length=12, use_cache=False)
    assert cached.ids == uncached.ids
    assert cached.scores == pytest.approx(uncached.scores, abs=1e-4)
    assert len({tuple(ids) for ids in cached.ids}) > 15


@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_kind_of_model_decodes_the_same_with_and_without_a_cache(small_model, variant, sources, beam_size):
    model = small_model(**variant)
    masked = mask_heads(model, HeadMask.removing({"encoder.0.self": [0], "decoder.0.self": [0, 1]}, model))
    for either in (model, masked):
        cached, uncached = (
            either.generate(sources((4, 9, 2)), beam_size=beam_size, max_length=9, use_cache=use_cache)
            for use_cache in (True, False)
        )
        assert cached == uncached


@torch.no_grad()
def test_logits_are_equal_whatever_the_beam_does(small_model, variant, sources):
    model = small_model(**variant).double()
    source_ids = sources((4, 9, 2, 6))
    states = CachedState(model, source_ids), UncachedState(model, source_ids)
    generator = torch.Generator().manual_seed(0)
    num_sentences, num_beams = 4, 1
    for position in range(40):
        last = torch.randint(3, 41, (num_sentences, num_beams), generator=generator)
        cached, uncached = (state.step(last) for state in states)
        torch.testing.assert_close(cached, uncached, rtol=0, atol=1e-10)
        wider = (1, 3, 5, 2, 4)[position % 5]
        parents = torch.randint(0, num_beams, (num_sentences, wider), generator=generator)
        for state in states:
            state.reorder(parents)
        num_beams = wider
        if position in (3, 11, 12):
            rows = torch.randperm(num_sentences, generator=generator)[:-1]
            for state in states:
                state.select(rows)
            num_sentences -= 1


def test_keys_of_the_source_are_computed_once_a_sentence(small_model, sources):
    model, calls = small_model(), []
    site = model.attention_sites()["decoder.0.cross"]
    for name in ("split_queries", "split_keys", "split_values"):
        split = getattr(site.attention, name)
        site.attention.__dict__[name] = lambda given, name=name, split=split: calls.append(name) or split(given)
    state = CachedState(model, sources((4, 2)))
    for num_beams in (1, 3, 3):
        state.step(torch.full((2, num_beams), 5))
        state.reorder(torch.zeros(2, 3, dtype=torch.long))
    assert [calls.count(f"split_{what}") for what in ("queries", "keys", "values")] == [3, 1, 1]
    keys, values = state._caches["decoder.0.cross"].entries
    # Of the 16 positions 11 are there for speed alone.
    assert keys.shape == values.shape == (2, 4, 16, 8)


def test_ancestry_follows_every_hypothesis_to_its_start():
    generator = torch.Generator().manual_seed(1)
    ancestry, num_entries, num_beams = Ancestry(2, torch.device("cpu")), 0, 1
    histories = [[set()], [set()]]
    for step in range(12):
        mask = ancestry.grow()
        for sentence in histories:
            for beam, history in enumerate(sentence):
                history.add(num_entries + beam)
        num_entries += num_beams
        if mask is None:
            assert num_beams == 1 and num_entries == step + 1
        else:
            expected = [[[entry in seen for entry in range(num_entries)] for seen in rows] for rows in histories]
            assert mask.shape == (2, 1, num_beams, num_entries) and mask[:, 0].tolist() == expected
        num_beams = (1, 1, 3, 2, 5)[step % 5]
        parents = torch.randint(0, len(histories[0]), (2, num_beams), generator=generator)
        ancestry.reorder(parents)
        histories = [[set(rows[beam]) for beam in row] for rows, row in zip(histories, parents.tolist(), strict=True)]
    assert ancestry.num_steps == 12
    ancestry.select(torch.tensor([1]))
    assert ancestry.grow().shape == (1, 1, num_beams, num_entries + num_beams)


@pytest.mark.parametrize("capacity", [1, 3, 64])
def test_a_growing_cache_holds_all_entries_in_order(capacity):
    torch.manual_seed(0)
    cache, all_keys, all_values = GrowingCache(capacity), [], []
    for step in range(20):
        keys, values = torch.randn(2, 3, 4, 1 + step % 3, 8)[:, :].unbind(0)
        keys, values = keys.contiguous(), values.contiguous()
        if step in (5, 6):
            cache.select(torch.tensor([2, 0]) if step == 5 else torch.tensor([1]))
            rows = [2, 0] if step == 5 else [1]
            all_keys, all_values = ([tensor[rows] for tensor in tensors] for tensors in (all_keys, all_values))
        num = 3 if step < 5 else 2 if step == 5 else 1
        all_keys.append(keys[:num])
        all_values.append(values[:num])
        seen_keys, seen_values = cache.append(keys[:num], values[:num])
        assert torch.equal(seen_keys, torch.cat(all_keys, dim=2))
        assert torch.equal(seen_values, torch.cat(all_values, dim=2))
    assert cache.num_steps == 20


def test_caches_can_be_cut_before_they_hold_anything():
    for cache in (GrowingCache(), FixedCache()):
        cache.select(torch.tensor([0]))
    fixed = FixedCache()
    fixed.entries = (torch.arange(3.0)[:, None], torch.arange(3.0)[:, None])
    fixed.select(torch.tensor([2, 1]))
    assert fixed.entries[0][:, 0].tolist() == fixed.entries[1][:, 0].tolist() == [2, 1]
