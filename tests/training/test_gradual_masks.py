"""Heads that go while a model trains: when, which, for good, and the same after an interruption."""

from typing import Any

import pytest
import torch

from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.selection import Selection
from prune_lab.training.callbacks.gradual_masks import GradualMasks
from prune_lab.training.checkpoint import load_checkpoint

BUDGETS = (15, 10, 8, 8)


class Choice:
    """By gradient importance on a few sentences; remembers the budgets, and the states of the models that it saw."""

    def __init__(self, task: Any) -> None:
        self._batch = task.data.train.batch(range(6))
        self.budgets: list[int] = []
        self.weights: list[torch.Tensor] = []

    def __call__(self, model: Transformer, budget: int) -> HeadMask:
        self.budgets.append(budget)
        self.weights.append(model.source_table.weight.detach().clone())
        return Selection()(score_heads(model, [self._batch]), budget)


def masks(choice: Choice, num_updates: int = 8) -> GradualMasks:
    return GradualMasks(budgets=BUDGETS, choose=choice, num_updates=num_updates, label="x")


def num_live(model: Transformer) -> int:
    return sum(map(len, model.heads().values()))


def test_heads_go_at_even_distances_and_stay_away(task, train, tmp_path, capsys):
    choice, model = Choice(task), task.model()
    before = model.copy()
    result = train(model, tmp_path, max_steps=12, keep="last", callbacks=[masks(choice)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "heads from update" in line]
    assert lines == ["x: 15 heads from update 1", "x: 10 heads from update 3", "x: 8 heads from update 5"]
    assert choice.budgets == [15, 10, 8] and num_live(result.model) == 8
    assert torch.equal(choice.weights[0], before.source_table.weight), "the first cut is made before anything moved"
    assert not torch.equal(choice.weights[1], choice.weights[2])
    first = Selection()(score_heads(before, [task.data.train.batch(range(6))]), 15)
    for site, heads in result.model.heads().items():
        assert set(heads) <= set(first.kept[site])


def test_a_run_that_was_stopped_cuts_the_same_heads(task, train, tmp_path):
    whole, parts = Choice(task), Choice(task)
    at_once = train(task.model(), tmp_path / "whole", max_steps=8, keep="last", callbacks=[masks(whole)])
    # The checkpoint is of update 4, at which a cut comes next.
    for max_steps in (4, 8):
        twice = train(task.model(), tmp_path / "parts", max_steps=max_steps, keep="last", callbacks=[masks(parts)])
    assert load_checkpoint(tmp_path / "parts" / "last.ckpt")["global_step"] == 8
    assert whole.budgets == parts.budgets and at_once.model.heads() == twice.model.heads()
    for name, value in at_once.model.state_dict().items():
        torch.testing.assert_close(twice.model.state_dict()[name], value, msg=name)


def test_more_cuts_than_updates_are_an_error(task):
    with pytest.raises(ValueError, match="schedule.num_cuts: 4; allowed are numbers up to that of the updates, 3"):
        masks(Choice(task), num_updates=3)
