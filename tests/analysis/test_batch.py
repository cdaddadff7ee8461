"""Pieces are of the words whose characters they hold, in any tokenizer; batches say of each position what it is."""

import random
import unicodedata

import pytest
import torch
from made_views import batch_of, random_sentences, words_batch

from prune_lab.analysis.batch import NO_WORD, batch_sentences, encode_sentences, words_of_pieces
from prune_lab.analysis.text import Sentence, Side
from prune_lab.data.conllu import ParsedSentence
from prune_lab.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer

KINDS = (
    {"kind": "bpe", "split_punctuation": True},
    {"kind": "bpe", "split_punctuation": False},
    {"kind": "words"},
)


@pytest.mark.parametrize(
    ("pieces", "words", "expected"),
    [
        ([(0, 2), (2, 5), (5, 9)], [(0, 5), (6, 9)], [0, 0, 1]),
        # A piece over two words is of the one that it has most of, the first of equals.
        ([(0, 3), (3, 6)], [(0, 1), (1, 4), (4, 6)], [1, 2]),
        ([(0, 4)], [(0, 2), (2, 4)], [0]),
        ([(0, 6)], [(0, 1), (1, 2), (2, 4), (4, 6)], [2]),
        # Pieces of white space: before a word, after the last one, and far from any.
        ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [(1, 2), (3, 4)], [0, 0, 1, 1, NO_WORD]),
        ([(0, 1), (1, 3)], [(2, 3)], [NO_WORD, 0]),
        ([(0, 0), (0, 2), (2, 2)], [(0, 2), (2, 3)], [0, 0, 1]),
        ([(0, 2)], [], [NO_WORD]),
        ([], [(0, 2)], []),
        # Characters between words are of none, unless a word begins after them.
        ([(0, 2), (2, 3), (3, 4), (4, 6)], [(0, 2), (4, 6)], [0, NO_WORD, 1, 1]),
    ],
)
def test_words_of_pieces(pieces: list, words: list, expected: list) -> None:
    assert words_of_pieces(pieces, words) == expected


def _by_counting(piece: tuple[int, int], words: list[tuple[int, int]]) -> int:
    shared = [len(set(range(*piece)) & set(range(*word))) for word in words]
    if any(shared):
        return shared.index(max(shared))
    return next((number for number, word in enumerate(words) if word[0] == piece[1]), NO_WORD)


def test_words_of_pieces_equals_counting_characters() -> None:
    draw = random.Random(1)
    for _ in range(500):
        length = draw.randint(1, 30)
        words = _random_spans(draw, length, gaps=0.3)
        pieces = _random_spans(draw, length, gaps=0.1)
        assert words_of_pieces(pieces, words) == [_by_counting(piece, words) for piece in pieces]


def _random_spans(draw: random.Random, length: int, gaps: float) -> list[tuple[int, int]]:
    cuts = sorted({0, length, *(draw.randint(0, length) for _ in range(draw.randint(0, 10)))})
    return [span for span in zip(cuts, cuts[1:], strict=False) if draw.random() >= gaps]


ALPHABET = ["a", "b", "ß", "é", "e\u0301", "\u212b", "\u0958", "한", "\u1112\u1161\u11ab", "ن", ".", ",", "(", "’", "▁"]
UNKNOWN = ["Ж", "你", "\U0001d54f", "q\u0307\u0323"]


def _random_line(draw: random.Random) -> str:
    def word() -> str:
        return "".join(draw.choice(ALPHABET + UNKNOWN * draw.randint(0, 1)) for _ in range(draw.randint(1, 6)))

    def gap() -> str:
        return draw.choice([" ", " ", "  ", "\t ", "\u3000"])

    return draw.choice(["", gap()]) + "".join(word() + gap() for _ in range(draw.randint(1, 6))).rstrip(
        draw.choice([" ", ""])
    )


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_pieces_of_words_spell_them(options: dict) -> None:
    draw = random.Random(5)
    text = [" ".join("".join(draw.choices(ALPHABET, k=4)) for _ in range(5)) for _ in range(200)]
    tokenizer = Tokenizer.train([(line, line) for line in text], vocab_size=80, **options)
    lines = [_random_line(draw) for _ in range(300)]
    encoded, spans = tokenizer.encode_sources(lines), tokenizer.source_spans(lines)
    num_unknown = 0
    for line, ids, of_line in zip(lines, encoded, spans, strict=True):
        assert len(of_line) == len(ids) - 1
        side = Side.of_text(line)
        found = words_of_pieces(of_line, side.spans)
        assert found == sorted(found) and set(found) == set(range(len(side.spans)))
        for number, word in enumerate(side.words):
            own = [piece for piece, of_word in enumerate(found) if of_word == number]
            # Spans have the word, and no more than the white space before it; of characters that NFC makes one of, the
            # library may give the first alone.
            (covered,) = line[of_line[own[0]][0] : of_line[own[-1]][1]].split()
            assert word.startswith(covered)
            assert len(unicodedata.normalize("NFC", covered)) == len(unicodedata.normalize("NFC", word))
            if UNK_ID in [ids[piece] for piece in own]:
                num_unknown += 1
                continue
            spelt = tokenizer.decode_source([ids[piece] for piece in own])
            assert spelt == unicodedata.normalize("NFC", word).replace("▁", "_")
    assert 0 < num_unknown < 1500


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_spans_of_both_sides_are_those_of_their_ids(options: dict) -> None:
    pairs = [("ab ba", "XY, YX"), ("aab", "XXY YY")]
    tokenizer = Tokenizer.train(pairs, joint=False, vocab_size=40, **options)
    for source, target in [*pairs, ("", "  "), ("ab  \ud800 b", "Y\ud800")]:
        assert len(tokenizer.source_spans([source])[0]) == len(tokenizer.encode_source(source)) - 1
        assert len(tokenizer.target_spans([target])[0]) == len(tokenizer.encode_target(target)) - 2
    assert tokenizer.source_spans([]) == []


