"""CoNLL-U files become sentences with trees; lines that are none are named with their numbers."""

import gzip
from pathlib import Path

import pytest

from prune_lab.data.conllu import ParsedSentence, read_conllu


def line(number: object, form: str, head: object = "_", relation: str = "_", tag: str = "X", misc: str = "_") -> str:
    return "\t".join([str(number), form, "_", tag, "_", "_", str(head), relation, "_", misc])


# A multi-word token, empty nodes, comments between words, and no space before a full stop.
WHOLE = "\n".join(
    [
        "# sent_id = 1",
        "# text = Er geht zum Haus.",
        line(1, "Er", 2, "nsubj", "PRON"),
        line(2, "geht", 0, "root", "VERB"),
        line("2.1", "geht"),
        line("3-4", "zum"),
        line(3, "zu", 5, "case", "ADP", "SpaceAfter=No"),
        "# in between",
        line(4, "dem", 5, "det", "DET"),
        line(5, "Haus", 2, "obl:arg", "NOUN", "Translit=haus|SpaceAfter=No"),
        line(6, ".", 2, "punct", "PUNCT", "SpacesAfter=\\n"),
    ]
)
PARSED = ParsedSentence(
    tokens=("Er", "geht", "zum", "Haus", "."),
    space_after=(True, True, True, False, True),
    token_of=(0, 1, 2, 2, 3, 4),
    heads=(2, 0, 5, 5, 2, 2),
    relations=("nsubj", "root", "case", "det", "obl:arg", "punct"),
    tags=("PRON", "VERB", "ADP", "DET", "NOUN", "PUNCT"),
)
SHORT = line(1, "Ja", 0, "root")
NOTHING = ParsedSentence(tokens=(), space_after=(), token_of=(), heads=(), relations=(), tags=())


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_sentence_as_it_stands_in_the_file(tmp_path: Path) -> None:
    (found,) = read_conllu(write(tmp_path / "a.conllu", WHOLE + "\n\n"))
    assert found == PARSED and found.num_words == 6


@pytest.mark.parametrize(
    "content",
    [
        f"{WHOLE}\n\n{SHORT}\n\n",
        f"{WHOLE}\n\n{SHORT}\n",
        f"{WHOLE}\n\n{SHORT}",
        f"\n\n{WHOLE}\n\n \n\t\n{SHORT}\n\n\n",
        f"\ufeff{WHOLE}\n\n{SHORT}\n\n",
        f"{WHOLE}\n\n{SHORT}\n\n".replace("\n", "\r\n"),
        gzip.compress(f"{WHOLE}\n\n{SHORT}\n\n".encode()),
    ],
    ids=["whole", "no blank line at the end", "no newline", "more blank lines", "byte order mark", "CRLF", "gzip"],
)
def test_files_in_every_form_hold_the_same(content: str | bytes, tmp_path: Path) -> None:
    found = list(read_conllu(write(tmp_path / "a.conllu", content)))
    assert found[0] == PARSED and [sentence.num_words for sentence in found] == [6, 1]


def test_sentences_without_words_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", f"# sent_id = 1\n\n{SHORT}\n\n# sent_id = 3\n# text =\n\n8.1\t_" + "\t_" * 8)
    assert [sentence == NOTHING for sentence in read_conllu(path)] == [True, False, True, True]
    assert list(read_conllu(write(tmp_path / "b.conllu", "\n\n"))) == []


def test_words_are_read_as_they_are(tmp_path: Path) -> None:
    rows = [line(1, "10 000", 0), line(2, "a  b", 1), line(3, "_", 1), line(4, "#", 1), line(5, '"', "_", "", "")]
    (found,) = read_conllu(write(tmp_path / "a.conllu", "\n".join(rows)))
    assert found.tokens == ("10 000", "a  b", "_", "#", '"')
    assert found.heads == (0, 1, 1, 1, None)
    assert (found.relations[4], found.tags[4]) == ("_", "_")


def test_any_graph_of_heads_will_do(tmp_path: Path) -> None:
    rows = [line(1, "a", 2), line(2, "b", 1), line(3, "c", 0), line(4, "d", 0), line(5, "e", "_")]
    (found,) = read_conllu(write(tmp_path / "a.conllu", "\n".join(rows)))
    assert found.heads == (2, 1, 0, 0, None)


