"""Tokenizers give back the line they were given, mark nothing in a text as special, and are known by their hash."""

import json
import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from prune_lab.data.corpus import read_lines
from prune_lab.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, UNKNOWN_SHOWN, Tokenizer

PAIRS = [
    ("The old house stands at the corner.", "Das alte Haus steht an der Ecke."),
    ("A house , a corner &amp; a garden .", "ein haus , eine ecke & ein garten ."),
    ("Größe 42 (or 43)?", "„Straße“ — naïve café: 10 €"),
    ("日本語 の 文", "Ελληνικά και עברית и русский"),
    ("family 👨‍👩‍👧‍👦 and flag 🇩🇪", "zero\u200bwidth and e\u0301 accents \U0001d54f"),
    ("<pad> <s> </s> <unk> < pad >", "[PAD] a<pad>b ##x @@ y@@ z"),
]
KINDS = ["bpe", "words"]


def words_of(line: str) -> str:
    return unicodedata.normalize("NFC", " ".join(line.split()))


@pytest.fixture(scope="module", params=[(kind, joint) for kind in KINDS for joint in (True, False)], ids=str)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, joint = request.param
    return Tokenizer.train(PAIRS, kind=kind, joint=joint, vocab_size=400)


def test_training_text_comes_back_exactly(tokenizer: Tokenizer) -> None:
    for source, target in PAIRS:
        assert tokenizer.decode_source(tokenizer.encode_source(source)) == words_of(source)
        assert tokenizer.decode_target(tokenizer.encode_target(target)) == words_of(target)


def test_marks_stand_at_the_ends_and_nowhere_else(tokenizer: Tokenizer) -> None:
    for source, target in PAIRS:
        source_ids, target_ids = tokenizer.encode_source(source), tokenizer.encode_target(target)
        assert source_ids[-1] == EOS_ID
        assert (target_ids[0], target_ids[-1]) == (BOS_ID, EOS_ID)
        for ids in (source_ids[:-1], target_ids[1:-1]):
            assert min(ids) > UNK_ID
        assert max(source_ids) < tokenizer.source_vocab_size
        assert max(target_ids) < tokenizer.target_vocab_size


def test_marks_written_in_a_text_are_text() -> None:
    texts = ["<pad>", "</s>", "<s>", "<unk>", "a<pad>b", "< pad >", "< s >", "< /s >", "< unk >"]
    for kind in KINDS:
        tokenizer = Tokenizer.train([(text, text) for text in texts * 50], kind=kind, vocab_size=100)
        for text in texts:
            ids = tokenizer.encode_source(text)
            assert min(ids[:-1]) > UNK_ID, (kind, text)
            assert tokenizer.decode_source(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_text_is_shown_as_such(kind: str) -> None:
    tokenizer = Tokenizer.train([("a house of cards", "ein haus")], kind=kind)
    ids = tokenizer.encode_source("a Ж of 你好 cards")
    assert UNK_ID in ids
    assert tokenizer.decode_source(ids) == f"a {UNKNOWN_SHOWN} of {UNKNOWN_SHOWN} cards"


def test_blank_lines_are_only_marks(tokenizer: Tokenizer) -> None:
    for line in ("", "   ", "\t\u3000\u2028"):
        assert tokenizer.encode_source(line) == [EOS_ID]
        assert tokenizer.encode_target(line) == [BOS_ID, EOS_ID]
    assert tokenizer.decode_target([BOS_ID, EOS_ID, PAD_ID]) == ""


def test_white_space_of_every_kind_is_one_space(tokenizer: Tokenizer) -> None:
    line = "\u3000 the\u2028old\x85house\x0b\x1c stands\u00a0\tat \r"
    assert tokenizer.encode_source(line) == tokenizer.encode_source("the old house stands at")


def test_decoded_lines_never_hold_a_line_end() -> None:
    generator = random.Random(1)
    lines = [
        "".join(chr(generator.choice([*range(1, 0x300), *range(0x2000, 0x2100), 0x2581, 0xFEFF])) for _ in range(60))
    ]
    lines += [line[::-1] for line in lines]
    tokenizer = Tokenizer.train([(line, line) for line in lines], vocab_size=2000)
    for line in lines:
        decoded = tokenizer.decode_source(tokenizer.encode_source(line))
        assert len(decoded.splitlines()) == 1
        assert decoded == " ".join(unicodedata.normalize("NFC", line).replace("▁", "_").split())
        assert tokenizer.decode_source(tokenizer.encode_source(decoded)) == decoded


def test_half_a_surrogate_pair_is_read_as_a_replacement_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_source("house \ud800 corner") == tokenizer.encode_source("house ? corner")


def test_many_lines_give_the_ids_of_single_lines(tokenizer: Tokenizer) -> None:
    sources, targets = [source for source, _ in PAIRS], [target for _, target in PAIRS]
    assert tokenizer.encode_sources(sources) == [tokenizer.encode_source(line) for line in sources]
    assert tokenizer.encode_targets(targets) == [tokenizer.encode_target(line) for line in targets]
    assert tokenizer.encode_sources([]) == []


def test_sides_are_joint_or_separate() -> None:
    joint = Tokenizer.train(PAIRS, joint=True, vocab_size=150)
    assert joint.joint and joint.source_vocab_size == joint.target_vocab_size
    assert joint.encode_source("Haus")[:-1] == joint.encode_target("Haus")[1:-1]
    separate = Tokenizer.train(PAIRS, joint=False, source_vocab_size=110, target_vocab_size=160)
    assert (separate.source_vocab_size, separate.target_vocab_size) == (110, 160)


def test_sizes_are_kept_and_rare_characters_give_way() -> None:
    characters = "".join(chr(code) for code in range(0x4E00, 0x4F00))
    tokenizer = Tokenizer.train([("common words are common words " * 20, characters)], vocab_size=64)
    assert tokenizer.source_vocab_size <= 64
    assert UNK_ID not in tokenizer.encode_source("common words are")
    words = Tokenizer.train([("a a a b b c", "d")], kind="words", min_frequency=2)
    assert [words.decode_source(words.encode_source(word)) for word in "abc"] == ["a", "b", UNKNOWN_SHOWN]
    assert Tokenizer.train([("a a a b b c", "d")], kind="words", vocab_size=6).source_vocab_size == 6


def pieces_of(tokenizer: Tokenizer, line: str) -> list[str]:
    return [tokenizer.decode_source([index]) for index in tokenizer.encode_source(line)[:-1]]


def test_punctuation_of_raw_text_is_a_piece_of_its_own() -> None:
    pairs = [("A house.", "Ein Haus, ein Haus.")] * 20
    split = Tokenizer.train(pairs, vocab_size=200)
    assert pieces_of(split, "A house.") == ["A", "house", "."]
    whole = Tokenizer.train(pairs, vocab_size=200, split_punctuation=False)
    assert pieces_of(whole, "A house.") == ["A", "house."]


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_in_every_process(kind: str, tmp_path: Path) -> None:
    pairs = [(f"{source} {number % 17}", target) for number in range(300) for source, target in PAIRS]
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    program = (
        "import json, sys; from prune_lab.data.tokenizer import Tokenizer; "
        "print(Tokenizer.train(json.load(open(sys.argv[1])), kind=sys.argv[2], vocab_size=300).hash)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path / "pairs.json"), kind]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == Tokenizer.train(pairs, kind=kind, vocab_size=300).hash


def test_a_stored_tokenizer_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path, expected_hash=tokenizer.hash)
    assert (loaded.hash, loaded.kind, loaded.joint) == (tokenizer.hash, tokenizer.kind, tokenizer.joint)
    for source, target in PAIRS:
        assert loaded.encode_source(source) == tokenizer.encode_source(source)
        assert loaded.encode_target(target) == tokenizer.encode_target(target)
    assert list(tmp_path.iterdir()) == [path]


def test_c11_swapped_entries_are_refused_with_both_hashes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    content = json.loads(path.read_text())
    vocabulary = content["source"]["model"]["vocab"]
    first, second = list(vocabulary)[4:6]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(content))
    swapped = Tokenizer.load(path)
    assert swapped.source_vocab_size == tokenizer.source_vocab_size
    with pytest.raises(ValueError) as refusal:
        Tokenizer.load(path, expected_hash=tokenizer.hash)
    assert swapped.hash in str(refusal.value)
    assert tokenizer.hash in str(refusal.value)


