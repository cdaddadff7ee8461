"""Beam search against exhaustive search, a plain loop, and a winner computed by hand; independence of batch mates."""

import itertools
import math
import random

import pytest
import torch

from prune_lab.decoding.beam_search import beam_search
from prune_lab.decoding.greedy import greedy_search
from prune_lab.decoding.options import DecodingOptions
from prune_lab.model.stepping import CachedState

PAD, BOS, EOS, UNK, A, B = range(6)
MARKS = {"bos_id": BOS, "eos_id": EOS, "forbidden": [PAD, BOS]}
ALPHAS = (0.0, 0.6, 1.0, 2.5)


def penalty(num_tokens, alpha):
    """((5 + n) / 6)^alpha, n with the end mark."""
    return ((5 + num_tokens) / 6) ** alpha


# Exhaustive search


@torch.no_grad()
def best_of_all(model, source, limit, alpha):
    """The best of all sequences of at most `limit` tokens, scored under teacher forcing; source [S] without padding."""
    best = (-math.inf, ())
    for length in range(limit + 1):
        tokens = [token for token in range(model.config.target_vocab_size) if token not in (PAD, BOS, EOS)]
        sequences = list(itertools.product(tokens, repeat=length))
        targets = torch.tensor([[BOS, *sequence, EOS] for sequence in sequences])
        log_p = model(source.expand(len(sequences), -1), targets[:, :-1]).double().log_softmax(-1)
        scores = log_p.gather(2, targets[:, 1:, None]).sum((1, 2)) / penalty(length + 1, alpha)
        winner = int(scores.argmax())
        best = max(best, (scores[winner].item(), sequences[winner]))
    return best


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("seed", range(4))
def test_equals_exhaustive_search_on_a_tiny_vocabulary(small_model, sources, seed, alpha):
    model = small_model(seed=seed, target_vocab_size=6, encoder_layers=1, decoder_layers=1).double()
    with torch.no_grad():
        # Flat enough for long hypotheses to compete.
        model.output_weight.mul_(0.3)
    lengths = (1, 3, 8, 4, 6)
    source_ids = sources(lengths, seed=seed)
    options = DecodingOptions(beam_size=100, length_penalty=alpha, max_length_a=0, max_length_b=0.5)
    result = model.search(source_ids, options)
    for row, length in enumerate(lengths):
        score, ids = best_of_all(model, source_ids[row, : length + 1], max(1, length // 2), alpha)
        assert result.ids[row] == list(ids)
        assert result.scores[row] == pytest.approx(score, abs=1e-5)


# A plain loop over the documented rule


def random_table(seed, vocabulary, flatness):
    """Probabilities drawn once for each sentence and prefix."""

    def probabilities(sentence, prefix):
        draw = random.Random(f"{seed} {sentence} {prefix}")
        weights = [math.exp(draw.gauss(0, 1) / flatness) for _ in range(vocabulary)]
        return [weight / sum(weights) for weight in weights]

    return probabilities


def by_hand(probabilities, sentence, beam_size, alpha, limit):
    """The rule in the docstring of `beam_search`, one sentence at a time, in Python lists: score, tokens, steps."""
    live, finished = [(0.0, ())], []
    for length in range(limit + 1):
        candidates = [
            (score + math.log(p), prefix, token)
            for score, prefix in live
            for token, p in enumerate(probabilities(sentence, prefix))
            if token not in (PAD, BOS) and (length < limit or token == EOS)
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * beam_size]
        finished += [
            (score / penalty(length + 1, alpha), prefix)
            for score, prefix, token in candidates[:beam_size]
            if token == EOS
        ]
        live = [(score, (*prefix, token)) for score, prefix, token in candidates if token != EOS][:beam_size]
        best = max(finished, default=(-math.inf, ()))
        if len(finished) >= beam_size or not live or live[0][0] / penalty(limit + 1, alpha) <= best[0]:
            break
    return *max(finished), length + 1


@pytest.mark.parametrize("beam_size", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_equals_a_plain_loop_when_sentences_leave_at_different_times(scripted_state, beam_size, alpha):
    limits = [1, 2, 3, 4, 5, 6, 7, 8, 3, 1]
    for flatness in (0.7, 2.0):
        table = random_table(beam_size, 7, flatness)
        state = scripted_state(table, len(limits))
        result = beam_search(
            state, beam_size=beam_size, length_penalty=alpha, max_lengths=torch.tensor(limits), **MARKS
        )
        expected = [by_hand(table, row, beam_size, alpha, limit) for row, limit in enumerate(limits)]
        assert result.ids == [list(ids) for _, ids, _ in expected]
        assert result.scores == pytest.approx([score for score, _, _ in expected], abs=1e-4)
        # Each sentence is in the batch for as many steps as it would need alone.
        num_steps = [sum(row in rows for rows in state.seen) for row in range(len(limits))]
        assert num_steps == [steps for _, _, steps in expected] and min(num_steps) < max(num_steps)


# Winners


def three_ways(sentence, prefix):
    """Ends at once: .2; as A: .5 * .36 = .18; as B B B: .3 * .9 * .9 * .6 = .1458; all else is far behind."""
    row = {
        (): (0.2, 0.5, 0.3),
        (A,): (0.36, 0.32, 0.32),
        (B,): (0.05, 0.05, 0.9),
        (B, B): (0.05, 0.05, 0.9),
        (B, B, B): (0.6, 0.2, 0.2),
    }.get(prefix, (0.01, 0.495, 0.495))
    return [0.0, 0.0, row[0], 0.0, row[1], row[2]]


@pytest.mark.parametrize(
    ("alpha", "winner", "score"),
    [
        (0.0, [], math.log(0.2)),  # the largest plain sum: -1.609 before -1.715 and -1.926
        (0.44, [A], math.log(0.18) / (7 / 6) ** 0.44),  # -1.602 before -1.609 and -1.611
        (1.0, [B, B, B], math.log(0.1458) / 1.5),  # -1.284 before -1.470 and -1.609
    ],
)
@pytest.mark.parametrize("beam_size", [3, 5, 20])
def test_c4_winners_computed_by_hand(scripted_state, beam_size, alpha, winner, score):
    result = beam_search(
        scripted_state(three_ways, 1),
        beam_size=beam_size,
        length_penalty=alpha,
        max_lengths=torch.tensor([3]),
        **MARKS,
    )
    assert result.ids == [winner]
    assert result.scores == pytest.approx([score], abs=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_c4_a_beam_of_one_equals_greedy_search(small_model, scripted_state, sources, alpha):
    model, source_ids = small_model(), sources(range(1, 13))
    limits = torch.arange(2, 14)
    searches = []
    for search, settings in ((greedy_search, {}), (beam_search, {"beam_size": 1})):
        with torch.no_grad():
            state = CachedState(model, source_ids)
            searches.append(search(state, max_lengths=limits, length_penalty=alpha, **MARKS, **settings))
            state = scripted_state(random_table(3, 7, 0.8), 12)
            searches.append(search(state, max_lengths=limits, length_penalty=alpha, **MARKS, **settings))
    for greedy, beam in zip(searches[:2], searches[2:], strict=True):
        assert greedy.ids == beam.ids
        assert greedy.scores == pytest.approx(beam.scores, abs=1e-5)
    by_options = model.search(source_ids, DecodingOptions(beam_size=1, length_penalty=alpha))
    assert by_options.ids == model.generate(source_ids, beam_size=1, length_penalty=alpha)


def never_ends(sentence, prefix):
    return [0.0, 0.0, 1e-6, 0.1, 0.6 - 1e-6, 0.3]


@pytest.mark.parametrize("beam_size", [2, 5, 50])
def test_hypotheses_at_their_limit_are_closed_by_the_end_mark(scripted_state, beam_size):
    limits = torch.tensor([1, 4, 2])
    result = beam_search(
        scripted_state(never_ends, 3), beam_size=beam_size, length_penalty=0.5, max_lengths=limits, **MARKS
    )
    assert result.ids == [[A], [A] * 4, [A] * 2]
    expected = [(n * math.log(0.6 - 1e-6) + math.log(1e-6)) / penalty(n + 1, 0.5) for n in (1, 4, 2)]
    assert result.scores == pytest.approx(expected, abs=1e-4)


def test_a_certain_ending_stops_the_search_at_once(scripted_state):
    state = scripted_state(lambda sentence, prefix: [0.0, 0.0, 0.99, 0.0, 0.006, 0.004], 2)
    result = beam_search(state, beam_size=4, length_penalty=0.0, max_lengths=torch.tensor([50, 50]), **MARKS)
    assert result.ids == [[], []] and len(state.seen) == 1


@pytest.mark.parametrize("beam_size", [7, 41, 60])
def test_beams_larger_than_the_vocabulary(small_model, sources, beam_size):
    model = small_model(target_vocab_size=7)
    wide = model.search(sources((2, 5, 1)), DecodingOptions(beam_size=beam_size), max_length=6)
    assert all(math.isfinite(score) for score in wide.scores)
    uncached = model.search(sources((2, 5, 1)), DecodingOptions(beam_size=beam_size), max_length=6, use_cache=False)
    assert wide.ids == uncached.ids
    one = model.search(sources((2, 5, 1)), DecodingOptions(beam_size=1), max_length=6)
    assert all(best >= greedy - 1e-6 for best, greedy in zip(wide.scores, one.scores, strict=True))


# Batches


@pytest.mark.parametrize("beam_size", [1, 4])
def test_c3_batch_mates_change_nothing(small_model, sources, beam_size):
    model = small_model()
    lengths = [1 + (7 * number) % 12 for number in range(30)]
    source_ids = sources(lengths)
    options = DecodingOptions(beam_size=beam_size)

    def in_batches(size, order):
        ids, scores = [None] * 30, [None] * 30
        for start in range(0, 30, size):
            rows = order[start : start + size]
            longest = max(lengths[row] for row in rows) + 1
            result = model.search(source_ids[rows, :longest], options)
            for row, row_ids, score in zip(rows, result.ids, result.scores, strict=True):
                ids[row], scores[row] = row_ids, score
        return ids, scores

    expected_ids, expected_scores = in_batches(1, list(range(30)))
    assert len({tuple(ids) for ids in expected_ids}) > 10
    shuffled = random.Random(0).sample(range(30), 30)
    for size, order in ((7, list(range(30))), (30, list(range(30))), (7, shuffled), (30, shuffled)):
        ids, scores = in_batches(size, order)
        assert ids == expected_ids
        assert scores == pytest.approx(expected_scores, abs=1e-4)


def test_scores_are_those_of_teacher_forcing(small_model, sources):
    model = small_model()
    lengths = (3, 8, 1, 5)
    source_ids = sources(lengths)
    result = model.search(source_ids, DecodingOptions(beam_size=4, length_penalty=0.6))
    for row, (length, ids, score) in enumerate(zip(lengths, result.ids, result.scores, strict=True)):
        target = torch.tensor([[BOS, *ids, EOS]])
        with torch.no_grad():
            log_p = model(source_ids[row : row + 1, : length + 1], target[:, :-1]).log_softmax(-1)
        total = log_p.gather(2, target[:, 1:, None]).sum().item()
        assert score == pytest.approx(total / penalty(len(ids) + 1, 0.6), abs=1e-4)
