"""The key `device`: where the commands that train score heads and decode."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.evaluation.evaluate import record_export
from prune_lab.pruning.criteria.registry import score_heads

Run = Callable[..., Any]
POINT = torch.device("cpu:0")


@pytest.fixture
def arguments(tiny: list[str], tiny_study_overrides: list[str], tiny_run: Path) -> Callable[[str], list[str]]:
    """Overrides of a short run of each command."""
    updates = ["logger=csv", "trainer.max_steps=2", "training.validate_every=2", "report_split=test"]
    of_prune = [text for text in tiny if text.startswith(("data", "training.max_tokens", "decoding"))]
    table = {
        "train": [*tiny, *updates],
        "prune": [*of_prune, f"export={tiny_run}", "budgets=[4]", "speed=null"],
        "study": [*(text for text in tiny_study_overrides if "study.methods" not in text), "study.budgets=[4]"],
    }
    return lambda name: [*table[name], "output=run"]


@pytest.mark.parametrize("name", ["train", "prune", "study"])
def test_a_wrong_device_is_told_before_the_work(
    run: Run, folder: Path, arguments: Callable[[str], list[str]], name: str
) -> None:
    message = run(name, *arguments(name), "device=tpu9").refused()
    assert message == f"prune-lab-{name}: device: 'tpu9'; allowed here are auto, cpu"
    assert not (folder / "run").exists()


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("name", ["train", "prune", "study"])
def test_models_are_scored_and_decoded_there(
    run: Run, arguments: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The processor by another name stands in for a GPU."""
    decoded, scored, moved = [], [], []

    def to(model: Any, *places: Any, **rest: Any) -> Any:
        moved.append(places)
        return torch.nn.Module.to(model, *places, **rest)

    def record(*given: Any, **rest: Any) -> Any:
        decoded.append(rest["device"])
        return record_export(*given, **rest)

    def score(model: Any, *given: Any) -> Any:
        scored.append(moved[-1])
        return score_heads(model, *given)

    module = {"train": "evaluation.evaluate", "prune": "study.derived", "study": "study.stages"}[name]
    monkeypatch.setattr(f"prune_lab.{module}.record_export", record)
    monkeypatch.setattr("prune_lab.study.on_text.score_heads", score)
    monkeypatch.setattr("prune_lab.model.transformer.Transformer.to", to)
    found = run(name, *arguments(name), f"device={POINT}")
    assert found.status == 0, found.err
    assert set(decoded) == {POINT}
    assert set(scored) == (set() if name == "train" else {(POINT,)})
