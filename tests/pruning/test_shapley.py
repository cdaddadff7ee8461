"""Shapley values of heads against enumeration of all subsets with masked copies."""

from threading import Event

import pytest
import torch
from criterion_models import assert_close, examples, sentence_losses, small_model
from enumerated import exact_values

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.pruning.criteria import shapley
from prune_lab.pruning.criteria.by_batch import measure_each
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.surgery import mask_heads

TINY = {"encoder_layers": 1, "decoder_layers": 1, "encoder_heads": 2, "decoder_heads": 2, "d_model": 16}
ENDLESS = {"stable_checks": 10**6, "tolerance": 0.0}


def tiny_model():
    """6 heads that matter: weights of untrained heads are too small for that."""
    model = small_model(**TINY).double()
    with torch.no_grad():
        for site in model.attention_sites().values():
            site.attention.output.weight.mul_(6)
            site.attention.query.weight.mul_(3)
    return model


def loss_game(model, batches):
    """Minus the loss per token of a masked copy; coalitions of heads in the order of the sites."""
    heads = [(site, head) for site, numbers in model.heads().items() for head in numbers]
    num_tokens = sum(int((batch.target_ids[:, 1:] != 0).sum()) for batch in batches)
    known = {}

    def value(live):
        if live not in known:
            removed = {}
            for (site, head), is_live in zip(heads, live, strict=True):
                if not is_live:
                    removed.setdefault(site, []).append(head)
            masked = mask_heads(model, HeadMask.removing(removed, model))
            with torch.no_grad():
                known[live] = -sum(float(sentence_losses(masked, b, {}).sum()) for b in batches) / num_tokens
        return known[live]

    return value, heads


def test_values_are_within_a_few_standard_errors_of_those_of_all_subsets():
    model = tiny_model()
    batches = [collate(examples((3, 7))), collate(examples((12,), seed=5))]
    value, heads = loss_game(model, batches)
    exact = exact_values(value, 6)
    scores = score_heads(model, batches, "shapley", max_permutations=2000, **ENDLESS)
    found = scores.settings["estimate"]
    assert found["permutations"] == 2000 and found["evaluations"] <= 64 and found["truncated_share"] == 0
    assert found["loss_of_all"] == pytest.approx(-value((True,) * 6))
    assert found["loss_of_none"] == pytest.approx(-value((False,) * 6))
    total = sum(sum(of_site.values()) for of_site in scores.values.values())
    assert total == pytest.approx(found["loss_of_none"] - found["loss_of_all"], rel=1e-9)
    largest = max(map(abs, exact))
    for (site, head), truth in zip(heads, exact, strict=True):
        error = found["standard_errors"][site][head]
        assert 0 < error < 0.05 * largest
        assert abs(scores.values[site][head] - truth) < 4 * error, f"{site}.{head}"
    assert scores.settings["num_sentences"] == 3 and scores.settings["num_tokens"] == sum((6, 10, 15))


def test_masked_heads_are_no_players_and_sites_may_be_empty():
    model = tiny_model()
    model = mask_heads(model, HeadMask.removing({"decoder.0.self": [0, 1], "encoder.0.self": [1]}, model))
    batches = [collate(examples((3, 7)))]
    value, heads = loss_game(model, batches)
    assert heads == [("encoder.0.self", 0), ("decoder.0.cross", 0), ("decoder.0.cross", 1)]
    scores = score_heads(model, batches, "shapley", max_permutations=600, **ENDLESS)
    errors = scores.settings["estimate"]["standard_errors"]
    for (site, head), truth in zip(heads, exact_values(value, 3), strict=True):
        assert abs(scores.values[site][head] - truth) < 4 * errors[site][head]


def test_twin_heads_get_alike_scores_and_heads_without_an_output_none():
    model = tiny_model()
    with torch.no_grad():
        cross = model.attention_sites()["decoder.0.cross"].attention
        for projection in (cross.query, cross.key, cross.value):
            projection.weight[8:] = projection.weight[:8]
            projection.bias[8:] = projection.bias[:8]
        cross.output.weight[:, 8:] = cross.output.weight[:, :8]
        model.attention_sites()["encoder.0.self"].attention.output.weight[:, :8] = 0
    scores = score_heads(model, [collate(examples((3, 7)))], "shapley", max_permutations=400, **ENDLESS)
    errors = scores.settings["estimate"]["standard_errors"]
    assert scores.values["encoder.0.self"][0] == 0 and errors["encoder.0.self"][0] == 0
    assert scores.values["encoder.0.self"][1] != 0
    first, second = scores.values["decoder.0.cross"].values()
    assert abs(first - second) < 4 * sum(error**2 for error in errors["decoder.0.cross"].values()) ** 0.5
    assert abs(first) > 10 * abs(first - second)


