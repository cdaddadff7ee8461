"""Greedy search against a loop over single sentences, and what its limits do."""

import pytest
import torch

from prune_lab.decoding.greedy import greedy_search
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions

PAD, BOS, EOS, UNK, A, B = range(6)
LENGTHS = (3, 9, 1, 6, 2)


@torch.no_grad()
def one_by_one(model, source, limit):
    """The most probable token of the whole prefix, again and again, for a source [S] without padding."""
    ids, score = [BOS], 0.0
    while ids[-1] != EOS:
        log_p = model(source[None], torch.tensor([ids]))[0, -1].double().log_softmax(-1)
        allowed = [token for token in range(len(log_p)) if token not in (PAD, BOS)]
        token = EOS if len(ids) - 1 == limit else max(allowed, key=lambda token: log_p[token].item())
        score += log_p[token].item()
        ids.append(token)
    return ids[1:-1], score


def test_equals_a_loop_over_single_sentences(small_model, variant, sources):
    model = small_model(**variant).double()
    source_ids = sources(LENGTHS)
    options = DecodingOptions(beam_size=1, length_penalty=0.7, max_length_a=2, max_length_b=0.5)
    result = model.search(source_ids, options)
    for row, length in enumerate(LENGTHS):
        ids, score = one_by_one(model, source_ids[row, : length + 1], limit=2 + length // 2)
        assert result.ids[row] == ids
        assert result.scores[row] == pytest.approx(score / ((5 + len(ids) + 1) / 6) ** 0.7, abs=1e-5)


def ends_after(*lengths):
    """Sentence n ends by itself after lengths[n] tokens A."""

    def probabilities(sentence, prefix):
        end = 0.7 if len(prefix) >= lengths[sentence] else 0.1
        return [0.0, 0.0, end, 0.05, 0.95 - end - 0.05, 0.05]

    return probabilities


def test_sentences_leave_when_they_end(scripted_state):
    state = scripted_state(ends_after(2, 0, 5, 1), 4)
    result = greedy_search(state, max_lengths=torch.tensor([9, 9, 3, 9]), bos_id=BOS, eos_id=EOS, forbidden=[PAD, BOS])
    assert result.ids == [[A, A], [], [A, A, A], [A]]
    assert state.seen == [[0, 1, 2, 3], [0, 2, 3], [0, 2], [2]]
    a, forced, chosen = (torch.tensor(p).log().item() for p in (0.8, 0.1, 0.7))
    assert result.scores == pytest.approx([2 * a + chosen, chosen, 3 * a + forced, a + chosen], abs=1e-5)


def test_one_token_is_the_shortest_limit(small_model, scripted_state, sources):
    state = scripted_state(ends_after(5, 0), 2)
    result = greedy_search(state, max_lengths=torch.tensor([1, 1]), bos_id=BOS, eos_id=EOS, forbidden=[PAD, BOS])
    assert result.ids == [[A], []]
    assert all(len(ids) <= 1 for ids in small_model().generate(sources(LENGTHS), beam_size=1, max_length=1))


def test_forbidden_tokens_are_never_chosen(scripted_state):
    def mostly_marks(sentence, prefix):
        return [0.4, 0.4, 0.01, 0.05, 0.1, 0.04]

    result = greedy_search(
        scripted_state(mostly_marks, 1), max_lengths=torch.tensor([3]), bos_id=BOS, eos_id=EOS, forbidden=[PAD, BOS]
    )
    assert result.ids == [[A, A, A]]
    # Probabilities are those of the whole vocabulary, as in training.
    expected = torch.tensor([0.1, 0.1, 0.1, 0.01], dtype=torch.float64).log().sum().item()
    assert result.scores == pytest.approx([expected], abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_limit_is_a_plus_b_times_the_source_length(small_model, sources, beam_size):
    model = small_model()
    with torch.no_grad():
        # The end mark's logit is the smallest by far: no hypothesis ends before its limit.
        model.decoder.norm.bias.copy_(torch.nn.functional.normalize(model.output_weight[EOS], dim=0) * -50)
    options = DecodingOptions(beam_size=beam_size, max_length_a=2, max_length_b=1.5)
    lengths = [len(ids) for ids in model.search(sources(LENGTHS, extra_padding=4), options).ids]
    assert lengths == [2 + int(1.5 * length) for length in LENGTHS]
    assert [len(ids) for ids in model.generate(sources(LENGTHS), beam_size=beam_size, max_length=4)] == [4] * 5
    default = [len(ids) for ids in model.generate(sources(LENGTHS), beam_size=beam_size)]
    assert default == [10 + int(1.5 * length) for length in LENGTHS]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("max_length", [0, -1, 2.7, True])
def test_a_limit_that_is_no_whole_number_from_one_is_refused(small_model, sources, beam_size, max_length):
    with pytest.raises(ValueError, match=f"max_length: {max_length}; allowed are whole numbers from 1"):
        small_model().generate(sources([3]), beam_size=beam_size, max_length=max_length)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_learned_positions_bound_the_length(small_model, sources, beam_size):
    model = small_model(positions="learned", max_positions=8)
    source_ids = sources((3, 7, 1))
    bounded = model.generate(source_ids, beam_size=beam_size, max_length=100)
    assert bounded == model.generate(source_ids, beam_size=beam_size, max_length=7)
    assert max(map(len, bounded)) <= 7
    assert bounded == model.generate(source_ids, beam_size=beam_size, max_length=100, use_cache=False)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_logits_that_are_no_numbers_end_in_an_error(small_model, sources, beam_size):
    model = small_model()
    with torch.no_grad():
        model.output_weight[7].fill_(float("nan"))
    with pytest.raises(ValueError, match="model: its logits are NaN or infinite"):
        model.generate(sources(LENGTHS), beam_size=beam_size)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 0}, "decoding.beam_size: 0; allowed are whole numbers from 1"),
        ({"beam_size": 2.0}, "decoding.beam_size: 2.0; allowed are whole numbers from 1"),
        ({"beam_size": True}, "decoding.beam_size: True; allowed are whole numbers from 1"),
        ({"length_penalty": -0.1}, "decoding.length_penalty: -0.1; allowed are numbers from 0"),
        ({"length_penalty": "0.6"}, "decoding.length_penalty: '0.6'; allowed are numbers from 0"),
        ({"length_penalty": float("nan")}, "decoding.length_penalty: nan; allowed are numbers from 0"),
        ({"max_length_a": None}, "decoding.max_length_a: None; allowed are numbers from 0"),
        (
            {"max_length_b": -1},
            "decoding.max_length_a and max_length_b: 10 and -1; allowed are numbers from 0, not both 0",
        ),
        ({"max_length_a": 0, "max_length_b": 0}, "decoding.max_length_a and max_length_b: 0 and 0"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError) as caught:
        DecodingOptions(**settings)
    assert str(caught.value).startswith(message)


def test_c4_a_record_spells_out_formula_and_stop_rule():
    record = DecodingOptions(beam_size=4, length_penalty=0.8).to_record()
    assert record["search"] == "beam" and record["beam_size"] == 4 and record["length_penalty"] == 0.8
    assert record["length_penalty_formula"] == "sum log P / ((5 + n) / 6)^alpha, n target tokens with the end mark"
    assert record["max_length_a"] == 10 and record["max_length_b"] == 1.5
    assert "a + b * S" in record["max_length_formula"] and "beam_size hypotheses finished" in record["stop_rule"]
    assert DecodingOptions(beam_size=1).to_record()["search"] == "greedy"


@pytest.mark.parametrize("name", ["beam_size", "length_penalty", "max_length_a", "max_length_b"])
def test_settings_that_no_search_could_hold_are_refused(name):
    with pytest.raises(ValueError, match=f"^decoding.{name}: {10**19}; allowed are numbers up to "):
        DecodingOptions(**{name: 10**19})


def test_generate_has_the_defaults_of_the_options(small_model, sources):
    model = small_model()
    assert model.generate(sources(LENGTHS)) == model.search(sources(LENGTHS), DEFAULT_DECODING).ids
