"""prune-lab-evaluate: the figure of the sacrebleu command line, and refusals before anything is written."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab import HeadMask, Translator, prune_heads
from prune_lab.data.corpus import read_lines
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.collect import collect
from prune_lab.results.record import Record

Run = Callable[..., Any]
Pairs = list[tuple[str, str]]
TEXT = ["data=text", "data.test.source=test.en", "data.test.target=test.de", "speed=null"]
SCRIPT = "from prune_lab.commands.evaluate import main; main()"


@pytest.fixture
def text(folder: Path, model: Transformer, pairs: Pairs) -> list[str]:
    """Test files with references that a few of the model's own words are missing from; returns their hypotheses."""
    generator = random.Random(1)
    sources = [*(source for source, _ in pairs[:12]), ""]
    hypotheses = Translator(model).translate(sources)
    references = []
    for line in hypotheses:
        words = [word for word in line.split() if generator.random() < 0.8]
        references.append(" ".join([*words, "„日本“ Größe, 3.5% naïve!\u2028"]))
    _write("test.en", sources)
    _write("test.de", references)
    return hypotheses


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ([], []),
        (["data.score_tokenize=none"], ["--tokenize", "none", "--force"]),
        (
            ["data.score_tokenize=intl", "data.lowercase=true"],
            ["--tokenize", "intl", "--lowercase", "--chrf-lowercase"],
        ),
    ],
    ids=["13a", "none", "intl, lowercase"],
)
def test_c1_the_figure_of_the_sacrebleu_command_line(
    run: Run, folder: Path, export: Path, text: list[str], settings: list[str], flags: list[str]
) -> None:
    found = run("evaluate", f"export={export}", *TEXT, *settings, "output=run")
    record = Record.load("run")
    assert record.hypotheses is not None and read_lines(Path("run") / record.hypotheses) == text
    arguments = ["test.de", "-i", "run/hypotheses.txt", "-m", "bleu", "chrf", "-w", "2"]
    command = [sys.executable, "-m", "sacrebleu", *arguments]
    said = json.loads(subprocess.run([*command, *flags], check=True, capture_output=True, text=True).stdout)
    assert record.bleu is not None and record.chrf is not None
    assert 20 < record.bleu < 95
    assert [f"{record.bleu:.2f}", f"{record.chrf:.2f}"] == [f"{each['score']:.2f}" for each in said]
    assert record.bleu_signature == said[0]["signature"] and record.chrf_signature == said[1]["signature"]
    lines = found.out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"BLEU {record.bleu:.2f}  chrF {record.chrf:.2f}  text test, 13 sentences, beam 5")
    assert lines[1] == f"24 of 24 heads, unpruned; {record.bleu_signature}"
    assert found.err == "record: run/record.json\n"


def test_the_run_directory(run: Run, folder: Path, export: Path, text: list[str], model: Transformer) -> None:
    found = run("evaluate", f"export={export}", *TEXT[:3], "speed.repeats=2", "speed.num_lines=3", "decoding=greedy")
    assert found.status == 0
    (directory,) = (folder / "outputs" / "evaluate").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == [
        "evaluate.log",
        "evaluate.yaml",
        "hypotheses.txt",
        "record.json",
    ]
    (record,) = collect("outputs")
    assert (record.method, record.state, record.decoding_kind, record.seed) == ("unpruned", "unpruned", "greedy", 1)
    assert record.base_hash == weights_hash(model)
    assert record.path_of("export").resolve() == export.resolve()  # type: ignore[union-attr]
    assert record.speed is not None and record.speed["num_sentences"] == 3
    assert record.config["decoding"]["beam_size"] == 1
    assert record.directory is not None and str(record.directory.relative_to(folder)) in found.err


def test_what_chose_the_heads_is_known_from_the_run_that_made_the_export(
    run: Run, folder: Path, export: Path, text: list[str], model: Transformer
) -> None:
    pruned = prune_heads(model, HeadMask.removing({"decoder.0.cross": [2]}, model))
    pruned.save_pretrained("point/export")
    run("evaluate", "export=point/export", *TEXT, "output=again", "method=random", "seed=4", "label=one less")
    record = Record.load("again")
    assert (record.method, record.seed, record.label, record.state) == ("random", 4, "one less", "pruned")
    assert record.base_hash is None and record.remaining_heads == 23

    values = {**record.to_dict(), "method": "gradient", "base_hash": "ab", "export": "export", "seed": 5}
    validated = {"validation_bleu": 12.5, "validation_decoding": "greedy"}
    made = Record.from_dict({**values, **validated, "settings": {"point": 23, "scope": "global"}})
    made.save("point")
    run("evaluate", "export=point", *TEXT, "output=once")
    record = Record.load("once")
    assert (record.method, record.seed, record.base_hash, record.validation_bleu) == ("gradient", 5, "ab", 12.5)
    assert record.settings == {"point": 23, "scope": "global"} and record.validation_decoding == "greedy"
    assert record.export == "../point/export"


