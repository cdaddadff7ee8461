"""Files appear whole or not at all, under names that shells and Hydra take unquoted."""

import os
import re
import stat

import pytest

from prune_lab.results.files import hash_lines, relative_path, safe_name, write_atomically


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "new" / "results.csv"
    assert write_atomically(path, "first\n") == path
    write_atomically(path, b"second\n")
    assert path.read_bytes() == b"second\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["results.csv"]


def test_a_failed_write_leaves_the_previous_file(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "record.json", "whole")

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "half")
    assert path.read_text() == "whole"
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]


def test_written_files_are_as_readable_as_the_umask_says(tmp_path):
    previous = os.umask(0o022)
    try:
        path = write_atomically(tmp_path / "record.json", "x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "text", ["gradient+recovery, 24 heads", "penalty.weight=0.02", "a[b]'c'\"d\" (e)", "..", "", "日本", "-x-", "a/b"]
)
def test_d9_names_have_no_characters_that_need_quotes(text):
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", safe_name(text))


def test_names_that_are_safe_stay():
    assert safe_name("hard_concrete-0.02") == "hard_concrete-0.02"


def test_relative_paths_and_hashes(tmp_path):
    assert relative_path(tmp_path / "a" / "export", tmp_path / "b") == "../a/export"
    assert hash_lines(["ab", "c"]) != hash_lines(["a", "bc"])
    assert hash_lines(["ä"]) == hash_lines(iter(["ä"]))
