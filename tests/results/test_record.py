"""Records: what goes in comes out, what does not belong in is refused, and old files stay whole."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prune_lab.results.record import FILE_NAME, Record


def test_a_record_survives_the_way_to_disk_and_back(tmp_path, record):
    original = record(config={"path": Path("a/b"), "sizes": (1, 2), "limit": float("inf"), "rate": np.float32(0.5)})
    path = original.save(tmp_path / "run")
    assert path == tmp_path / "run" / FILE_NAME
    loaded = Record.load(path)
    assert loaded == original
    assert Record.load(tmp_path / "run") == original
    assert loaded.directory == tmp_path / "run"
    assert loaded.path_of("export") == tmp_path / "run" / "export"
    assert loaded.config == {"path": "a/b", "sizes": [1, 2], "limit": "inf", "rate": 0.5}
    assert loaded.bleu == original.bleu, "full precision"


def test_the_file_is_strict_json_with_its_version_first(tmp_path, record):
    text = record(config={"x": float("nan")}).save(tmp_path).read_text()

    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(text, parse_constant=refuse)
    assert next(iter(data)) == "format_version" and data["format_version"] == 1
    assert "directory" not in data


def test_every_kind_of_number_becomes_plain(record):
    made = record(bleu=np.float64(30.5), seed=np.int64(3), parameters=np.int32(7))
    assert type(made.bleu) is float and type(made.seed) is int and type(made.parameters) is int


def test_unknown_keys_are_ignored(record):
    data = record().to_dict() | {"from_a_later_release": 1}
    assert Record.from_dict(data) == record()


@pytest.mark.parametrize(
    "key",
    ["method", "seed", "status", "state", "remaining_heads", "total_heads", "bleu", "bleu_signature", "decoding_kind"],
)
def test_a_missing_key_is_named_with_its_file(tmp_path, record, key):
    data = record().to_dict()
    del data[key]
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=rf"{FILE_NAME}: required record key '{key}' is missing") as error:
        Record.load(path)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "cut"}, "'state' is 'cut'; allowed are unpruned, masked, pruned"),
        ({"decoding_kind": "sampling"}, "allowed are greedy, beam"),
        ({"gate_evaluation": "half"}, "allowed are round, fraction"),
        ({"status": "running"}, "allowed are complete, failed"),
        ({"remaining_heads": 49}, "'remaining_heads' is 49; allowed is 0 to total_heads, 48"),
        ({"remaining_heads": 11}, "'heads' holds 12 heads, but the count recorded is 11"),
        ({"original_heads": {"encoder.0.self": 4}}, "'original_heads' holds 4 heads, but the count recorded is 48"),
        (
            {"heads": {"encoder.0.self": 3}, "original_heads": {}},
            "'heads.encoder.0.self' is 3; allowed is a list of head numbers",
        ),
        ({"state": "unpruned"}, "'state' is 'unpruned', but 12 of 48 heads remain"),
        ({"bleu": "31.2"}, "'bleu' is '31.2'; allowed is a finite number"),
        ({"bleu": float("nan")}, "'bleu' is 'nan'; allowed is a finite number"),
        ({"seed": True}, "'seed' is True; allowed is a whole number"),
        ({"settings": None}, "'settings' is None; allowed is a mapping"),
        ({"test_set": {"name": "x"}}, "'test_set' lacks 'references_hash'"),
        ({"export": "/somewhere/export"}, "allowed is a path relative to the record"),
        ({"speed": {"device": "cpu"}}, "'speed' lacks 'sentences_per_second'"),
        ({"speed": {"sentences_per_second": 1.0, "spread": [2, 1]}}, r"allowed is \[low, high\]"),
        ({"seconds": {"training": "long"}}, "'seconds.training' is 'long'; allowed is a number"),
        ({"attention": {"variant": "multi_head"}}, "'attention' lacks 'variant', a mapping"),
        ({"attention": {"variant": {}, "source_length": 25}}, "'attention' lacks 'target_length', a whole number"),
        ({"config": {"model": {"layer": object()}}}, "'config.model.layer' holds a object"),
    ],
)
def test_what_a_record_may_not_hold_is_named(record, changes, message):
    with pytest.raises(ValueError, match=message):
        record(**changes)


@pytest.mark.parametrize("key", ["parameters", "file_bytes", "attention", "speed"])
def test_a2_a_masked_record_carries_no_size_or_speed(record, attention_facts, key):
    plain = {"parameters": None, "file_bytes": None, "attention": None, "speed": None}
    assert record(state="masked", **plain).state == "masked"
    value = record(attention=attention_facts()).to_dict()[key]
    with pytest.raises(ValueError, match=f"'{key}' is set on a masked model"):
        record(state="masked", **(plain | {key: value}))


def test_records_of_earlier_releases_do_not_say_their_attention(record, attention_facts):
    data = record().to_dict()
    del data["attention"]
    assert Record.from_dict(data) == record() and Record.from_dict(data).attention is None
    assert Record.from_dict(record(attention=attention_facts()).to_dict()).attention == attention_facts()


def test_a_failed_record_needs_only_its_reason():
    failed = Record(method="gradient", seed=1, status="failed", reason="ValueError: no such file")
    assert not failed.complete and Record.from_dict(failed.to_dict()) == failed
    with pytest.raises(ValueError, match="'reason' is empty"):
        Record(method="gradient", seed=1, status="failed")


@pytest.mark.parametrize(("version", "shown"), [(2, "2"), (0, "0"), (None, "None"), ("1", "'1'")])
def test_another_format_version_is_refused(record, version, shown):
    with pytest.raises(ValueError, match=f"here.json: format_version is {shown}; this release reads 1 to 1"):
        Record.from_dict(record().to_dict() | {"format_version": version}, source="here.json")


def test_truncated_or_foreign_files_are_named(tmp_path, record):
    path = record().save(tmp_path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(ValueError, match="not valid JSON, the file may be truncated") as error:
        Record.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="a record is a JSON object, not list"):
        Record.load(path)
    with pytest.raises(FileNotFoundError, match="no such record"):
        Record.load(tmp_path / "elsewhere")


def test_the_point_joins_seeds(record):
    assert record(settings={"point": "weight 0.02"}).point == "weight 0.02"
    assert record(settings={}).point == record(settings={"point": None}).point == "12"
    assert record(label="").name == "gradient"


def test_records_and_collecting_need_neither_torch_nor_matplotlib():
    source = str(Path(__file__).parents[2] / "prune_lab")
    code = (
        "import sys\n"
        "for name in ('torch', 'matplotlib', 'hydra', 'pytorch_lightning'): sys.modules[name] = None\n"
        "import types\n"
        f"package = types.ModuleType('prune_lab'); package.__path__ = [{source!r}]\n"
        "sys.modules['prune_lab'] = package\n"
        "import prune_lab.results.record, prune_lab.results.collect, prune_lab.results.table\n"
        "import prune_lab.evaluation.scoring, prune_lab.evaluation.significance\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