@pytest.mark.parametrize(
    ("broken", "number", "what"),
    [
        ("1 Ja _ X", 3, "1 columns; allowed are 10, with tabs between them"),
        (line(1, "Ja", 0) + "\t_", 3, "11 columns; allowed are 10"),
        ("Text without any column", 3, "1 columns"),
        (line("one", "Ja"), 3, "id 'one'; allowed are whole numbers, 3-4 for a multi-word token"),
        (line("_", "Ja"), 3, "id is blank; allowed are whole numbers"),
        (line("", "Ja"), 3, "id is blank"),
        (line("2-1", "Ja"), 3, "id '2-1'; allowed are"),
        (line(1, ""), 3, "form is blank"),
        (line(1, "\u3000"), 3, "form is blank"),
        (line(1, "Ja", "zero"), 3, "head 'zero'; allowed are whole numbers from 0, and _ for none"),
        (line(1, "Ja", "1.5"), 3, "head '1.5'"),
        (line(1, "Ja", -1), 3, "head -1 of word 1; allowed are 0 to 1 but the word itself"),
        (line(1, "Ja", 1), 3, "head 1 of word 1; allowed"),
        (f"{line(1, 'a', 2)}\n{line(2, 'b', 3)}", 4, "head 3 of word 2; allowed are 0 to 2"),
        (f"{line(1, 'a', 5)}\n{line(2, 'b', 0)}", 3, "head 5 of word 1"),
        (line(2, "Ja", 0), 3, "word 2 follows word 0; allowed are words in order, numbered from 1"),
        (line(0, "Ja", 0), 3, "word 0 follows word 0"),
        (f"{SHORT}\n{SHORT}", 4, "word 1 follows word 1"),
        (f"{SHORT}\n{line(3, 'c', 1)}", 4, "word 3 follows word 1"),
        (f"{line('1-2', 'ab')}\n{line(1, 'a', 0)}", 3, "a multi-word token up to word 2 in a sentence of 1"),
        (f"{line('2-3', 'ab')}\n{SHORT}", 3, "multi-word token 2-3 follows word 0; allowed is one before its words"),
        (f"{SHORT}\n{line('1-2', 'ab')}", 4, "multi-word token 1-2 follows word 1"),
        (f"{line('1-3', 'abc')}\n{SHORT}\n{line('2-3', 'bc')}", 5, "multi-word token 2-3 follows word 1"),
    ],
)
def test_broken_lines_are_named_with_their_numbers(broken: str, number: int, what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", f"{SHORT}\n\n{broken}\n\n{SHORT}\n\n")
    sentences = read_conllu(path)
    assert next(sentences).tokens == ("Ja",)
    with pytest.raises(ValueError) as error:
        list(sentences)
    assert str(error.value).startswith(f"{path}, line {number}: {what}") and "\n" not in str(error.value)


def test_files_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing.conllu does not exist"):
        list(read_conllu(tmp_path / "missing.conllu"))
    with pytest.raises(ValueError, match="is a directory"):
        list(read_conllu(tmp_path))
    latin = write(tmp_path / "latin.conllu", f"{SHORT}\n{line(2, 'größe', 1)}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.conllu is not UTF-8: line 2 holds the byte 0xf6"):
        list(read_conllu(latin))
    with pytest.raises(ValueError, match=r"cut\.conllu is damaged gzip"):
        list(read_conllu(write(tmp_path / "cut.conllu", gzip.compress(f"{SHORT}\n\n".encode() * 99)[:40])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space_after": (True,)}, "^1 space_after for 5 tokens; allowed is one each$"),
        ({"heads": (0,)}, "^1 heads for 6 words; allowed is one for each$"),
        ({"relations": ()}, "^0 relations for 6 words"),
        ({"tags": ("X",) * 7}, "^7 tags for 6 words"),
        ({"token_of": (0, 1, 2, 2, 3, 5)}, "^word 6 is in token 5; allowed are 0 to 4$"),
        ({"token_of": (-1, 1, 2, 2, 3, 4)}, "^word 1 is in token -1"),
        ({"heads": (7, 0, 5, 5, 2, 2)}, "^head 7 of word 1; allowed are 0 to 6 but the word itself$"),
        ({"heads": (1, 0, 5, 5, 2, 2)}, "^head 1 of word 1"),
    ],
)
def test_sentences_that_do_not_fit_together_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParsedSentence(**{**vars(PARSED), **changes})


def test_sentences_of_plain_words() -> None:
    found = ParsedSentence.of_words(["a", "b"], [2, 0], ["det", "root"], ["DET", "NOUN"])
    assert (found.tokens, found.space_after, found.token_of) == (("a", "b"), (True, True), (0, 1))
    assert (found.heads, found.relations, found.tags) == ((2, 0), ("det", "root"), ("DET", "NOUN"))