def test_a8_the_speed_of_the_unpruned_model_is_measured_in_turn(
    run: Run, folder: Path, export: Path, text: list[str], model: Transformer
) -> None:
    prune_heads(model, HeadMask.removing({"decoder.0.cross": [2]}, model)).save_pretrained("point/export")
    settings = [*TEXT[:3], "speed.repeats=5", "speed.num_lines=2", "decoding=greedy"]
    assert run("evaluate", "export=point", *settings, f"unpruned={export}", "output=run").status == 0
    speed = Record.load("run").speed
    assert speed is not None and speed["ratio"]["low"] <= speed["ratio"]["median"] <= speed["ratio"]["high"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.test.source=nothing.en"], "text file nothing.en does not exist"),
        (["data.test.target=null"], "data.test.target is not set"),
        (["split=validation"], "split=validation: data=text has no such split, it has test"),
        (["split=all"], "split: 'all'; allowed are train, validation, test"),
        (["export=nothing"], "export=nothing: no such directory; an export holds config.json and model.safetensors"),
        (
            ["unpruned=nothing"],
            "unpruned=nothing: no such directory; an export holds config.json and model.safetensors",
        ),
        (["export=test.en"], "export=test.en: is a file; allowed are the directory of an export and a checkpoint"),
        (["export=best.ckpt"], "export=best.ckpt: no such directory"),
        (["export=."], "export=.: not an export, it has no config.json"),
        (["speed=3"], "speed: 3; allowed are the keys num_lines, warm_up, repeats, max_sentences"),
        (["data.score_tokenize=14a"], "tokenize='14a' is no BLEU tokenizer; allowed are"),
        (["+data.sauce=x"], "unknown key data.sauce (value 'x'); allowed: name, kind"),
    ],
    ids=str,
)
def test_bad_input_is_refused_and_nothing_is_written(
    run: Run, folder: Path, export: Path, text: list[str], arguments: list[str], message: str
) -> None:
    before = sorted(folder.iterdir())
    assert run("evaluate", f"export={export}", *TEXT, *arguments).refused().startswith(f"prune-lab-evaluate: {message}")
    assert sorted(folder.iterdir()) == before


def test_an_all_empty_corpus(run: Run, folder: Path, export: Path) -> None:
    _write("test.en", ["", "x"])
    _write("test.de", ["y", " "])
    message = run("evaluate", f"export={export}", *TEXT).refused()
    assert message.startswith("prune-lab-evaluate: data.test: none of the 2 pairs of test.en and test.de has text on")
    assert sorted(path.name for path in folder.iterdir()) == ["test.de", "test.en"]


