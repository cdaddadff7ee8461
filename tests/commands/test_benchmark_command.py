"""prune-lab-benchmark: from exports to a table, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab import HeadMask, mask_heads
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.storage import load_export
from prune_lab.training.training_pass import TrainingPass

Run = Callable[..., Any]


@pytest.fixture
def arguments(tiny: list[str], tiny_study: tuple[Path, str]) -> list[str]:
    """A benchmark of seconds."""
    data = [text for text in tiny if text.startswith("data")]
    sizes = ["num_lines=4", "num_batches=1", "batch_sizes=[2]", "beam_sizes=[1,2]", "training.max_tokens=100"]
    base, pruned = tiny_study[0] / "base", tiny_study[0] / "points" / "gradient-2heads-seed1" / "export"
    return [*data, *sizes, f"exports=[{base},{pruned}]", "output=run", "repeats=5", "decoding.max_length_a=3"]


def test_a_benchmark_of_two_exports(run: Run, arguments: list[str], folder: Path) -> None:
    done = run("benchmark", *arguments)
    assert done.status == 0, done.err
    files = {"benchmark.json", "benchmark.csv", "speed.png", "speed.pdf", "benchmark.yaml"}
    assert files <= {path.name for path in (folder / "run").iterdir()}
    found = json.loads((folder / "run" / "benchmark.json").read_text(encoding="utf-8"))
    assert [model["remaining_heads"] for model in found["models"]] == [6, 2]
    whole, pruned = (model["file_bytes"] for model in found["models"])
    assert pruned < whole
    assert [series["what"] for series in found["series"]] == ["training", "attention", "encoding", *["decoding"] * 2]
    assert found["conditions"]["num_lines"] == 4 and found["conditions"]["data"] == "synthetic, test"
    assert max(map(len, done.out.splitlines())) <= 80
    assert "decoding, beam 2, batch 2 [sentences/s]" in done.out and "realised" in done.out
    assert "encoding, batch 2" in done.err


def test_training_in_mixed_precision(
    run: Run, arguments: list[str], tiny_study: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    types = set()

    class Watched(TrainingPass):
        def update(self, number: int) -> None:
            handle = self.model.decoder.layers[0].feed_forward.inner.register_forward_hook(
                lambda module, given, found: types.add(found.dtype)
            )
            super().update(number)
            handle.remove()

    monkeypatch.setattr("prune_lab.training.training_pass.TrainingPass", Watched)
    words = [f"exports={tiny_study[0] / 'base'}", "measure=[training]", "precision=bf16-mixed"]
    done = run("benchmark", *arguments, *words)
    assert done.status == 0, done.err
    assert types == {torch.bfloat16}
    found = json.loads((folder / "run" / "benchmark.json").read_text(encoding="utf-8"))
    assert found["conditions"]["training"]["precision"] == "bf16-mixed" and "bf16-mixed" in done.out


def test_one_export_and_one_kind(run: Run, arguments: list[str], tiny_study: tuple[Path, str], folder: Path) -> None:
    done = run("benchmark", *arguments, f"exports={tiny_study[0] / 'base'}", "measure=[encoding]", "threads=1")
    assert done.status == 0, done.err
    found = json.loads((folder / "run" / "benchmark.json").read_text(encoding="utf-8"))
    assert [series["what"] for series in found["series"]] == ["encoding"]
    assert found["conditions"]["threads"] == 1 and not (folder / "run" / "speed.png").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exports=[]", "exports: []; allowed is a list of exports, exports=[DIR,DIR]"),
        ("exports=[nowhere]", "exports=nowhere: no such directory; an export holds config.json and model.safetensors"),
        ("measure=[speed]", "measure: ['speed']; allowed are lists of training, attention, encoding, decoding"),
        ("measure=[]", "measure: []; allowed are lists of training, attention, encoding, decoding"),
        ("beam_sizes=[0]", "beam_sizes: 0; allowed are whole numbers from 1"),
        ("batch_sizes=[]", "batch_sizes: []; allowed is a list of whole numbers, [1,16]"),
        ("batch_sizes=3", "batch_sizes: 3; allowed are lists, such as [1,2]"),
        ("repeats=0", "repeats: 0; allowed are whole numbers from 1"),
        ("num_batches=x", "num_batches: 'x'; allowed are whole numbers from 1"),
        ("threads=0", "threads: 0; allowed are whole numbers from 1"),
        ("split=dev", "split: 'dev'; allowed are train, validation, test"),
        ("device=tpu9", "device: 'tpu9'; allowed here are auto, cpu"),
        ("precision=16", "precision: 16; allowed are 32-true, bf16-mixed"),
        ("training.clip_norm=much", "training.clip_norm: 'much'; allowed are numbers"),
    ],
)
def test_wrong_input(run: Run, arguments: list[str], folder: Path, override: str, message: str) -> None:
    assert run("benchmark", *arguments, override).refused() == f"prune-lab-benchmark: {message}"
    assert not (folder / "run").exists()


def test_models_of_other_tokenizers_are_refused(
    run: Run, arguments: list[str], tiny_study: tuple[Path, str], folder: Path
) -> None:
    """The same ids would be other words to them, or none."""
    base = tiny_study[0] / "base" / "export"
    content = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    words = content["source"]["model"]["vocab"]
    one, other = list(words)[-2:]
    words[one], words[other] = words[other], words[one]
    Path("tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    model = load_export(base)
    model.tokenizer = Tokenizer.load("tokenizer.json")
    model.save_pretrained("other")
    message = run("benchmark", *arguments, f"exports=[{base},other]")
    assert message.status == 2 and message.out == ""
    expected = f"exports=other: has another tokenizer than {base}; allowed is one for all\n"
    assert message.err.endswith(expected)
    assert not (folder / "run").exists()


def test_masked_models_are_refused(run: Run, arguments: list[str], tiny_study: tuple[Path, str], folder: Path) -> None:
    """A model with closed gates takes as long as the whole one: its speed says nothing about its heads."""
    model = load_export(tiny_study[0] / "base" / "export")
    mask_heads(model, HeadMask.removing({"encoder.0.self": [0]}, model)).save_pretrained("masked")
    message = run("benchmark", *arguments, "exports=[masked]").refused()
    assert message.endswith("heads are closed, not gone; a smaller model comes from prune-lab-prune")
