"""prune-lab-convert: what a trained model becomes, what is recorded of it, and what it is refused."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.grouped_query import GroupedQueryAttention
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.registry import ATTENTION
from prune_lab.heads import HeadMask
from prune_lab.model.conversion import convert_attention
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import mask_heads, prune_heads
from prune_lab.results.record import Record

Run = Callable[..., Any]
COMPRESSED = ("attention=collaborative", "attention.options.form=compressed", "attention.options.shared_width=8")
RECOVERY = ("trainer.max_steps=3",)
# Options of each variant with which it is the same function as multi-head attention with 4 heads.
SIZES = AttentionSizes(d_model=32, numbers=tuple(range(4)), total_heads=4, head_dim=8)
EXACT = [(name, variant.exact_options(SIZES)) for name, variant in sorted(ATTENTION.items()) if name != "multi_head"]
EXACT += [("overlapping", {"overlap": 2, "parts": "values"})]
SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
TARGET = torch.tensor([[1, 8, 7, 2], [1, 5, 2, 0]])


def logits(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model(SOURCE, TARGET)[:, :2]


@pytest.fixture(scope="module")
def base(tiny_run: Path) -> Path:
    """An unpruned run."""
    return tiny_run


@pytest.fixture(scope="module")
def settings(tiny_text: list[str], base: Path) -> list[str]:
    """Overrides of all conversions here."""
    return [*tiny_text, f"export={base}", "speed=null", "training.max_tokens=600", "logger=csv"]


@pytest.fixture(scope="module")
def recovered(call: Callable[..., tuple[Path, str]], settings: list[str]) -> tuple[Path, str]:
    """The directory of a conversion with recovery, not to be changed, and what was printed."""
    return call("convert", *settings, *COMPRESSED, *RECOVERY)


@pytest.fixture
def copied(recovered: tuple[Path, str], folder: Path) -> Path:
    """The same directory where it may be changed."""
    return shutil.copytree(recovered[0], folder / "run")


@pytest.fixture
def convert(run: Run, settings: list[str]) -> Run:
    """`convert("attention=...")`: the outcome of the command, which writes to `run`."""
    return lambda *overrides: run("convert", *settings, "output=run", *overrides)


@pytest.mark.parametrize(("name", "options"), EXACT, ids=str)
def test_the_identity_settings_change_no_logit(
    small_model: Callable[..., Transformer], name: str, options: dict[str, Any]
) -> None:
    """Heads that are masked and removed, gates and biases come along."""
    whole = small_model().double()
    model = prune_heads(whole, HeadMask.removing({"decoder.0.self": [1], "encoder.0.self": range(4)}, whole))
    model = mask_heads(model, HeadMask.removing({"decoder.1.cross": [0, 2]}, model))
    model.add_gates("hard_concrete", ["encoder.self"])
    model.gates()["encoder.1.self"].log_a.data = torch.tensor([1.0, -1.0, 2.0, 0.5])  # type: ignore[union-attr]
    found = convert_attention(model, {"name": name, "options": options})
    assert found.facts == {} and found.sites == tuple(model.sites())
    torch.testing.assert_close(logits(found.model), logits(model), rtol=0, atol=1e-10)
    assert found.model.heads() == model.heads() and found.model.config.attention["name"] == name
    assert not found.model.training and found.model.output_weight.dtype == torch.float64
    assert model.config.attention["name"] == "multi_head"  # type: ignore[index]


def test_grouped_keys_and_values_are_means(small_model: Callable[..., Transformer]) -> None:
    model = small_model()
    for site, block in convert_attention(model, "grouped_query").model.attention_sites().items():
        source = model.attention_sites()[site].attention
        assert isinstance(block.attention, GroupedQueryAttention) and isinstance(source, MultiHeadAttention)
        for name in ("key", "value"):
            rows = getattr(source, name).weight.unflatten(0, (2, 2, 8)).mean(1).flatten(0, 1)
            torch.testing.assert_close(getattr(block.attention, name).weight, rows)
        assert torch.equal(block.attention.query.weight, source.query.weight)


def test_compression_loses_less_with_more_channels(small_model: Callable[..., Transformer]) -> None:
    model, errors = small_model(d_model=16, encoder_layers=1, decoder_layers=1).double(), []
    for width in (1, 6, 12, 16):
        options = {"form": "compressed", "shared_width": width}
        found = convert_attention(model, {"name": "collaborative", "options": options})
        errors.append(max((facts["reconstruction_error"] for facts in found.facts.values()), default=0.0))
        difference = (logits(found.model) - logits(model)).abs().max()
        assert (difference < 1e-10) == (width == 16)
    assert errors == sorted(errors, reverse=True) and errors[0] < 1 and errors[-1] == 0


def test_a_kind_of_site_alone(small_model: Callable[..., Transformer]) -> None:
    by_kind = {"encoder_self": "multi_head", "decoder_self": "grouped_query", "decoder_cross": "multi_head"}
    found = convert_attention(small_model(), by_kind)
    assert found.sites == ("decoder.0.self", "decoder.1.self")
    again = convert_attention(found.model, {**by_kind, "decoder_cross": {"name": "grouped_query"}})
    assert again.sites == ("decoder.0.cross", "decoder.1.cross")
    with pytest.raises(ValueError, match="attention: talking_heads for decoder.0.self, which is grouped_query; conver"):
        convert_attention(found.model, "talking_heads")


def test_before_and_after_recovery(recovered: tuple[Path, str], base: Path) -> None:
    directory, said = recovered
    for site in ("encoder.0.self", "decoder.0.self", "decoder.0.cross"):
        assert re.search(rf"(?m)^  {site}: reconstruction error 0\.\d+, sweeps \d+$", said)
    summary = r"\nreconstruction error of 3 sites: \S+ to \S+\nsweeps of 3 sites: \d+ to \d+\n"
    assert re.search(rf"{summary}converted: run/converted/export  6 heads, ", said)
    assert "\nrecovered: run/recovered/export  6 heads, synthetic test BLEU " in said
    records = {place: Record.load(directory / place) for place in ("input", "converted", "recovered")}
    whole = load_export(base / "export")
    for place, method, updates in (
        ("input", "unpruned", 4),
        ("converted", "converted", 4),
        ("recovered", "converted+recovery", 7),
    ):
        record, model = records[place], load_export(directory / place / "export")
        assert (record.method, record.settings["updates"], record.remaining_heads) == (method, updates, 6)
        assert record.base_hash == weights_hash(whole) and record.weights_hash == weights_hash(model)
        assert (record.significance is None) == (place == "input")
        if place != "input":
            errors = record.settings["converted"]["reconstruction_error"]
            assert set(errors) == set(whole.sites()) and all(0 < error < 1 for error in errors.values())
            assert record.settings["attention"] == model.config.attention
    assert (directory / "recovered" / "last.ckpt").is_file()


@pytest.mark.usefixtures("copied")
def test_the_same_command_again_does_nothing_twice(convert: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("convert.convert_attention", "derived.fit", "derived.record_export"):
        monkeypatch.setattr(f"prune_lab.study.{name}", None)
    found = convert(*COMPRESSED, *RECOVERY)
    assert found.status == 0, found.err
    said = [line.split(",")[0] for line in found.out.splitlines() if "done before" in line]
    assert said == ["converted: done before", "recovered: done before"]


def test_converted_models_are_pruned_as_others(convert: Run, run: Run, tiny_text: list[str], folder: Path) -> None:
    assert convert(*COMPRESSED, "report_split=null").status == 0
    export = folder / "run" / "converted" / "export"
    own = (f"export={export}", "budgets=[3]", "speed=null", "training.max_tokens=600", "output=pruned")
    done = run("prune", *tiny_text, *own)
    assert done.status == 0, done.err
    pruned, whole = load_export(folder / "pruned" / "3-heads" / "export"), load_export(export)
    masked = mask_heads(whole, HeadMask.keeping(pruned.heads(), whole))
    torch.testing.assert_close(logits(pruned), logits(masked), rtol=1e-5, atol=1e-5)
    assert pruned.config.attention["name"] == "collaborative"  # type: ignore[index]


def test_a_pruned_model_is_named_as_such(run: Run, base: Path, tiny_text: list[str], folder: Path) -> None:
    pruned = (f"export={base}", "budgets=[4]", "speed=null", "training.max_tokens=600", "output=pruned")
    assert run("prune", *tiny_text, *pruned).status == 0
    own = (
        "export=pruned/4-heads/export",
        "speed={num_lines: 3, warm_up: 0, repeats: 2, max_sentences: 3}",
        "output=run",
    )
    found = run("convert", *tiny_text, *own, "attention=talking_heads")
    assert found.status == 0, found.err
    given, converted = (Record.load(folder / "run" / place) for place in ("input", "converted"))
    assert (given.method, given.state, given.remaining_heads) == ("gradient", "pruned", 4)
    assert given.base_hash == converted.base_hash == Record.load(folder / "pruned" / "input").weights_hash
    assert converted.remaining_heads == 4 and converted.speed is not None and "ratio" not in converted.speed


@pytest.mark.usefixtures("without_figures")
def test_what_is_missing_is_reported(run: Run, copied: Path) -> None:
    shutil.rmtree(copied / "recovered")
    assert "unfinished: run (no record yet of recovered)" in run("report", "runs=run", "output=report").out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["attention=grouped_query", "attention.options.n_kv=3"],
            "attention.options of grouped_query: n_kv: 3; allowed are the divisors of its 2 heads",
        ),
        (
            ["attention=overlapping", "attention.options.overlap=9"],
            "attention.options of overlapping: overlap: 9; allowed are null and whole numbers from 0 to 8, the head",
        ),
        (["attention=by_kind", "attention.decoder_self=multi"], "attention: 'multi' is unknown; allowed are "),
        ([], "attention: multi_head, which the model has already; allowed is another, as grouped_query"),
        (["distillation.weight=0.5"], "distillation.weight: 0.5 without recovery; set trainer.max_steps"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(convert: Run, overrides: list[str], message: str) -> None:
    assert convert(*overrides).refused().startswith(f"prune-lab-convert: {message}")
