"""Gates as they train: how many a weight closes, when a user is warned, and what the evaluated model is."""

import json
import warnings

import pytest
import torch
import yaml

from prune_lab.commands.help import config_directory
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.generate import translate_lines
from prune_lab.gates.penalty import L0Penalty
from prune_lab.gates.target import TargetPenalty
from prune_lab.heads import HeadMask
from prune_lab.pruning.surgery import mask_heads, prune_heads
from prune_lab.training.checkpoint import load_model


def num_open(model) -> int:
    return sum(map(len, model.open_heads().values()))


@pytest.fixture(scope="module")
def pruned_run(task, train, tmp_path_factory):
    """A run whose weight closes some of the 24 gates."""
    directory = tmp_path_factory.mktemp("medium")
    model = task.model(gated=True, dropout=0.1)
    penalty = L0Penalty(weight=0.05)
    result = train(model, directory, max_steps=40, penalty=penalty, gate_learning_rate=0.3, keep="last")
    return result.model, directory


def test_b1_a_medium_weight_closes_some_gates(pruned_run):
    model, directory = pruned_run
    assert 0 < num_open(model) < 24
    rows = [json.loads(line) for line in (directory / "gates.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["update"] for row in rows] == [10, 20, 30, 40]
    assert rows[-1]["open"] == num_open(model)
    assert rows[-1]["p_open"] == {site: gate.p_open().tolist() for site, gate in model.gates().items()}
    assert rows[0]["open"] > rows[-1]["open"]


def test_b1_a_huge_weight_closes_all_gates(task, train, tmp_path):
    model = task.model(gated=True)
    train(model, tmp_path, penalty=L0Penalty(weight=100.0), gate_learning_rate=0.5, keep="last")
    assert num_open(model) == 0
    assert all((gate.p_open() < 0.2).all() for gate in model.gates().values())


def test_b1_weight_0_is_no_penalty(task, train, tmp_path):
    def trained(penalty):
        model = task.model(gated=True, dropout=0.1)
        return train(model, tmp_path / str(penalty is None), penalty=penalty, keep="last").model.state_dict()

    torch.testing.assert_close(trained(L0Penalty(weight=0)), trained(None), rtol=0, atol=0)


def test_b1_gates_that_stay_put_under_a_penalty_are_told(task, train, tmp_path):
    with pytest.warns(
        UserWarning, match="24 gates were open at each of the last 5 evaluations, 2 updates apart"
    ) as caught:
        penalty = L0Penalty(weight=1e-7)
        train(
            task.model(gated=True),
            tmp_path,
            max_steps=10,
            gate_every=2,
            validate_every=3,
            penalty=penalty,
            gate_learning_rate=1e-6,
        )
    (message,) = [str(entry.message) for entry in caught if "gates were open" in str(entry.message)]
    assert "penalty.weight 1e-07" in message and "gates.learning_rate 1e-06" in message and "\n" not in message


def test_gates_are_evaluated_apart_from_validation_and_with_it(task, train, tmp_path):
    for max_steps in (10, 13):
        train(task.model(gated=True), tmp_path, max_steps=max_steps, gate_every=4, validate_every=5)
    gates, validation = (
        [json.loads(line)["update"] for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()]
        for name in ("gates.jsonl", "validation.jsonl")
    )
    assert (gates, validation) == ([4, 5, 8, 10, 12, 13], [5, 10, 13])


@pytest.mark.parametrize("weight", [None, 0.0])
def test_b1_without_a_penalty_nobody_expects_gates_to_move(task, train, tmp_path, weight):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*gates were open.*")
        penalty = None if weight is None else L0Penalty(weight=weight)
        train(task.model(gated=True), tmp_path, max_steps=6, gate_every=1, penalty=penalty)


def test_b1_the_warning_counts_gates_and_not_other_heads(task, train, tmp_path):
    model = task.model()
    model.add_gates("hard_concrete", kinds=["encoder.self"])
    with pytest.warns(UserWarning, match="8 gates were open at each of the last 5 evaluations"):
        penalty = L0Penalty(weight=1e-7)
        train(model, tmp_path, max_steps=5, gate_every=1, penalty=penalty, gate_learning_rate=1e-6)


def test_the_shipped_fixed_gates_stay_as_they_are_and_are_saved(task, train, tmp_path):
    shipped = yaml.safe_load((config_directory() / "gates" / "fixed.yaml").read_text(encoding="utf-8"))
    model = task.model()
    model.add_gates(shipped["name"], shipped["kinds"], shipped["options"])
    assert model.gates().keys() == set(model.sites())
    for gate in model.gates().values():
        assert gate.factors.tolist() == [1] * 4
        gate.factors.copy_(torch.tensor([1, 0.5, 0.25, 0]))
    before = model.source_table.weight.detach().clone()
    train(model, tmp_path, max_steps=3, penalty=L0Penalty(weight=0), average_decay=0.9)
    model.save_pretrained(tmp_path / "export")
    assert not torch.equal(model.source_table.weight, before)
    loaded = load_model(tmp_path / "export")
    assert all(gate.factors.tolist() == [1, 0.5, 0.25, 0] for gate in loaded.gates().values())
    assert num_open(loaded) == 18


def test_b2_two_evaluations_of_one_checkpoint_are_identical(task, pruned_run):
    _, directory = pruned_run
    model = load_model(directory / "last.ckpt")
    options = DecodingOptions(beam_size=2)
    state = torch.get_rng_state()
    one, two = (translate_lines(model, task.data.validation.sources, options) for _ in range(2))
    assert (one.lines, one.scores) == (two.lines, two.scores)
    assert torch.equal(torch.get_rng_state(), state)
    other = translate_lines(load_model(directory / "last.ckpt"), task.data.validation.sources, options)
    assert other.scores == one.scores


def test_b2_gated_masked_and_pruned_models_translate_alike(task, pruned_run):
    model, _ = pruned_run
    mask = HeadMask.keeping(model.open_heads(), model)
    masked, pruned = mask_heads(model, mask), prune_heads(model, mask, keep_gates=False)
    assert num_open(masked) == num_open(pruned) == num_open(model)
    for beam_size in (1, 4):
        options = DecodingOptions(beam_size=beam_size)
        lines = [translate_lines(m, task.data.validation.sources, options).lines for m in (model, masked, pruned)]
        assert lines[0] == lines[1] == lines[2]


def test_the_weight_average_leaves_the_trained_gates_as_they_are(task, train, tmp_path):
    model = task.model(gated=True)
    penalty = L0Penalty(weight=0.5)
    # Gates close faster than an average of this decay could follow.
    train(model, tmp_path, penalty=penalty, gate_learning_rate=0.3, average_decay=0.999, keep="last")
    model.save_pretrained(tmp_path / "export")
    gates, validation = (
        json.loads((tmp_path / name).read_text(encoding="utf-8").splitlines()[-1])
        for name in ("gates.jsonl", "validation.jsonl")
    )
    export = load_model(tmp_path / "export")
    assert gates["open"] < 24
    assert (
        gates["open"]
        == validation["remaining_heads"]
        == num_open(export)
        == num_open(load_model(tmp_path / "last.ckpt"))
    )
    assert gates["p_open"] == {site: gate.p_open().tolist() for site, gate in export.gates().items()}


@pytest.mark.parametrize(("anneal_updates", "is_told"), [(4, False), (5, True)])
def test_a_training_that_ends_before_the_choice_of_subset_gates_is_hard_is_told(
    task, train, tmp_path, caplog, anneal_updates, is_told
):
    model = task.model()
    model.add_gates("subset", options={"keep": 6, "anneal_updates": anneal_updates})
    train(model, tmp_path, max_steps=4, keep="last")
    told = [message for message in caplog.messages if message.startswith("gates.options.anneal_updates: 5, but ")]
    assert len(told) == is_told
    caplog.clear()
    train(model, tmp_path, max_steps=4, keep="last")
    assert not caplog.messages, "nothing is trained again"


def test_a_target_is_trained_beside_the_gates_and_goes_on_where_it_stopped(task, train, tmp_path):
    def trained(place, *lengths):
        model = task.model(gated=True, dropout=0.1)
        for max_steps in lengths:
            penalty = TargetPenalty(heads=12, learning_rate=0.5)
            result = train(
                model, tmp_path / place, max_steps=max_steps, penalty=penalty, gate_learning_rate=0.3, keep="last"
            )
        return result.model, penalty

    whole, at_once = trained("whole", 40)
    assert at_once.multipliers.detach().abs().min() > 0.1 and num_open(whole) < 24
    in_two, later = trained("parts", 20, 40)
    torch.testing.assert_close(later.multipliers, at_once.multipliers, rtol=0, atol=0)
    torch.testing.assert_close(in_two.state_dict(), whole.state_dict(), rtol=0, atol=0)
    assert load_model(tmp_path / "whole" / "last.ckpt").config.gates is not None


@pytest.mark.parametrize(("heads", "is_told"), [(2, True), (24, False)])
def test_a_target_that_is_missed_at_the_end_is_told_in_a_line(task, train, tmp_path, heads, is_told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(task.model(gated=True), tmp_path, max_steps=4, penalty=TargetPenalty(heads=heads), keep="last")
    told = [str(warning.message) for warning in caught if "penalty.heads" in str(warning.message)]
    assert len(told) == is_told and "\n" not in "".join(told)
    if told:
        assert told[0].endswith(
            " gates are expected to be open at the end, more than one off penalty.heads 2; "
            "more updates after penalty.warmup_updates may lead there"
        )


def test_gates_that_keep_a_number_tell_how_far_draws_agree_with_the_choice(task, train, tmp_path):
    model = task.model()
    model.add_gates("subset", options={"keep": 6, "anneal_updates": 20})
    train(model, tmp_path, max_steps=20, gate_learning_rate=0.2, keep="last")
    rows = [json.loads(line) for line in (tmp_path / "gates.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["update"] for row in rows] == [10, 20]
    assert all(1 < row["overlap"] <= 6 and row["open"] == 6 for row in rows)
    assert "gates/overlap" in (tmp_path / "metrics.csv").read_text(encoding="utf-8")
