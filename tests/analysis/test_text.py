"""Sentences of an analysis: where words stand in a text, trees and links in step with them, and what is wrong."""

import gzip
from pathlib import Path

import pytest

from prune_lab.analysis.text import (
    Sentence,
    Side,
    read_links,
    sentences_of_conllu,
    sentences_of_pairs,
    sentences_of_synthetic,
)
from prune_lab.data.conllu import ParsedSentence, read_conllu
from prune_lab.data.synthetic import generate


def parsed(*tokens: str) -> ParsedSentence:
    """Tokens with a space after each but those that end in ~, which is left out."""
    return ParsedSentence(
        tokens=tuple(token.removesuffix("~") for token in tokens),
        space_after=tuple(not token.endswith("~") for token in tokens),
        token_of=tuple(range(len(tokens))),
        heads=(0, *[1] * (len(tokens) - 1))[: len(tokens)],
        relations=("dep",) * len(tokens),
        tags=("X",) * len(tokens),
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def conllu(*sentences: str) -> str:
    """Words between spaces, each the head of the next."""
    blocks = []
    for words in sentences:
        rows = [
            f"{number}\t{word}\t_\tX\t_\t_\t{number - 1}\tdep\t_\t_"
            for number, word in enumerate(words.split(), start=1)
        ]
        blocks.append("\n".join(["# a sentence", *rows]))
    return "".join(block + "\n\n" for block in blocks)


def test_words_of_plain_text_stand_between_white_space() -> None:
    side = Side.of_text(" \ta house,  no\u00a0home\u3000.\u2028x ")
    assert side.words == ("a", "house,", "no", "home", ".", "x")
    assert side.spans[:2] == ((2, 3), (4, 10)) and side.parse is None
    assert Side.of_text("").spans == Side.of_text(" \n").spans == ()


def test_text_of_a_tree_has_spaces_where_the_file_says() -> None:
    parse = parsed("„~", "Wie~", "?~", "“", "sagt", "er~", ".")
    side = Side.of_parse(parse)
    assert side.text == "„Wie?“ sagt er." and side.words == parse.tokens
    assert Side.of_parse(parse, tokenized=True).text == "„ Wie ? “ sagt er ."
    assert Side.of_parse(parse, tokenized=True).words == parse.tokens
    assert Side.of_parse(parsed("Ja~")).text == Side.of_parse(parsed("Ja"), tokenized=True).text == "Ja"
    assert Side.of_parse(parsed()) == Side(text="", spans=(), parse=parsed())


def test_lower_case_may_be_longer() -> None:
    parse = parsed("İSTANBUL", "GROẞ~", "İ~", "!")
    for tokenized in (False, True):
        side = Side.of_parse(parse, tokenized=tokenized, lowercase=True)
        assert side.words == ("i̇stanbul", "groß", "i̇", "!")
        assert side.parse is parse
    assert len(side.words[0]) == len("İSTANBUL") + 1


def test_right_to_left_text_is_in_the_order_in_which_it_is_read() -> None:
    parse = parsed("كتب", "الولد~", "،", "ثم", "שלום~", ".")
    side = Side.of_parse(parse)
    assert side.text == "كتب الولد، ثم שלום." and side.words == parse.tokens
    assert list(side.spans) == sorted(side.spans)


def test_words_with_spaces_and_spaces_at_ends_stay_whole() -> None:
    parse = parsed("10 000", "x\u00a0")
    side = Side.of_parse(parse)
    assert side.words == ("10 000", "x\u00a0") and side.text == "10 000 x\u00a0"


def test_a_tree_needs_a_word_for_each_token() -> None:
    assert Side.of_text("a b", parsed("a", "b")).parse is not None
    with pytest.raises(ValueError, match=r"^parse: 2 tokens for the 3 words of 'a b c'; allowed is one for each$"):
        Side.of_text("a b c", parsed("a", "b"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_texts_of_a_treebank_come_out_as_its_comments_say(language: str, treebank_directory: Path) -> None:
    path = treebank_directory / f"{language}_pud-ud-test.conllu.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        texts = [line.removeprefix("# text = ").rstrip("\n") for line in stream if line.startswith("# text = ")]
    sentences = list(read_conllu(path))
    assert len(sentences) == 1000 and [Side.of_parse(sentence).text for sentence in sentences] == texts
    assert all(sentence.heads.count(0) == 1 for sentence in sentences)


def test_pairs_of_plain_text_with_and_without_links() -> None:
    pairs = [("a b", "X"), ("", "Y")]
    plain = list(sentences_of_pairs(pairs))
    assert [(each.source.text, each.target.text, each.links) for each in plain] == [("a b", "X", None), ("", "Y", None)]
    linked = list(sentences_of_pairs(iter(pairs), iter([frozenset({(1, 0)}), frozenset()])))
    assert [each.links for each in linked] == [{(1, 0)}, frozenset()]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            [{(1, 0)}, {(0, 1)}],
            r"^links of sentence pair 2: 0-1; there are 1 source and 1 target words, numbered from 0$",
        ),
        ([{(2, 0)}, set()], r"^links of sentence pair 1: 2-0; there are 2 source"),
        ([set()], r"^links: 1 lines of links, and more of the other; allowed is one line for each pair$"),
        ([set()] * 3, r"^links: 2 sentence pairs, and more of the other"),
    ],
)
def test_links_that_do_not_fit_are_refused(links: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(sentences_of_pairs([("a b", "X"), ("c", "Y")], map(frozenset, links)))


def test_links_of_an_aligner(tmp_path: Path) -> None:
    path = write(tmp_path / "links.txt", "0-0 1-2\t12-3\n\n2p0 1?1 2p0\n")
    assert list(read_links(path)) == [{(0, 0), (1, 2), (12, 3)}, frozenset(), {(2, 0), (1, 1)}]
    packed = tmp_path / "links.gz"
    packed.write_bytes(gzip.compress(b"0-0\r\n1-1"))
    assert list(read_links(packed)) == [{(0, 0)}, {(1, 1)}]


@pytest.mark.parametrize("item", ["0", "0-", "-1-0", "1_1", "a-0", "0-0-0", "1.0-0", "٣-0"])
def test_items_that_are_no_links_are_named_with_their_line(item: str, tmp_path: Path) -> None:
    path = write(tmp_path / "links.txt", f"0-0\n1-1 {item} 2-2\n")
    with pytest.raises(ValueError) as error:
        list(read_links(path))
    assert str(error.value) == f"{path}, line 2: {item!r}; allowed are links such as 0-0, with words from 0"


def test_a_file_of_links_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist"):
        list(read_links(tmp_path / "none.txt"))


def test_parallel_trees(tmp_path: Path) -> None:
    source, target = (
        write(tmp_path / "a", conllu("Ein Haus", "", "Ja")),
        write(tmp_path / "b", conllu("A home", "", "Y")),
    )
    alone = list(sentences_of_conllu(source))
    assert [each.source.text for each in alone] == ["Ein Haus", "", "Ja"]
    assert all(each.target is None and each.links is None for each in alone)
    links = [frozenset({(1, 1)}), frozenset(), frozenset({(0, 0)})]
    both = list(sentences_of_conllu(source, target, links, lowercase=True))
    assert [(each.source.text, each.target.text) for each in both] == [("ein haus", "a home"), ("", ""), ("ja", "y")]
    assert [each.links for each in both] == links
    assert both[0].source.parse.tokens == ("Ein", "Haus")
    assert both[0].target.parse.heads == (0, 1)


def test_trees_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    two, three = write(tmp_path / "two", conllu("a", "b")), write(tmp_path / "three", conllu("a", "b", "c"))
    for source, target in ((two, three), (three, two)):
        with pytest.raises(ValueError) as error:
            list(sentences_of_conllu(source, target))
        assert str(error.value) == f"unequal sentence counts: {two} has 2 sentences, {three} has more"
    with pytest.raises(ValueError, match="^links: given without a target side"):
        list(sentences_of_conllu(two, None, []))
    with pytest.raises(ValueError, match=r"^links of sentence pair 2: 0-1; there are 1 source and 1 target"):
        list(sentences_of_conllu(two, two, [frozenset(), frozenset({(0, 1)})]))
    with pytest.raises(ValueError, match="^links: 1 lines of links, and more of the other"):
        list(sentences_of_conllu(two, two, [frozenset()]))
    broken = write(tmp_path / "broken", conllu("a") + "1\tx\n")
    with pytest.raises(ValueError, match="broken, line 4: 2 columns"):
        list(sentences_of_conllu(two, broken))


def test_the_synthetic_language_has_trees_and_links() -> None:
    pairs = generate(num_pairs=20)
    for sentence, pair in zip(sentences_of_synthetic(pairs), pairs, strict=True):
        assert isinstance(sentence, Sentence) and sentence.target is not None
        assert (sentence.source.text, sentence.target.text) == (pair.source, pair.target)
        assert sentence.source.words == tuple(pair.source.split()) == sentence.source.parse.tokens
        assert sentence.target.parse.heads == pair.target_heads and sentence.source.parse.tags == pair.source_tags
        assert sentence.links == set(pair.alignment)
