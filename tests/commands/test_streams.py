"""Standard streams that are closed, pipes that nobody reads, and disks that are full: a status, and one line."""

import io
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from prune_lab.commands import translate
from prune_lab.commands.streams import named
from prune_lab.decoding.options import DecodingOptions
from prune_lab.results.record import Record

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


@contextmanager
def small_files() -> Iterator[None]:
    """No file of this process grows beyond 10 kB: what a full disk is like.

    Not longer than the command runs, since pytest may write to a file itself.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def standard_output(stream: TextIO) -> Iterator[None]:
    """Another stream in the place of the one that pytest captures."""
    with stream, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        yield


def unread_pipe() -> TextIO:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(writer, "w")))


def speak(config: dict[str, Any], directory: Path) -> None:
    print("a result")


def speak_at_once(config: dict[str, Any], directory: Path) -> None:
    print("a result", flush=True)


@pytest.mark.parametrize("work", [speak, speak_at_once])
@pytest.mark.parametrize("more", [[], ["--multirun", "seed=1,2"]], ids=["run", "multirun"])
def test_a_reader_that_has_gone_ends_the_command_quietly(
    run_dummy: Run, work: Callable[..., None], more: list[str]
) -> None:
    with standard_output(unread_pipe()):
        found = run_dummy(work, *more)
    assert found.status == 141
    assert "Traceback" not in found.err and "rror" not in found.err


def test_standard_error_that_takes_nothing_keeps_no_command_from_its_work(
    run_dummy: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        logging.getLogger("prune_lab").warning("half way")
        (directory / "result.txt").write_text("done")

    for stream in (unread_pipe(), io.TextIOWrapper(open("/dev/null", "rb"))):  # noqa: SIM115
        with monkeypatch.context() as patched, stream:
            patched.setattr(sys, "stderr", stream)
            assert run_dummy(work, "output=run").status == 0
            assert Path("run/result.txt").read_text() == "done"
            patched.setattr(sys, "stderr", stream)
            assert run_dummy(work, "output=run", "decoding.beam_size=x", check=refuse).status == 2


def refuse(config: dict[str, Any]) -> None:
    DecodingOptions(**config["decoding"])


def test_a_broken_pipe_of_another_kind_is_a_bug(run_dummy: Run) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb", buffering=0) as pipe:
            pipe.write(b"x")

    found = run_dummy(work)
    assert found.status == 1 and "BrokenPipeError" in found.err


@needs_full
@pytest.mark.parametrize("work", [speak, speak_at_once])
@pytest.mark.parametrize("is_buffered", [True, False], ids=["buffered", "unbuffered"])
def test_standard_output_on_a_full_disk(run_dummy: Run, work: Callable[..., None], is_buffered: bool) -> None:
    with standard_output(
        io.TextIOWrapper(open("/dev/full", "wb", buffering=-1 if is_buffered else 0), write_through=not is_buffered)
    ):
        found = run_dummy(work)
    assert found.refused() == "prune-lab-dummy: standard output: no space left on device"


@needs_full
def test_a_full_disk_is_told_with_the_directory(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        with open("/dev/full", "w") as file:
            file.write("a result")

    found = run_dummy(work, "output=run")
    assert found.refused() == "prune-lab-dummy: run: no space left on device"


def test_a_file_that_may_not_grow_is_told_and_nothing_else_is_said(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        (directory / "first.txt").write_text("x")
        (directory / "result.txt").write_text("x" * 100_000)

    with small_files():
        found = run_dummy(work, "output=run")
    assert found.refused() == "prune-lab-dummy: run: file too large"
    assert Record.load("run").reason == "OSError: run: file too large"


def test_a_record_that_finds_no_room_hides_no_reason(run_dummy: Run, folder: Path) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        (directory / "first.txt").write_text("x")
        raise RuntimeError("x" * 20_000)

    with small_files():
        found = run_dummy(work, "output=run")
    assert found.status == 1 and "RuntimeError: xxx" in found.err and "OSError" not in found.err


def test_names_that_are_too_long_for_a_file(run_dummy: Run, folder: Path) -> None:
    told = run_dummy(speak, f"output={'x' * 300}").refused()
    assert told.startswith("prune-lab-dummy: xxx") and told.endswith("...: file name too long") and len(told) < 200
    told = run_dummy(speak, "--multirun", f"output={'x' * 300}", "seed=1,2").refused()
    assert told.endswith("...: file name too long")
    assert list(folder.iterdir()) == []


def test_what_is_written_is_named_once() -> None:
    with pytest.raises(OSError) as error, named("outer"), named("inner"):
        raise OSError(28, "No space left on device")
    assert error.value.filename == "inner"
    with pytest.raises(OSError) as error, named("outer"):
        raise OSError(5, "Input/output error")
    assert error.value.filename is None


@pytest.mark.parametrize(("stream", "key"), [("stdin", "input"), ("stdout", "output")])
def test_translation_needs_the_stream_that_it_reads_or_writes(
    export: Path, monkeypatch: pytest.MonkeyPatch, stream: str, key: str
) -> None:
    config = {
        "export": str(export),
        "input": None,
        "output": None,
        "decoding": {},
        "batch": {},
        "chunk_lines": 1,
    }
    translate.check(config)
    with monkeypatch.context() as patched:
        patched.setattr(sys, stream, None)
        with pytest.raises(ValueError, match=f"^{key}: null, but standard {key} is closed; allowed is a path$"):
            translate.check(config)


CLOSED = """
import os, sys
from prune_lab.commands.streams import drop_rest, fill_closed, flush
fill_closed()
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("to nobody", file=sys.stderr)
flush()
drop_rest()
os.write(file, f"{file} {sys.stdin} {sys.stdout}".encode())
"""


def test_closed_streams_give_no_file_their_place(tmp_path: Path) -> None:
    """A library that prints would write into whatever has number 1 or 2."""
    path = tmp_path / "file"
    command = f'exec "{sys.executable}" -c "$CODE" "{path}" <&- >&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CODE": CLOSED}
    ended = subprocess.run(["bash", "-c", command], env=environment, check=False)
    number, *others = path.read_text().split()
    assert ended.returncode == 0 and int(number) > 2 and others == ["None", "None"]


def test_the_first_line_says_that_the_work_begins(run_dummy: Run) -> None:
    found = run_dummy(speak, "seed=2")
    assert found.started.startswith("prune-lab-dummy: starting, results go to outputs/dummy/seed-2_")
    assert (found.out, found.err) == ("a result\n", "")
    assert run_dummy(lambda config: print("a result"), writes_directory=False).started == "prune-lab-dummy: starting"


def test_other_processes_of_a_run_do_not_say_it_again(run_dummy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert run_dummy(speak, "output=run").started == ""
