"""prune-lab-translate: translate text, line in, line out."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

from prune_lab.commands import origin
from prune_lab.commands.entry import command
from prune_lab.commands.settings import BATCH, decoding_options, model_source, whole_number, whole_numbers
from prune_lab.commands.streams import named
from prune_lab.data.lines import stream_lines


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    for key, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if config[key] is None and stream is None:
            raise ValueError(f"{key}: null, but standard {key} is closed; allowed is a path")
        if config[key] is not None and (not isinstance(config[key], str) or not config[key].strip()):
            raise ValueError(f"{key}: {config[key]!r}; allowed is a path")
    if config["input"] is not None:
        if Path(config["input"]).is_dir():
            raise ValueError(f"input={config['input']}: is a directory; a file is needed")
        if not Path(config["input"]).exists():
            raise FileNotFoundError(f"input={config['input']}: no such file")
    if config["output"] is not None:
        if Path(config["output"]).is_dir():
            raise ValueError(f"output={config['output']}: is a directory; the path of a file is needed")
        try:
            whole = Path(config["output"]).resolve()
        except (OSError, RuntimeError):
            raise ValueError(f"output={config['output']}: a link to itself; allowed is the path of a file") from None
        if not (Path(config["output"]).absolute().parent.is_dir() and whole.parent.is_dir()):
            raise FileNotFoundError(f"output={config['output']}: its directory does not exist")
        if config["output"].endswith("/"):
            raise ValueError(f"output={config['output']}: is a directory; the path of a file is needed")
    model_source(config["export"])
    decoding_options(config["decoding"])
    whole_numbers(config["batch"], "batch", BATCH)
    whole_number(config["chunk_lines"], "chunk_lines")


def run(config: dict[str, Any]) -> None:
    """Reads, translates and writes, a chunk at a time."""
    from prune_lab.allocator import keep_freed_memory
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.generate import translate_stream

    keep_freed_memory()
    model = origin.read_model(config["export"], "export").to(choose_device(config["device"]))
    options = decoding_options(config["decoding"])
    with _read(config["input"]) as lines, _write(config["output"]) as target:
        for found in translate_stream(model, lines, options, chunk_lines=config["chunk_lines"], **config["batch"]):
            target.write("".join(f"{line}\n" for line in found.lines).encode("utf-8"))
            target.flush()


@contextmanager
def _read(path: str | None) -> Iterator[Iterator[str]]:
    if path is None:
        yield stream_lines(sys.stdin.buffer, "standard input")
    else:
        with open(path, "rb") as file:
            yield stream_lines(file, path)


@contextmanager
def _write(path: str | None) -> Iterator[BinaryIO]:
    """A file that is there once it is whole; standard output when None."""
    if path is None:
        with named("standard output"):
            yield sys.stdout.buffer
    elif _written_in_place(path):
        with named(path), open(path, "ab") as file:
            yield file
    else:
        whole = Path(path).resolve()  # what a link points to is replaced, never the link
        temporary = whole.with_name(f".{whole.name[:200]}.{os.getpid()}.tmp")
        try:
            with named(path), open(temporary, "wb") as file, _packed(file, path) as target:
                yield target
            os.replace(temporary, whole)
        finally:
            temporary.unlink(missing_ok=True)


def _packed(file: BinaryIO, path: str) -> AbstractContextManager[BinaryIO]:
    """The file, or a gzip stream into it where its name says so."""
    if Path(path).suffix != ".gz":
        return nullcontext(file)
    return cast("AbstractContextManager[BinaryIO]", gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))


def _written_in_place(path: str) -> bool:
    """Devices, pipes and open files (/dev/stdout, also where it leads to a plain file) cannot be replaced."""
    folder = Path(path).absolute().parent.resolve()
    open_file = folder == Path("/dev") or folder.is_relative_to("/proc")
    return open_file or (Path(path).exists() and not Path(path).is_file())


main = command("translate", run, check=check, writes_directory=False)