def test_files_that_are_no_tokenizer_are_refused_by_name(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        Tokenizer.load(path)
    tokenizer.save(path)
    content = json.loads(path.read_text())
    for text in (
        "no json",
        "[]",
        "{}",
        json.dumps({**content, "format_version": 99}),
        json.dumps({**content, "kind": "letters"}),
        json.dumps({**content, "source": {}}),
        json.dumps({**content, "source": None}),
        path.read_text()[:100],
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match="tokenizer.json") as refusal:
            Tokenizer.load(path)
        assert "\n" not in str(refusal.value)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="tokenizer.json"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "letters"}, "letters.*bpe, words"),
        ({"vocab_size": 5}, "^tokenizer.vocab_size: 5; allowed are whole numbers from 6 to 10000000$"),
        ({"vocab_size": "8000"}, "^tokenizer.vocab_size: '8000'; allowed are whole numbers from 6"),
        ({"vocab_size": 8e3}, "^tokenizer.vocab_size: 8000.0; allowed are whole numbers from 6"),
        ({"vocab_size": None}, "^tokenizer.vocab_size: None; allowed are whole numbers from 6"),
        ({"vocab_size": 10**11}, "^tokenizer.vocab_size: 100000000000; allowed are whole numbers from 6"),
        ({"joint": False, "target_vocab_size": 2}, "^tokenizer.target_vocab_size: 2; allowed"),
        ({"joint": False, "source_vocab_size": 0}, "^tokenizer.source_vocab_size: 0; allowed"),
        ({"joint": "yes"}, "^tokenizer.joint: 'yes'; allowed are true and false$"),
        ({"source_vocab_size": 100}, "joint=False"),
        ({"min_frequency": 0}, "^tokenizer.min_frequency: 0; allowed are whole numbers from 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Tokenizer.train(PAIRS, **settings)


@pytest.mark.parametrize("form", ["", ".lc.norm.tok"])
def test_multi30k_comes_back_exactly(multi30k_directory: Path, form: str) -> None:
    sources = read_lines(multi30k_directory / f"train{form}.en.gz")[:4000]
    targets = read_lines(multi30k_directory / f"train{form}.de.gz")[:4000]
    tokenizer = Tokenizer.train(zip(sources, targets, strict=True), vocab_size=2000)
    decoded = [tokenizer.decode_target(ids) for ids in tokenizer.encode_targets(targets)]
    assert decoded == [words_of(line) for line in targets]
    if form:
        assert decoded == targets
