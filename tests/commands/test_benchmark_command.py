"""prune-lab-benchmark: from exports to a table, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab import HeadMask, mask_heads, prune_heads
from prune_lab.commands.earlier_run import read_configuration, refuse_another
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.storage import load_export
from prune_lab.training.training_pass import TrainingPass

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def pruned(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with two of the six heads."""
    model, directory = load_export(tiny_run / "export"), tmp_path_factory.mktemp("pruned") / "export"
    prune_heads(
        model, HeadMask.keeping({"encoder.0.self": [], "decoder.0.self": [1], "decoder.0.cross": [0]}, model)
    ).save_pretrained(directory)
    return directory


@pytest.fixture
def arguments(tiny: list[str], tiny_run: Path, pruned: Path) -> list[str]:
    """A benchmark of seconds."""
    data = [text for text in tiny if text.startswith("data")]
    sizes = ["num_lines=4", "num_batches=1", "batch_sizes=[2]", "beam_sizes=[1,2]", "training.max_tokens=100"]
    return [*data, *sizes, f"exports=[{tiny_run},{pruned}]", "output=run", "repeats=5", "decoding.max_length_a=3"]


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
    assert found["conditions"]["training"] == {
        "max_tokens": 100,
        "dropout": None,
        "average_decay": None,
        "compile_options": None,
        "precision": "32-true",
        "products": "float32",
        "parts": 2,
    }
    assert max(map(len, done.out.splitlines())) <= 80
    assert "decoding, beam 2, batch 2 [sentences/s]" in done.out
    assert "2 of 6 heads: saved of the FLOPs, and of the time\n  attention blocks, batch 2" in done.out
    assert "encoding, batch 2" in done.err