def test_damaged_exports(run: Run, folder: Path, export: Path, text: list[str]) -> None:
    def refused() -> str:
        return run("evaluate", "export=damaged", *TEXT).refused().removeprefix("prune-lab-evaluate: ")

    shutil.copytree(export, "damaged")
    weights = Path("damaged/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    assert refused().startswith("damaged/model.safetensors: not readable as safetensors, perhaps cut short")
    weights.unlink()
    assert refused() == "export=damaged: not a whole export, it has no model.safetensors"

    shutil.copy(export / "model.safetensors", weights)
    config = json.loads((export / "config.json").read_text())
    for key, value, told in (
        ("attention", "windowed", "'windowed'"),
        ("encoder_head_dim", None, "not divisible"),
        ("model_type", "bert", "model_type"),
    ):
        changed = {**config, key: value, **({"encoder_heads": 5} if value is None else {})}
        Path("damaged/config.json").write_text(json.dumps(changed))
        message = refused()
        assert message.startswith("damaged/config.json: ") and told in message
    assert not Path("outputs").exists()


def test_c6_unequal_line_counts_are_told_within_five_seconds(folder: Path, export: Path) -> None:
    _write("test.en", ["a"] * 100)
    _write("test.de", ["b"] * 99)
    start = time.monotonic()
    command = [sys.executable, "-c", SCRIPT, f"export={export}", *TEXT]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - start < 5
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("prune-lab-evaluate: unequal line counts: test.en has 100 lines, test.de has 99; ")
    assert found.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["test.de", "test.en"]


def test_files_are_checked_before_torch_is_imported(folder: Path) -> None:
    script = (
        "import sys; import prune_lab; from prune_lab import HeadMask\n"
        "from prune_lab.commands import evaluate, report, translate\n"
        "print([name for name in ('torch', 'pytorch_lightning', 'matplotlib', 'wandb') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def _write(path: str, lines: list[str]) -> None:
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_a_directory_of_several_exports_names_them(run: Run, folder: Path, export: Path) -> None:
    for name in ("12-heads", "24-heads"):
        shutil.copytree(export, folder / "pruned" / name / "export")
    message = run("evaluate", "export=pruned").refused()
    assert message.endswith("it has no config.json; below it are pruned/12-heads/export, pruned/24-heads/export")


def test_speed_is_told_with_its_ratio(run: Run, folder: Path, export: Path) -> None:
    quick = ["data.test.num_pairs=4", "decoding=greedy", "speed.num_lines=2", "speed.repeats=1"]
    alone = run("evaluate", f"export={export}", *quick).out.splitlines()
    assert alone[-1].endswith(" sentences a second")
    model = Transformer.from_pretrained(export)
    prune_heads(model, HeadMask.removing({"encoder.0.self": [0]}, model)).save_pretrained("smaller")
    beside = run("evaluate", "export=smaller", f"unpruned={export}", *quick, "output=beside").out.splitlines()
    assert f" sentences a second; against {export}: " in beside[-1]


def test_the_difference_to_the_unpruned_model_is_tested(run: Run, folder: Path, export: Path) -> None:
    quick = ["data.test.num_pairs=6", "decoding=greedy", "speed=null"]
    model = Transformer.from_pretrained(export)
    prune_heads(model, HeadMask.removing({"decoder.0.cross": [0, 1]}, model)).save_pretrained("smaller")
    found = run("evaluate", "export=smaller", f"unpruned={export}", *quick, "output=beside")
    assert run("evaluate", f"export={export}", *quick, "output=whole").status == 0
    record, whole = Record.load("beside"), Record.load("whole")
    assert record.significance is not None
    assert record.significance["baseline_bleu"] == pytest.approx(whole.bleu)
    assert record.significance["difference"] == pytest.approx(record.bleu - whole.bleu)
    assert 0 < record.significance["randomisation"]["p_value"] <= 1
    assert f"{record.bleu - whole.bleu:+.2f} BLEU (" in found.out and f"against {export}" in found.out


def test_what_is_unpruned_is_looked_at(run: Run, folder: Path, export: Path) -> None:
    """A ratio is to the model that this one was pruned from, and to no other."""
    model = Transformer.from_pretrained(export)
    prune_heads(model, HeadMask.removing({"encoder.0.self": [0]}, model)).save_pretrained("smaller")
    model.add_gates("hard_concrete")
    model.save_pretrained("gated")
    model.remove_gates()
    other = model.copy()
    with torch.no_grad():
        other.output_weight.mul_(0.9)
    other.save_pretrained("other_base")
    content = json.loads((export / "tokenizer.json").read_text(encoding="utf-8"))
    words = content["source"]["model"]["vocab"]
    one, two = list(words)[-2:]
    words[one], words[two] = words[two], words[one]
    Path("tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    model.tokenizer = Tokenizer.load("tokenizer.json")
    model.save_pretrained("other_words")
    quick = ["data.test.num_pairs=4", "decoding=greedy", "speed.num_lines=2", "speed.repeats=1"]
    other.copy().to(torch.bfloat16).save_pretrained("half")
    message = run("evaluate", f"export={export}", "unpruned=half", *quick)
    expected = "unpruned=half: its weights are bfloat16, those of this model float32; allowed is one type\n"
    assert message.status == 2 and message.err.endswith(expected)
    for source in ("smaller", "gated"):
        message = run("evaluate", f"export={export}", f"unpruned={source}", *quick)
        assert message.status == 2
        assert message.err.endswith(
            f"unpruned={source}: has gates or lacks heads; allowed is the model that this one was pruned from\n"
        )
    shutil.copytree(export, "known/export")
    assert run("evaluate", "export=known/export", "output=known", *quick).status == 0
    for source, what in (("other_words", "has another tokenizer"), ("other_base", "is of another base")):
        message = run("evaluate", "export=known/export", f"unpruned={source}", *quick, "output=beside")
        assert message.status == 2
        assert message.err.endswith(f"unpruned={source}: {what}; allowed is the model that this one was pruned from\n")


@pytest.mark.parametrize("content", [b"{: [", b"\xff\xfe", b"5", b""])
def test_a_damaged_configuration_beside_a_checkpoint_is_named(run: Run, folder: Path, content: bytes) -> None:
    Path("run").mkdir()
    Path("run/best.ckpt").write_bytes(b"x")
    Path("run/train.yaml").write_bytes(content)
    message = run("evaluate", "export=run/best.ckpt").refused()
    assert message.startswith("prune-lab-evaluate: run/train.yaml: ")
