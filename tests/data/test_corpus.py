"""Parallel text is read line for line, from every kind of source, and what is wrong with it is told in one line."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import Corpus, Part, TextFiles, load_corpus, read_lines, read_pairs
from prune_lab.data.splits import SPLITS, load_splits
from prune_lab.data.tables import HubDataset, JsonLines, ParquetFile
from prune_lab.data.tokenizer import Tokenizer

CONFIGURATIONS = sorted((Path(__file__).parents[2] / "conf" / "data").glob("*.yaml"))
PAIRS = [("a house", "ein Haus"), ("", "leer"), ("ü\u2028ber", "x\x0by\x85z")]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def message_of(error: pytest.ExceptionInfo) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    odd = "form\x0cfeed\x0b \x1c \x1d \x1e \x85 \u2028 \u2029 lone\rreturn"
    path = write(tmp_path / "a.txt", f"one\r\n{odd}\n\n  \nlast")
    assert read_lines(path) == ["one", odd, "", "  ", "last"]
    assert read_lines(write(tmp_path / "b.txt", "one\ntwo\n")) == ["one", "two"]
    assert read_lines(write(tmp_path / "c.txt", "one\n\n")) == ["one", ""]
    assert read_lines(write(tmp_path / "d.txt", "")) == []


def test_byte_order_marks_and_gzip_are_seen_through(tmp_path: Path) -> None:
    content = "\ufeffGröße\nzwei\n".encode()
    assert read_lines(write(tmp_path / "plain", content)) == ["Größe", "zwei"]
    assert read_lines(write(tmp_path / "packed.gz", gzip.compress(content))) == ["Größe", "zwei"]
    assert read_lines(write(tmp_path / "plain.gz", content)) == ["Größe", "zwei"]


def test_files_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing.txt") as error:
        read_lines(tmp_path / "missing.txt")
    message_of(error)
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8: line 3 .*0xf6"):
        read_lines(write(tmp_path / "latin.txt", "eins\nzwei\nhören\n".encode("latin-1")))
    with pytest.raises(ValueError, match="cut.gz is damaged gzip"):
        read_lines(write(tmp_path / "cut.gz", gzip.compress(b"one two three\n" * 99)[:30]))
    with pytest.raises(ValueError, match="is a directory"):
        read_lines(tmp_path)


def test_c5_blank_lines_are_read_and_dropped_for_training(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "one\n\nthree\n \nfive")
    target = write(tmp_path / "a.de", "eins\nzwei\ndrei\nvier\nfünf")
    pairs = read_pairs(source, target)
    assert pairs == [("one", "eins"), ("", "zwei"), ("three", "drei"), (" ", "vier"), ("five", "fünf")]
    tokenizer = Tokenizer.train(pairs, kind="words", joint=False)
    corpus = EncodedCorpus.encode(tokenizer, pairs)
    assert corpus.line_numbers.tolist() == [1, 3, 5] and corpus.num_empty == 2


def test_streams_of_two_files_hold_the_pairs_that_are_read(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "\ufeffone\r\n\nthree")
    target = write(tmp_path / "a.de.gz", gzip.compress(b"eins\nzwei\ndrei\n"))
    files = TextFiles(source=source, target=target)
    assert list(files.stream()) == files.read().pairs == [("one", "eins"), ("", "zwei"), ("three", "drei")]
    short = write(tmp_path / "short.de", "eins\nzwei\n")
    for files in (TextFiles(source=source, target=short), TextFiles(source=short, target=source)):
        pairs = files.stream()
        next(pairs), next(pairs)
        with pytest.raises(ValueError) as error:
            next(pairs)
        assert message_of(error) == f"unequal line counts: {short} has 2 lines, {source} has more"
    latin = write(tmp_path / "latin.de", "eins\nf\xfcnf\n".encode("latin-1"))
    pairs = TextFiles(source=source, target=latin).stream()
    assert next(pairs) == ("one", "eins")
    with pytest.raises(ValueError, match=r"latin\.de is not UTF-8: line 2"):
        next(pairs)
    for missing in ({"source": tmp_path / "no.en", "target": target}, {"source": source, "target": tmp_path / "no.de"}):
        with pytest.raises(FileNotFoundError, match=r"no\...\b"):
            next(TextFiles(**missing).stream())


@pytest.mark.parametrize("split", SPLITS)
def test_c6_unequal_line_counts_name_both_files_and_counts(tmp_path: Path, split: str) -> None:
    source = write(tmp_path / "short.en", "line\n" * 99)
    target = write(tmp_path / "long.de.gz", gzip.compress(b"line\n" * 99 + b"line"))
    with pytest.raises(ValueError) as error:
        read_pairs(source, target)
    for named in (str(source), str(target), "99 lines", "100"):
        assert named in message_of(error)
    good = {"source": str(source), "target": str(source)}
    config = text_config(**{name: good for name in SPLITS})
    config[split] = {"source": str(source), "target": str(target)}
    with pytest.raises(ValueError) as error:
        load_splits(config)
    for named in (str(source), str(target), "99 lines", "100"):
        assert named in message_of(error)


def test_c6_errors_come_early_and_without_large_imports(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "line\n" * 100_000)
    target = write(tmp_path / "a.de", "line\n" * 99_999)
    program = (
        "import sys\nfrom prune_lab.data.splits import load_splits\n"
        f"config = {text_config(train={'source': str(source), 'target': str(target)})!r}\n"
        "try:\n    load_splits(config)\nexcept ValueError as error:\n    print(error)\n"
        "print([name for name in ('torch', 'datasets', 'pytorch_lightning', 'omegaconf') if name in sys.modules])"
    )
    start = time.perf_counter()
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root())
    assert time.perf_counter() - start < 5
    told, imported = output.stdout.splitlines()
    assert "100000 lines" in told and "99999" in told
    assert imported == "[]"


def test_a_corpus_with_no_text_is_refused(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", "one\n \n"), write(tmp_path / "a.de", "\nzwei\n")
    with pytest.raises(ValueError, match=r"none of the 2 pairs of .*a\.en and .*a\.de"):
        load_corpus(TextFiles(source=source, target=target))
    with pytest.raises(ValueError, match="none of the 0 pairs"):
        load_corpus(TextFiles(source=write(tmp_path / "b", ""), target=write(tmp_path / "c", "")))


def test_sides_of_a_corpus() -> None:
    corpus = Corpus(pairs=PAIRS, name="train", origin="here")
    assert (corpus.sources, corpus.targets) == ([pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS])
    assert len(corpus) == 3


ROWS = [
    {"id": number, "en": source, "de": target, "text": {"original": source}}
    for number, (source, target) in enumerate(PAIRS)
]
TRANSLATIONS = [
    {"id": str(number), "translation": {"de": target, "en": source}} for number, (source, target) in enumerate(PAIRS)
]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


@pytest.mark.parametrize("rows", [ROWS, TRANSLATIONS], ids=["columns", "translation"])
def test_tables_hold_the_same_pairs_in_every_form(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    columns = {"source_column": "en", "target_column": "de"}
    jsonl = write_jsonl(tmp_path / "a.jsonl", rows)
    packed = write(tmp_path / "a.jsonl.gz", gzip.compress(jsonl.read_bytes()))
    parquet = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    for source in (
        JsonLines(path=jsonl, **columns),
        JsonLines(path=packed, **columns),
        ParquetFile(path=parquet, **columns),
    ):
        source.check()
        assert source.read().pairs == PAIRS


def test_columns_can_be_paths(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ROWS)
    assert JsonLines(path=path, source_column="text.original", target_column="de").read().pairs == PAIRS


def test_null_is_blank(tmp_path: Path) -> None:
    rows = [{"en": "a", "de": "b"}, {"en": None, "de": "c"}]
    jsonl = write_jsonl(tmp_path / "a.jsonl", rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    expected = [("a", "b"), ("", "c")]
    assert JsonLines(path=jsonl, source_column="en", target_column="de").read().pairs == expected
    assert ParquetFile(path=tmp_path / "a.parquet", source_column="en", target_column="de").read().pairs == expected


def test_missing_columns_name_the_file_and_the_columns_there_are(tmp_path: Path) -> None:
    jsonl = write_jsonl(tmp_path / "a.jsonl", TRANSLATIONS)
    parquet = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(TRANSLATIONS), parquet)
    for source in (
        JsonLines(path=jsonl, source_column="en", target_column="fr"),
        ParquetFile(path=parquet, source_column="en", target_column="fr"),
    ):
        for read in (source.check, source.read):
            with pytest.raises(ValueError) as error:
                read()
            for named in (str(source.path), "'fr'", "id, translation.de, translation.en"):
                assert named in message_of(error)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"en": "a"}', "line 2 has no text in column 'de'"),
        ('{"en": "a", "de": 5}', "line 2 has no text in column 'de'"),
        ('{"en": "a", ', "line 2 is no JSON"),
        ("[1, 2]", r"line 2 holds \[1, 2\]"),
        ('{"en": ' + "[" * 100_000, "line 2 is nested too deeply"),
        ('{"en": "a", "de": ' + "1" * 5000 + "}", "line 2 is no JSON"),
        (
            r'{"en": "a", "de": "b \ud83d"}',
            r"line 2 has half of a surrogate pair, \\ud83d, in column 'de'; it must hold Unicode text",
        ),
    ],
    ids=lambda text: text[:40],
)
def test_rows_that_cannot_be_used_are_named_by_line(tmp_path: Path, line: str, named: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"en": "a", "de": "b"}\n' + line + "\n")
    with pytest.raises(ValueError, match=named) as error:
        JsonLines(path=path, source_column="en", target_column="de").read()
    assert str(path) in message_of(error)


def test_columns_are_found_beside_a_value_that_is_nested_deeply(tmp_path: Path) -> None:
    nested = '{"a": ' * 400 + "1" + "}" * 400
    path = write(tmp_path / "a.jsonl", f'{{"more": {nested}, "en": "a \\ud83d\\ude00", "de": "b"}}\n')
    source = JsonLines(path=path, source_column="en", target_column="de")
    source.check()
    assert source.read().pairs == [("a \U0001f600", "b")], "both halves of a pair are one character"


@pytest.mark.parametrize("compression", ["snappy", "gzip", "none"])
def test_damaged_parquet_pages_are_refused_by_name(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"en": f"sentence {number}", "de": f"Satz {number}"} for number in range(2000)]
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, path, compression=compression, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:8000] = bytes(byte ^ 0xA5 for byte in content[4:8000])
    path.write_bytes(content)
    source = ParquetFile(path=path, source_column="en", target_column="de")
    source.check()  # the schema is at the end of the file
    with pytest.raises(ValueError, match="a.parquet is a damaged parquet file") as error:
        source.read()
    message_of(error)


def test_text_in_a_table_must_be_utf_8(tmp_path: Path) -> None:
    broken = pyarrow.array([b"h\xf6ren"]).view(pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 1, broken.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"en": text, "de": ["b"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="column 'en' is not UTF-8, it holds the byte 0xf6") as error:
        ParquetFile(path=tmp_path / "a.parquet", source_column="en", target_column="de").read()
    message_of(error)


def test_parquet_files_are_refused_by_name(tmp_path: Path) -> None:
    columns = {"source_column": "en", "target_column": "id"}
    with pytest.raises(FileNotFoundError, match="missing.parquet"):
        ParquetFile(path=tmp_path / "missing.parquet", **columns).check()
    with pytest.raises(ValueError, match="text.parquet is no parquet file") as error:
        ParquetFile(path=write(tmp_path / "text.parquet", "no table\n"), **columns).check()
    message_of(error)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="'id' holds int64"):
        ParquetFile(path=tmp_path / "a.parquet", **columns).read()


@pytest.fixture
def hub_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set as the hub keeps it, with the tables of one configuration in a folder of their own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for split in SPLITS:
        folder = tmp_path / "hub" / "en-de" / split
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(TRANSLATIONS), folder / "0000.parquet")
    return tmp_path / "hub"


def test_hub_data_sets_are_read_by_split_and_column(hub_directory: Path) -> None:
    config = {
        "kind": "hub",
        "source_language": "en",
        "target_language": "de",
        "dataset": str(hub_directory),
        "data_dir": "en-de",
        "train": {"split": "train"},
        "validation": {"split": "validation[:1]"},
        "test": None,
    }
    splits = load_splits(config)
    assert splits.available == ("train", "validation")
    assert splits.train.pairs == PAIRS
    assert splits.validation.pairs == PAIRS[:1]
    with pytest.raises(ValueError, match="data.test is not set; data=hub needs data.test.split"):
        _ = splits.test
    with pytest.raises(ValueError, match="no column 'fr'; it has id, translation.de, translation.en"):
        _ = load_splits({**config, "target_language": "fr"}).train
    with pytest.raises(ValueError, match="data set .*nothing.* cannot be loaded") as error:
        HubDataset(dataset=str(hub_directory / "nothing"), split="train", source_column="en", target_column="de").read()
    message_of(error)


def test_parts_divide_a_source_without_common_sentences(tmp_path: Path) -> None:
    lines = [f"line {number % 700}" for number in range(1000)]
    path = write(tmp_path / "a", "\n".join(lines))
    whole = TextFiles(source=path, target=path)
    parts = [Part(whole=whole, start=start, stop=stop).read().pairs for start, stop in ((0, 0.8), (0.8, 0.9), (0.9, 1))]
    assert sorted(pair for part in parts for pair in part) == sorted(whole.read().pairs)
    assert 700 < len(parts[0]) < 900
    sentences = [{source for source, _ in part} for part in parts]
    assert not (sentences[0] & sentences[1] or sentences[0] & sentences[2] or sentences[1] & sentences[2])
    assert parts[1] == Part(whole=whole, start=0.8, stop=0.9).read().pairs
    with pytest.raises(ValueError, match=r"part is \[0.5, 1.5\]"):
        Part(whole=whole, start=0.5, stop=1.5)


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    """Whatever lines a source leaves out: blank ones of JSONL, and those of other parts."""
    rows = [json.dumps({"en": f"line {number}", "de": "Zeile"}) for number in range(1, 101)]
    rows[6] = rows[50] = " "
    path = write(tmp_path / "a.jsonl", "\n".join(rows))
    whole = JsonLines(path=path, source_column="en", target_column="de")
    part = Part(whole=whole, start=0.2, stop=0.4)
    for source, least in ((whole, 98), (part, 5)):
        corpus = load_corpus(source)
        assert len(corpus) == len(corpus.line_numbers or ()) >= least
        assert [f"line {number}" for number in corpus.line_numbers or ()] == corpus.sources
        tokenizer = Tokenizer.train(corpus.pairs, kind="words")
        encoded = EncodedCorpus.encode(tokenizer, [("", ""), *corpus.pairs[1:]], corpus.line_numbers)
        assert encoded.line_numbers.tolist() == list(corpus.line_numbers or ())[1:]


def text_config(**splits: Any) -> dict[str, Any]:
    return {"name": "text", "kind": "text", "source_language": "en", "target_language": "de", **splits}


def root() -> Path:
    return Path(__file__).parents[2]


def test_only_the_split_that_is_wanted_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "one\n")
    config = text_config(
        train={"source": path, "target": path}, test={"source": tmp_path / "none", "target": tmp_path / "none"}
    )
    splits = load_splits(config, check=["train"])
    assert splits.train.pairs == [("one", "one")]
    assert splits.train is splits.train
    with pytest.raises(FileNotFoundError, match="none"):
        _ = splits.test
    with pytest.raises(FileNotFoundError, match="none"):
        load_splits(config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "csv"}, "data.kind is 'csv'; allowed: text, jsonl"),
        ({"directory": "x"}, "unknown key data.directory .*allowed: name, kind"),
        ({"train": {"path": "x"}}, "unknown key data.train.path .*allowed: source, target, part"),
        ({"train": {"source": "x"}}, "data.train.target is not set"),
        ({"train": "x.en"}, "data.train is 'x.en'"),
        ({"train": {"source": "x", "target": "x", "part": 5}}, "data.train.part is 5"),
        ({"lowercase": "maybe"}, "data.lowercase is 'maybe'; allowed: true, false"),
        ({"target_language": None}, "data.target_language is None"),
        ({"kind": "hub", "train": {"split": "train"}}, "data.dataset is None"),
        ({"kind": "synthetic", "train": {"num_pairs": "many"}}, "data.train.num_pairs is 'many'"),
        ({"kind": "synthetic", "train": {"num_pairs": 5}, "options": {"num_cats": 3}}, "num_cats"),
        ({"kind": "synthetic", "train": {"num_pairs": 5}, "options": 3}, "data.options is 3; it must be a mapping"),
        ({"kind": "synthetic", "train": {"num_pairs": True}}, "data.train.num_pairs is True"),
        ({"kind": ["text"]}, r"data.kind is \['text'\]; allowed: text, jsonl"),
        ({"train": {"source": 3, "target": "x"}}, "data.train.source is 3; it must be text"),
        ({"kind": "jsonl", "train": {"path": ["a"]}}, r"data.train.path is \['a'\]; it must be text"),
        ({"kind": "jsonl", "source_column": 3}, "data.source_column is 3; it must be text"),
        ({"kind": "multi30k", "directory": 3}, "data.directory is 3; it must be text"),
        ({"kind": "multi30k", "directory": "x", "tokenized": "yes"}, "data.tokenized is 'yes'; allowed: true, false"),
        ({"score_tokenize": 13}, "data.score_tokenize is 13; it must be text"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as error:
        load_splits({**text_config(), **change})
    message_of(error)


@pytest.mark.parametrize("config", [None, 3, "text", ["text"]])
def test_a_configuration_is_a_mapping(config: Any) -> None:
    with pytest.raises(ValueError, match="^data is .*; it must be a mapping with the key kind$"):
        load_splits(config)


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_ready_configurations_resolve(path: Path) -> None:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name in config.pop("defaults", ()):
        config = {**yaml.safe_load(path.with_stem(name).read_text(encoding="utf-8")), **config}
    assert config["name"] == path.stem
    for key, value in config.items():
        if isinstance(value, str):
            for side in ("source", "target"):
                value = value.replace(f"${{.{side}_language}}", config[f"{side}_language"])
            config[key] = value
    if path.stem == "hub":
        config["dataset"] = "some/name"
    splits = load_splits(config)
    assert splits.score_tokenize in ("13a", "none")
    assert splits.available == (() if path.stem in ("text", "jsonl", "parquet") else SPLITS)


def test_synthetic_pairs_come_from_the_generator() -> None:
    config = {
        "kind": "synthetic",
        "source_language": "source",
        "target_language": "target",
        "seed": 3,
        "train": {"num_pairs": 20},
        "test": {"num_pairs": 10},
    }
    splits = load_splits(config)
    assert len(splits.train) == 20 and len(splits.test) == 10
    assert not set(splits.train.sources) & set(splits.test.sources)


@pytest.mark.parametrize("packed", [True, False])
def test_multi30k_directories_hold_both_forms(tmp_path: Path, packed: bool) -> None:
    for stem in ("train", "val", "test_2016_flickr"):
        for form in ("", ".lc.norm.tok"):
            for language in ("en", "de"):
                content = f"{stem}{form} {language}\n".encode()
                name = f"{stem}{form}.{language}"
                write(tmp_path / (f"{name}.gz" if packed else name), gzip.compress(content) if packed else content)
    config = {
        "kind": "multi30k",
        "source_language": "en",
        "target_language": "de",
        "directory": str(tmp_path),
        "tokenized": False,
        "dataset": "bentrevett/multi30k",
    }
    raw = load_splits(config)
    assert (raw.score_tokenize, raw.validation.pairs) == ("13a", [("val en", "val de")])
    tokenised = load_splits({**config, "tokenized": True})
    assert tokenised.score_tokenize == "none"
    assert tokenised.test.pairs == [("test_2016_flickr.lc.norm.tok en", "test_2016_flickr.lc.norm.tok de")]
    with pytest.raises(FileNotFoundError, match="test_2017_flickr.en"):
        load_splits({**config, "test_set": "test_2017_flickr"})
    with pytest.raises(FileNotFoundError, match="data.directory=/no/such"):
        load_splits({**config, "directory": "/no/such"})
    with pytest.raises(ValueError, match="data.tokenized is true"):
        load_splits({**config, "directory": None, "tokenized": True})


def test_multi30k_is_complete(multi30k_directory: Path) -> None:
    config = {
        "kind": "multi30k",
        "source_language": "en",
        "target_language": "de",
        "directory": str(multi30k_directory),
    }
    splits = load_splits({**config, "tokenized": True})
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [29_000, 1014, 1000]