def test_training_in_mixed_precision(
    run: Run, arguments: list[str], tiny_run: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
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
    words = [f"exports={tiny_run}", "measure=[training]", "precision=bf16-mixed"]
    done = run("benchmark", *arguments, *words)
    assert done.status == 0, done.err
    assert types == {torch.bfloat16}
    found = json.loads((folder / "run" / "benchmark.json").read_text(encoding="utf-8"))
    training = found["conditions"]["training"]
    assert (training["precision"], training["products"]) == ("bf16-mixed", "bfloat16") and "bf16-mixed" in done.out


def test_one_export_and_one_kind(run: Run, arguments: list[str], tiny_run: Path, folder: Path) -> None:
    """And what the directory of a benchmark may be used for afterwards: the same benchmark, and nothing else."""
    words = [*arguments, f"exports={tiny_run}", "measure=encoding", "threads=1"]
    for _ in range(2):
        done = run("benchmark", *words)
        assert done.status == 0, done.err
        found = json.loads((folder / "run" / "benchmark.json").read_text(encoding="utf-8"))
        assert [series["what"] for series in found["series"]] == ["encoding"]
        assert found["conditions"]["threads"] == 1 and not (folder / "run" / "speed.png").exists()
        assert found["conditions"]["training"] == {}
    before = (folder / "run" / "benchmark.json").read_bytes()
    done = run("benchmark", *words, "num_lines=3")
    assert (done.status, done.out) == (2, "")
    assert done.err == "prune-lab-benchmark: num_lines: 3, but run holds results with 4; choose another output=\n"
    refuse_another(Path("run"), "benchmark", {**read_configuration(Path("run/benchmark.yaml")), "output": "elsewhere"})
    for command in ("evaluate", "train", "prune"):
        with pytest.raises(ValueError, match="^output=run: holds results of prune-lab-benchmark; choose another"):
            refuse_another(Path("run"), command, {})
    assert (folder / "run" / "benchmark.json").read_bytes() == before


def test_a_directory_with_results_of_another_command_is_refused(
    run: Run, arguments: list[str], tiny_run: Path, folder: Path
) -> None:
    shutil.copytree(tiny_run, "other/base")
    Path("other/study.yaml").write_text("seed: 1\n")
    done = run("benchmark", *arguments, "output=other")
    assert (done.status, done.out) == (2, "")
    assert done.err == "prune-lab-benchmark: output=other: holds results of prune-lab-study; choose another directory\n"
    assert sorted(path.name for path in Path("other").iterdir()) == ["base", "study.yaml"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exports=[]", "exports: []; allowed is a list of exports, exports=[DIR,DIR]"),
        ("exports=[nowhere]", "exports=nowhere: no such directory; an export holds config.json and model.safetensors"),
        ("measure=[speed]", "measure: ['speed']; allowed are lists of training, attention, encoding, decoding"),
        ("measure=[]", "measure: []; allowed are lists of training, attention, encoding, decoding"),
        ("measure=decodin", "measure: 'decodin'; allowed are lists of training, attention, encoding, decoding"),
        ("measure={a:1}", "measure: {a:1}; allowed are values of the kind that --help shows for it"),
        ("beam_sizes=[0]", "beam_sizes: 0; allowed are whole numbers from 1"),
        ("batch_sizes=[]", "batch_sizes: []; allowed is a list of whole numbers, [1,16]"),
        ("batch_sizes=3", "batch_sizes: 3; allowed is a list of whole numbers, [1,16]"),
        ("batch_sizes={a:1}", "batch_sizes: {a:1}; allowed are values of the kind that --help shows for it"),
        ("beam_sizes={a:1}", "beam_sizes: {a:1}; allowed are values of the kind that --help shows for it"),
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


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.label_smoothing=3", "training.label_smoothing: 3; allowed are numbers from 0 and below 1"),
        ("training.clip_norm=-1", "training.clip_norm: -1; allowed are numbers from 0 (no clipping)"),
        ("training.products=int8", "training.products: 'int8'; allowed are float32, bfloat16"),
        ("training.dropout=7", "training.dropout: 7; allowed are numbers from 0 and below 1, or null"),
        ("training.average_decay=1", "training.average_decay: 1; allowed are numbers above 0 and below 1, or null"),
        ("training.compile_options={foo:1}", "training.compile_options.foo: compile does not take it; allowed are"),
        ("optimizer.lr=-1", "optimizer: Adam refuses its arguments (Invalid learning rate: -1"),
        ("training.accumulate=4", "training.accumulate: 4; a benchmark makes single updates, and leaves it at 1"),
        ("training.patience=3", "training.patience: 3; a benchmark makes single updates, and leaves it at null"),
        ("training.keep_freed_memory=false", "training.keep_freed_memory: False; a benchmark makes single updates,"),
        ("+training.keep=last", "training.keep: 'last'; a benchmark makes single updates, and leaves it at best"),
        ("+training.freeze=[decoder]", "unknown key training.freeze; it was added with +, and nothing takes it"),
    ],
)
def test_settings_of_training_are_checked_before_a_model_is_read(
    run: Run, arguments: list[str], folder: Path, override: str, message: str
) -> None:
    done = run("benchmark", *arguments, override)
    assert done.refused().startswith(f"prune-lab-benchmark: {message}") and done.started == ""
    assert not (folder / "run").exists()


def test_an_export_that_is_given_twice_is_refused(run: Run, arguments: list[str], tiny_run: Path) -> None:
    both = f"{tiny_run} and {tiny_run}/export"
    expected = f"prune-lab-benchmark: exports: {both} are the same model; allowed is each one once"
    assert run("benchmark", *arguments, f"exports=[{tiny_run},{tiny_run}/export]").refused() == expected


def test_models_of_other_numbers_are_refused(run: Run, arguments: list[str], tiny_run: Path, folder: Path) -> None:
    load_export(tiny_run / "export").to(torch.bfloat16).save_pretrained("half")
    done = run("benchmark", *arguments, f"exports=[{tiny_run},half]")
    assert (done.status, done.out) == (2, "") and not (folder / "run").exists()
    expected = f"exports=half: its weights are bfloat16, those of {tiny_run} float32; allowed is one type for all\n"
    assert done.err.endswith(expected)


def test_models_of_other_tokenizers_are_refused(run: Run, arguments: list[str], tiny_run: Path, folder: Path) -> None:
    """The same ids would be other words to them, or none."""
    base = tiny_run / "export"
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


def test_masked_models_are_refused(run: Run, arguments: list[str], tiny_run: Path, folder: Path) -> None:
    """A model with closed gates takes as long as the whole one: its speed says nothing about its heads."""
    model = load_export(tiny_run / "export")
    mask_heads(model, HeadMask.removing({"encoder.0.self": [0]}, model)).save_pretrained("masked")
    message = run("benchmark", *arguments, "exports=[masked]").refused()
    assert message.endswith("heads are closed, not gone; a smaller model comes from prune-lab-prune")