def test_the_encoder_runs_only_when_one_of_its_heads_has_left(monkeypatch):
    model, calls = small_model(), []
    plain = type(model).encode

    def counted(self, *arguments):
        calls.append(1)
        return plain(self, *arguments)

    monkeypatch.setattr(type(model), "encode", counted)
    scores = score_heads(
        model, [collate(examples((3, 7)))], "shapley", max_permutations=1, antithetic=False, check_every=1
    )
    assert scores.settings["estimate"]["evaluations"] == 25
    # All heads, none, before the first step of the permutation at most, and after each of the 8 heads of the encoder.
    assert 9 <= len(calls) <= 11
    errors = scores.settings["estimate"]["standard_errors"]
    assert set(errors) == set(model.sites()) and set(errors["decoder.1.cross"].values()) == {None}


def test_the_model_is_as_it_was_also_after_an_error(monkeypatch):
    model = small_model().train()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    num_calls = 0
    plain = shapley.summed_loss

    def failing(*arguments):
        nonlocal num_calls
        num_calls += 1
        if num_calls > 9:
            raise RuntimeError("no memory")
        return plain(*arguments)

    monkeypatch.setattr(shapley, "summed_loss", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        score_heads(model, [collate(examples((3, 7)))], "shapley")
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())


def test_an_error_in_one_thread_ends_the_walks_of_the_others(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    calls, plain = [], shapley.summed_loss

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 9:
            raise RuntimeError("no memory")
        return plain(*arguments)

    monkeypatch.setattr(shapley, "summed_loss", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        score_heads(small_model(), [collate(examples((3, 7)))], "shapley", antithetic=False)
    # The first walk whose result is waited for, if it is the other one, goes on to its end: 24 steps; no third begins
    # but the one that was waiting for a thread.
    assert len(calls) < 2 + 3 * 24


def test_a_result_that_nobody_waits_for_is_given_up(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    abandoned, ended = Event(), []

    def measure(number):
        if number == 0:
            raise KeyboardInterrupt
        assert abandoned.wait(20)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        list(measure_each(small_model(), range(8), measure, gradients=False, abandoned=abandoned))
    assert set(ended) <= {1, 2}


def test_threads_and_streams_of_batches_change_nothing_and_seeds_do(monkeypatch):
    batches = [collate(examples((3, 7))), collate(examples((5,)))]
    options = {"max_permutations": 6, "check_every": 4}
    found = []
    for num_threads in (1, 2, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)  # noqa: B023
        monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
        found.append(score_heads(tiny_model(), iter(batches), "shapley", **options))
    for other in found[1:]:
        assert_close(other, found[0], 1e-9)
        assert other.settings["estimate"]["permutations"] == found[0].settings["estimate"]["permutations"]
    assert score_heads(tiny_model(), batches, "shapley", seed=1, **options).to_dict() != found[0].to_dict()


def test_the_settings_hold_the_options():
    options = {"max_permutations": 4, "check_every": 2, "stable_correlation": 0.5, "stable_share": 0.25}
    options |= {"stable_checks": 7, "tolerance": 0.5, "antithetic": False, "seed": 9}
    settings = score_heads(tiny_model(), [collate(examples((3,)))], "shapley", **options).settings
    assert {key: settings[key] for key in options} == options
    assert settings["estimate"]["permutations"] == 4 and settings["estimate"]["stable"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_permutations": 0}, "criterion.max_permutations: 0; allowed are even numbers from 2"),
        ({"max_permutations": 5}, "criterion.max_permutations: 5; allowed are even numbers from 2"),
        ({"max_permutations": 0, "antithetic": False}, "criterion.max_permutations: 0; allowed are whole numbers from"),
        ({"check_every": 2.0}, "criterion.check_every: 2.0; allowed are even numbers from 2"),
        ({"stable_checks": 0}, "criterion.stable_checks: 0; allowed are whole numbers from 1"),
        ({"stable_correlation": 1.5}, "criterion.stable_correlation: 1.5; allowed are numbers from -1 to 1"),
        ({"stable_share": -0.1}, "criterion.stable_share: -0.1; allowed are numbers from 0 to 1"),
        ({"tolerance": "0.1"}, "criterion.tolerance: '0.1'; allowed are numbers from 0 to 1"),
        ({"antithetic": 1}, "criterion.antithetic: 1; allowed are true and false"),
        ({"seed": -1}, "criterion.seed: -1; allowed are whole numbers from 0"),
        ({}, "batches: no sentences; Shapley values are measured on at least one"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError) as caught:
        score_heads(tiny_model(), [], "shapley", **options)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_loss_that_overflows_is_an_error_that_names_the_head():
    model = tiny_model()
    with torch.no_grad():
        model.attention_sites()["decoder.0.cross"].attention.output.bias[0] = float("nan")
    with pytest.raises(ValueError, match=r"score of encoder\.0\.self\.0: nan"):
        score_heads(model, [collate(examples((3,)))], "shapley", max_permutations=2)