def test_a_word_before_whose_unknown_characters_a_space_stands_alone() -> None:
    tokenizer = Tokenizer.train([("a b a b", "a")] * 9, vocab_size=12)
    (spans,) = tokenizer.source_spans(["Ж b 你"])
    assert words_of_pieces(spans, Side.of_text("Ж b 你").spans) == [0, 0, 1, 2, 2]


def test_a_batch_says_what_its_positions_are() -> None:
    batch = words_batch(("a b , a", "X"), ("c", "Y Z !"))
    assert batch.source.ids.shape == (2, 5) and batch.target.ids.shape == (2, 4)
    source, target = batch.source, batch.target
    assert (source.ids == EOS_ID).nonzero().tolist() == [[0, 4], [1, 1]]
    assert (target.ids == BOS_ID).nonzero().tolist() == [[0, 0], [1, 0]] and not (target.ids == EOS_ID).any()
    assert source.is_real.tolist() == [[True] * 5, [True, True, False, False, False]]
    assert source.is_piece.tolist() == [[True] * 4 + [False], [True] + [False] * 4]
    assert target.is_piece.tolist() == [[False, True, False, False], [False, True, True, True]]
    assert source.is_punctuation.tolist() == [[False, False, True, False, False], [False] * 5]
    assert target.is_punctuation.tolist() == [[False] * 4, [False] * 3 + [True]]
    assert source.word.tolist() == [[0, 1, 2, 3, NO_WORD], [0] + [NO_WORD] * 4]
    assert target.word.tolist() == [[NO_WORD, 0, NO_WORD, NO_WORD], [NO_WORD, 0, 1, 2]]
    assert (source.num_words, target.num_words) == (4, 3)
    assert source.members.sum((1, 2)).tolist() == [4, 1]
    assert source.has_pieces.tolist() == [[True] * 4, [True, False, False, False]]
    # "a" twice, the others once, and where they are alone there is none rarer.
    assert batch.num_rarer[0, :4].tolist() == [2, 0, 0, 2] and batch.num_rarer[1, 0] == 0
    assert (batch.num_rarer[~source.is_piece] > 5).all()


def test_padding_stands_after_all() -> None:
    batch = batch_of(random_sentences(7, seed=2))
    for side in (batch.source, batch.target):
        lengths = side.is_real.sum(1)
        assert lengths.max() == side.ids.shape[1]
        for row, length in zip(side.ids.tolist(), lengths.tolist(), strict=True):
            assert PAD_ID not in row[:length] and set(row[length:]) <= {PAD_ID}


def test_rarity_is_that_of_the_whole_text() -> None:
    pairs = [("a b c", "x"), ("a b d", "x"), ("a e e e", "x")]
    tokenizer = Tokenizer.train(pairs, kind="words", joint=False)
    sentences = [Sentence(source=Side.of_text(source), target=Side.of_text(target)) for source, target in pairs]
    batch = batch_of(sentences, tokenizer)
    assert [row[:3] for row in batch.num_rarer.tolist()] == [[2, 1, 0], [2, 1, 0], [0, 0, 0]]
    counts = torch.zeros(tokenizer.source_vocab_size, dtype=torch.long)
    counts[tokenizer.encode_source("c")[0]] = 5
    alone = batch_sentences(encode_sentences(tokenizer, sentences[:1]), counts)
    assert alone.num_rarer[0, :3].tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (".", True),
        ("¿?", True),
        ("€", True),
        ("’s", False),
        ("4", False),
        ("½", False),
        ("الف", False),
        ("\u0301", False),
    ],
)
def test_punctuation_has_no_letter_and_no_digit(piece: str, expected: bool) -> None:
    assert words_batch((f"a {piece}", "x")).source.is_punctuation[0].tolist() == [False, expected, False]


def test_a_word_of_twelve_pieces_and_one_without_any() -> None:
    parse = ParsedSentence(
        tokens=("abcdefghijkl", "."),
        space_after=(False, True),
        token_of=(0, 1),
        heads=(0, 1),
        relations=("root", "punct"),
        tags=("X", "PUNCT"),
    )
    sentence = Sentence(source=Side.of_parse(parse), target=Side.of_text("x"))
    letters = [("a b c d e f g h i j k l .", "x")] * 3
    split = Tokenizer.train(letters, vocab_size=40)
    batch = batch_of([sentence], split)
    assert batch.source.word[0].tolist() == [0] * 12 + [1, NO_WORD]
    # Here they are one piece, which is of the word with more characters.
    whole = batch_of([sentence], Tokenizer.train(letters, kind="words"))
    assert whole.source.word[0].tolist() == [0, NO_WORD] and whole.source.has_pieces[0].tolist() == [True, False]
