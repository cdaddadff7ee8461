"""Which parameters are trained, in which group, and what freezing a part leaves alone."""

import pytest
import torch

from prune_lab.training.parameters import PARTS, freeze, parameter_groups


def groups_by_name(model) -> dict[str, set[str]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, gate_learning_rate=0.05)
    return {group["name"]: {names[id(parameter)] for parameter in group["params"]} for group in groups}


@pytest.mark.parametrize("share", [True, False])
def test_every_trainable_parameter_is_in_one_group(task, share):
    model = task.model(gated=True, share_embeddings=share, tie_output=share, positions="learned")
    groups = groups_by_name(model)
    members = [name for group in groups.values() for name in group]
    assert sorted(members) == sorted(name for name, p in model.named_parameters() if p.requires_grad)


def test_weight_decay_spares_biases_norms_tables_and_gates(task):
    model = task.model(gated=True, share_embeddings=False, tie_output=False)
    groups = groups_by_name(model)
    assert groups["gates"] == {name for name, _ in model.named_parameters() if name.endswith("log_a")}
    assert {"source_table.weight", "target_table.weight", "output_table.weight"} <= groups["plain"]
    parameters = dict(model.named_parameters())
    assert all(parameters[name].dim() == 2 for name in groups["decayed"])
    assert all("table" not in name and "norm" not in name and "bias" not in name for name in groups["decayed"])
    assert "encoder.layers.0.self_attention.attention.query.weight" in groups["decayed"]
    decay = {group["name"]: group.get("weight_decay") for group in parameter_groups(model, gate_learning_rate=0.05)}
    assert decay == {"decayed": None, "plain": 0.0, "gates": 0.0}


def test_decoupled_decay_shrinks_matrices_alone(task):
    model = task.model(gated=True)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, gate_learning_rate=0.05)
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    decayed = groups_by_name(model)["decayed"]
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if name in decayed else 1))


def test_gates_have_a_rate_of_their_own(task):
    model = task.model(gated=True)
    optimizer = torch.optim.Adam(parameter_groups(model, gate_learning_rate=0.3), lr=0.001)
    assert {group["name"]: group["lr"] for group in optimizer.param_groups} == {
        "decayed": 0.001,
        "plain": 0.001,
        "gates": 0.3,
    }


def frozen(model) -> set[str]:
    return {name.split(".")[0] for name, parameter in model.named_parameters() if not parameter.requires_grad}


@pytest.mark.parametrize(
    ("parts", "share", "expected"),
    [
        ([], True, set()),
        (["encoder"], True, {"encoder"}),
        (["decoder"], True, {"decoder", "source_table", "target_positions"}),
        (["decoder"], False, {"decoder", "target_table", "output_table", "target_positions"}),
        (["embeddings"], True, {"source_table", "source_positions", "target_positions"}),
        (
            ["embeddings"],
            False,
            {"source_table", "target_table", "output_table", "source_positions", "target_positions"},
        ),
        (["encoder", "embeddings"], True, {"encoder", "source_table", "source_positions", "target_positions"}),
    ],
)
def test_parts_that_are_frozen(task, parts, share, expected):
    model = task.model(share_embeddings=share, tie_output=share, positions="learned")
    freeze(model, parts)
    assert frozen(model) == expected


def test_gates_are_never_frozen(task):
    model = task.model(gated=True)
    freeze(model, PARTS)
    assert all(gate.log_a.requires_grad for gate in model.gates().values())
    assert set(groups_by_name(model)) == {"gates"}


def test_an_unknown_part_is_refused(task):
    with pytest.raises(ValueError, match="training.freeze: 'heads'; allowed are encoder, decoder, embeddings"):
        freeze(task.model(), ["encoder", "heads"])


def test_nothing_left_to_train(task):
    model = task.model()
    freeze(model, PARTS)
    with pytest.raises(ValueError, match="training.freeze: nothing is left to train"):
        parameter_groups(model, gate_learning_rate=0.05)


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_gates_that_cannot_move_are_refused(task, rate):
    with pytest.raises(ValueError, match=r"gates\.learning_rate: .*; allowed are numbers above 0"):
        parameter_groups(task.model(gated=True), gate_learning_rate=rate)
