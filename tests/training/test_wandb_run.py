"""Runs in Weights & Biases: one for each job, ended with it, and an environment that stays as it was."""

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import wandb
from wandb.proto import wandb_internal_pb2

from prune_lab.training.callbacks.wandb_run import wandb_run


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no terminal, and no network."""
    for name in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_SERVICE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))


def records(content: bytes) -> Iterator[wandb_internal_pb2.Record]:
    """The records of a file in the log format of LevelDB, which wandb writes after a header of 7 bytes."""
    place, data = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # The rest of a block that has no room for a header.
            place += 32768 - place % 32768
            continue
        _, length, part = struct.unpack_from("<IHB", content, place)
        data += content[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):  # Whole, or the last part.
            yield wandb_internal_pb2.Record.FromString(data)
            data = b""


def offline_run(directory: Path) -> dict[str, Any]:
    """Id, configuration, figures and exit code of the only offline run in a directory."""
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    found: dict[str, Any] = {"config": {}, "names": set(), "exit_code": None}
    for record in records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["id"] = record.run.run_id
            found["config"] |= {item.key: item.value_json for item in record.run.config.update}
        elif kind == "history":
            found["names"] |= {item.key or "/".join(item.nested_key) for item in record.history.item}
        elif kind == "exit":
            found["exit_code"] = record.exit.exit_code
    return found


def job(directory: Path, seed: int) -> list[Any]:
    return [wandb_run(project="prune_lab", directory=directory, config={"seed": seed})]


def test_d5_three_runs_three_ids(task, train, tmp_path, capfd):
    before = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    for seed in (1, 2, 3):
        train(task.model(), tmp_path / str(seed), max_steps=2, loggers=job(tmp_path / str(seed), seed))
    runs = [offline_run(tmp_path / str(seed)) for seed in (1, 2, 3)]
    assert len({run["id"] for run in runs}) == 3
    assert [run["config"]["seed"] for run in runs] == ["1", "2", "3"]
    assert all({"train/nll", "validation/bleu"} <= run["names"] and run["exit_code"] == 0 for run in runs)
    assert wandb.run is None
    # The process of wandb, which all runs share, is named in the environment for the processes that this one starts.
    assert {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"} == before
    assert capfd.readouterr().err == ""


def test_training_that_goes_on_keeps_its_run(task, train, tmp_path, capfd):
    for max_steps in (2, 4):
        time.sleep(1)  # The directory that wandb makes has the second in its name.
        train(task.model(), tmp_path, max_steps=max_steps, loggers=job(tmp_path, 1))
    first, second = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert first.parent != second.parent and first.name == second.name
    assert (tmp_path / "wandb" / "id.txt").read_text() == f"{first.stem.removeprefix('run-')}\n"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "no id: \x00", "a/b"])
def test_an_id_that_cannot_be_is_replaced(task, train, tmp_path, content):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "id.txt").write_text(content)
    train(task.model(), tmp_path, max_steps=1, loggers=job(tmp_path, 1))
    assert (tmp_path / "wandb" / "id.txt").read_text().strip() == offline_run(tmp_path)["id"]


class Crash(pl.Callback):
    def on_train_batch_end(self, *_: Any) -> None:
        raise RuntimeError("crash")


def test_d5_a_crashed_job_is_marked_failed(task, train, tmp_path):
    with pytest.raises(RuntimeError, match="crash"):
        train(task.model(), tmp_path / "bad", callbacks=[Crash()], loggers=job(tmp_path / "bad", 1))
    train(task.model(), tmp_path / "good", max_steps=1, loggers=job(tmp_path / "good", 2))
    bad, good = offline_run(tmp_path / "bad"), offline_run(tmp_path / "good")
    assert (bad["exit_code"], good["exit_code"]) == (1, 0)
    assert bad["id"] != good["id"]


def mode(offline: bool | None) -> str:
    return wandb_run(project="p", directory="d", config={}, offline=offline)._wandb_init["mode"]


@pytest.mark.parametrize("key", [None, "0" * 40])
@pytest.mark.parametrize("offline", [None, True, False])
def test_a_users_disabled_stays(monkeypatch, key, offline):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    if key is not None:
        monkeypatch.setenv("WANDB_API_KEY", key)
    assert mode(offline) == "disabled"
    assert os.environ["WANDB_MODE"] == "disabled"


def test_a_disabled_run_leaves_nothing(task, train, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    train(task.model(), tmp_path, max_steps=1, loggers=job(tmp_path, 1))
    assert not list(tmp_path.glob("wandb/*run-*")) and not (tmp_path / "wandb" / "id.txt").exists()


@pytest.mark.parametrize(
    ("variable", "key", "offline", "expected"),
    [
        (None, False, None, "offline"),
        (None, True, None, "online"),
        (None, True, True, "offline"),
        ("offline", True, None, "offline"),
        ("dryrun", True, None, "offline"),
        ("offline", True, False, "online"),
        ("online", True, True, "offline"),
    ],
)
def test_the_mode(monkeypatch, variable, key, offline, expected):
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    if key:
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert mode(offline) == expected


@pytest.mark.parametrize(
    ("variable", "offline", "name"),
    [("online", None, "WANDB_MODE: online"), ("", False, "logger.wandb.offline: false")],
)
def test_online_needs_a_key(monkeypatch, variable, offline, name):
    monkeypatch.setenv("WANDB_MODE", variable)
    with pytest.raises(ValueError, match=f"{name} without a key; set WANDB_API_KEY") as error:
        mode(offline)
    assert "\n" not in str(error.value)
