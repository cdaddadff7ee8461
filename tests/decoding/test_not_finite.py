"""Searches refuse logits that are NaN or infinite, wherever they come up, and nothing else."""

import pytest
import torch

from prune_lab.decoding.beam_search import beam_search
from prune_lab.decoding.greedy import greedy_search
from prune_lab.decoding.options import DecodingOptions

PAD, BOS, EOS, UNK, A, B = range(6)
MARKS = {"bos_id": BOS, "eos_id": EOS, "forbidden": [PAD, BOS]}
MESSAGE = "^model: its logits are NaN or infinite; allowed are finite numbers"


def search(state, beam_size, limits):
    limits = torch.tensor(limits)
    if beam_size == 1:
        return greedy_search(state, max_lengths=limits, **MARKS)
    return beam_search(state, beam_size=beam_size, length_penalty=0.6, max_lengths=limits, **MARKS)


def broken_after(length, sentence, value):
    """Sentences end at any time before, but one of them breaks after so many tokens."""
    end = 0.2 if length < 3 else 0.001

    def probabilities(number, prefix):
        usual = [0.0, 0.0, end, 0.1, 0.4, 0.5 - end]
        return [value] * 6 if number == sentence and len(prefix) == length else usual

    return probabilities


@pytest.mark.parametrize("beam_size", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 3], ids=["first step", "second step", "at the limit"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 0.0], ids=["nan", "inf", "all -inf"])
def test_one_sentence_of_a_batch_is_enough(scripted_state, beam_size, length, value):
    with pytest.raises(ValueError, match=MESSAGE):
        search(scripted_state(broken_after(length, 1, value), 3), beam_size, [3, 3, 3])


@pytest.mark.parametrize("beam_size", [1, 2, 3])
def test_impossible_tokens_are_no_error(scripted_state, beam_size):
    """Probabilities of 0 are logits of -inf; the end mark, forced at the limit, may be one of them."""

    def never_ends(number, prefix):
        return [0.0, 0.0, 0.0, 0.0, 0.6, 0.4]

    found = search(scripted_state(never_ends, 2), beam_size, [2, 3])
    assert not any(torch.tensor(found.scores).isfinite())


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("products", ["float32", "bfloat16", "int8"])
def test_models_with_such_weights(small_model, sources, beam_size, value, products):
    model, options = small_model(), DecodingOptions(beam_size=beam_size, products=products)
    source_ids = sources((5, 3))
    assert all(torch.tensor(model.search(source_ids, options).scores).isfinite())
    with torch.no_grad():
        model.decoder.layers[1].feed_forward.outer.weight[3, 5] = value
    with pytest.raises(ValueError, match=MESSAGE):
        model.search(source_ids, options)
