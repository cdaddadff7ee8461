"""prune-lab-translate: line in, line out, from files and through pipes."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab import Translator
from prune_lab.data.corpus import read_lines
from prune_lab.model.transformer import Transformer

Run = Callable[..., Any]
Pairs = list[tuple[str, str]]
SHORT = ["decoding=greedy", "decoding.max_length_a=5", "decoding.max_length_b=0"]
SCRIPT = "from prune_lab.commands.translate import main; main()"


@pytest.fixture
def lines(pairs: Pairs) -> list[str]:
    return [pairs[0][0], "", pairs[1][0], "  ", pairs[2][0]]


def test_c5_a_file_line_for_line(run: Run, folder: Path, export: Path, model: Transformer, lines: list[str]) -> None:
    Path("in.txt").write_text("\n".join(lines), encoding="utf-8")
    found = run("translate", f"export={export}", "input=in.txt", "output=out.txt")
    assert (found.status, found.out, found.err) == (0, "", "")
    expected = Translator(model).translate(lines)
    assert Path("out.txt").read_text(encoding="utf-8") == "".join(f"{line}\n" for line in expected)
    assert [index for index, line in enumerate(read_lines("out.txt")) if not line] == [1, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.parametrize("chunk", [1, 2, 2048])
def test_standard_input_to_standard_output(run: Run, folder: Path, export: Path, lines: list[str], chunk: int) -> None:
    text = "\ufeff" + "\r\n".join(lines) + "\r\n"
    found = run("translate", f"export={export}", *SHORT, f"chunk_lines={chunk}", stdin=text.encode("utf-8"))
    assert (found.status, found.err) == (0, "")
    Path("in.txt").write_text("\n".join(lines), encoding="utf-8")
    run("translate", f"export={export}", *SHORT, "input=in.txt", f"output={folder.parent / 'out.txt'}")
    assert found.out == (folder.parent / "out.txt").read_text(encoding="utf-8")
    assert [path.name for path in folder.iterdir()] == ["in.txt"]


def test_nothing_in_nothing_out(run: Run, export: Path) -> None:
    assert run("translate", f"export={export}", stdin=b"").out == ""
    assert run("translate", f"export={export}", stdin=b"\n").out == "\n"
    Path("empty").write_bytes(b"")
    run("translate", f"export={export}", "input=empty", "output=out")
    assert Path("out").read_bytes() == b""


def test_gzip_is_read_as_it_is(run: Run, export: Path, lines: list[str]) -> None:
    text = "\n".join(lines).encode("utf-8")
    Path("in.gz").write_bytes(gzip.compress(text))
    packed = run("translate", f"export={export}", *SHORT, "input=in.gz")
    assert packed.out == run("translate", f"export={export}", *SHORT, stdin=text).out
    assert packed.out.count("\n") == 5
    Path("in.gz").write_bytes(gzip.compress(text)[:-9])
    message = run("translate", f"export={export}", *SHORT, "input=in.gz", "output=out").refused()
    assert message.startswith("prune-lab-translate: in.gz is damaged gzip (")
    assert not Path("out").exists()


def test_gzip_is_written_where_the_name_says_so(run: Run, export: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode("utf-8")
    plain = run("translate", f"export={export}", *SHORT, stdin=text)
    assert run("translate", f"export={export}", *SHORT, "output=out.gz", stdin=text).status == 0
    assert gzip.decompress(Path("out.gz").read_bytes()).decode() == plain.out


def test_a_warning_names_the_line(run: Run, export: Path, lines: list[str]) -> None:
    text = "\n".join(["", lines[0], lines[0] * 30]).encode("utf-8")
    found = run("translate", f"export={export}", *SHORT, "batch.max_source_tokens=60", "chunk_lines=2", stdin=text)
    assert found.out.count("\n") == 3
    assert found.err == "warning: line 3 was cut to the first 60 source tokens\n"


def test_a_failure_keeps_the_output_that_was_there(run: Run, folder: Path, export: Path, lines: list[str]) -> None:
    Path("out.txt").write_text("before")
    Path("in.txt").write_bytes(lines[0].encode() + b"\n\nx\xff\n")
    arguments = [f"export={export}", *SHORT, "input=in.txt", "output=out.txt", "chunk_lines=1"]
    message = run("translate", *arguments).refused()
    assert message == "prune-lab-translate: in.txt is not UTF-8: line 3 holds the byte 0xff (invalid start byte)"
    assert Path("out.txt").read_text() == "before"
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out.txt"]


def test_a_file_may_be_its_own_output(run: Run, export: Path, lines: list[str]) -> None:
    Path("text").write_text("\n".join(lines), encoding="utf-8")
    assert run("translate", f"export={export}", *SHORT, "input=text", "output=text").status == 0
    assert len(read_lines("text")) == 5


def test_a_link_stays_a_link(run: Run, folder: Path, export: Path, lines: list[str]) -> None:
    Path("in.txt").write_text("\n".join(lines), encoding="utf-8")
    Path("kept.txt").write_text("before")
    Path("out.txt").symlink_to("kept.txt")
    assert run("translate", f"export={export}", *SHORT, "input=in.txt", "output=out.txt").status == 0
    assert Path("out.txt").is_symlink()
    assert len(read_lines("kept.txt")) == 5
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "kept.txt", "out.txt"]


@pytest.mark.skipif(not Path("/dev/fd/1").exists(), reason="no /dev/fd on this system")
def test_an_open_file_is_written_to_where_it_stands(folder: Path, export: Path, lines: list[str]) -> None:
    Path("log").write_text("before\n")
    with open("log", "ab") as log:
        command = [sys.executable, "-c", SCRIPT, f"export={export}", *SHORT, "output=/dev/fd/1"]
        subprocess.run(
            command, input=f"{lines[0]}\n".encode(), stdout=log, stderr=subprocess.PIPE, check=True, timeout=60
        )
    assert [line == "before" for line in read_lines("log")] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["input=nothing.txt"], "input=nothing.txt: no such file"),
        (["input=."], "input=.: is a directory; a file is needed"),
        (["output=."], "output=.: is a directory; the path of a file is needed"),
        (["input=''"], "input: ''; allowed is a path"),
        (["output=''"], "output: ''; allowed is a path"),
        (["output=a/b"], "output=a/b: its directory does not exist"),
        (["export=nothing"], "export=nothing: no such directory; an export holds config.json and model.safetensors"),
        (["export=.."], "export=..: not an export, it has no config.json"),
        (["decoding.beam_size=0"], "decoding.beam_size: 0; allowed are whole numbers from 1"),
        (["+decoding.temperature=1"], "unknown key decoding.temperature (value 1); allowed are beam_size, length_pe"),
        (["chunk_lines=0"], "chunk_lines: 0; allowed are whole numbers from 1"),
        (["batch.max_sentences=many"], "batch.max_sentences: 'many'; allowed are whole numbers from 1"),
        (["batch=3"], "batch: 3; allowed are the keys max_sentences, max_source_tokens"),
        (["device=gpu"], "device: 'gpu'; allowed here are auto, cpu"),
        (["device=meta"], "device: 'meta'; allowed here are auto, cpu"),
    ],
    ids=str,
)
def test_what_is_wrong(run: Run, folder: Path, export: Path, arguments: list[str], message: str) -> None:
    found = run("translate", f"export={export}", *arguments, stdin=b"a\n")
    assert found.refused().startswith(f"prune-lab-translate: {message}")
    assert list(folder.iterdir()) == []


def test_an_export_without_a_tokenizer(run: Run, folder: Path, small_model: Callable[..., Transformer]) -> None:
    small_model().save_pretrained(folder.parent / "bare")
    message = run("translate", "export=../bare", stdin=b"a\n").refused()
    assert message.startswith("prune-lab-translate: export=../bare: it has no tokenizer.json")


def test_a_reader_that_has_had_enough_is_no_error(folder: Path, export: Path, lines: list[str]) -> None:
    command = [sys.executable, "-c", SCRIPT, f"export={export}", *SHORT, "chunk_lines=1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(f"{lines[0]}\n".encode() * 500)
    process.stdin.close()
    assert process.stdout.readline().endswith(b"\n")  # while the rest is still to be translated
    process.stdout.close()
    assert process.stderr.read() == b"prune-lab-translate: starting\n"
    assert process.wait(timeout=60) == 141
    assert list(folder.iterdir()) == []


def test_odd_links_and_long_names(run: Run, folder: Path, export: Path, lines: list[str]) -> None:
    Path("in.txt").write_text(lines[0], encoding="utf-8")
    Path("loop").symlink_to("loop")
    Path("away").symlink_to("nowhere/out")
    given = [f"export={export}", *SHORT, "input=in.txt"]
    assert "output=loop: a link to itself" in run("translate", *given, "output=loop").refused()
    assert "output=away: its directory does not exist" in run("translate", *given, "output=away").refused()
    assert "output=x/: is a directory" in run("translate", *given, "output=x/").refused()
    name = "n" * 250
    assert run("translate", *given, f"output={name}").status == 0 and len(read_lines(name)) == 1


def test_memory_is_kept_between_batches(
    run: Run, export: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr("prune_lab.allocator.keep_freed_memory", lambda: kept.append(True))
    run("translate", f"export={export}", *SHORT, stdin="\n".join(lines).encode("utf-8"))
    assert kept == [True]
