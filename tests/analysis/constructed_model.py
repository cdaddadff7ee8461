"""A Transformer whose heads look where they are told to, and a text on which what they do is known exactly.

Token and position vectors are one-hot, every block adds nothing, and layer norms give back what they get; so each site
reads tokens and positions as they are, and a head is two small matrices from them to queries and keys. Scores differ by
so much that each weight is 0 or 1, or one of equals, in float32.

Shapes: D model width, K head width, P positions, V vocabulary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import torch
from torch import nn

from prune_lab.analysis.text import Sentence, Side
from prune_lab.data.conllu import ParsedSentence
from prune_lab.data.marks import BOS_ID, EOS_ID
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer

# Of the text's sentences, in words, half of each; positions of the model.
LENGTHS = (8, 12)
NUM_POSITIONS = 16
_SHARP = 300.0

ENCODER_HEADS = ("previous", "next", "self", "uniform", "rarest", "subject")
DECODER_HEADS = ("previous", "self", "begin", "even")
CROSS_HEADS = ("diagonal", "predicted", "read", "rarest")


def translated_place(place: int) -> int:
    """Word p of the target is the translation of source word p + 2 or p - 2: blocks of four, their halves swapped."""
    return place ^ 2


def made_text(num_sentences: int = 20) -> list[Sentence]:
    """Sentences of different words: a subject, a verb and an object somewhere after the first word, and others.

    One word of each sentence occurs in no other; all the rest occur several times. The tree has the subject and the
    object of the verb, and nothing else.
    """
    draw = random.Random(3)
    sentences = []
    for number in range(num_sentences):
        length = LENGTHS[number % 2]
        words = draw.sample([f"word{letter}" for letter in "abcdefghijkl"], length)
        subject, verb, thing, rare = draw.sample(range(1, length), 4)
        words[subject], words[verb], words[thing] = f"subject{number % 3}", f"verb{number % 2}", f"object{number % 4}"
        words[rare] = f"rare{number}"
        heads: list[int | None] = [None] * length
        relations, tags = ["_"] * length, ["X"] * length
        heads[verb], heads[subject], heads[thing] = 0, verb + 1, verb + 1
        relations[verb], relations[subject], relations[thing] = "root", "nsubj", "obj"
        translation = [words[translated_place(place)].upper() for place in range(length)]
        sentences.append(
            Sentence(
                source=Side.of_text(" ".join(words), ParsedSentence.of_words(words, heads, relations, tags)),
                target=Side.of_text(" ".join(translation)),
                links=frozenset((translated_place(place), place) for place in range(length)),
            )
        )
    return sentences


class _Head:
    """Queries and keys of one head, as matrices from tokens and positions to its own channels.

    The channels are P for positions, V for tokens, and one more.
    """

    def __init__(self, model: Transformer, site: str, number: int) -> None:
        attention = model.attention_sites()[site].attention
        self._rows = slice(number * attention.head_dim, (number + 1) * attention.head_dim)
        self._attention, self._last = attention, attention.head_dim - 1
        self._width = model.config.d_model
        self._sharp = _SHARP * math.sqrt(attention.head_dim)
        for projection in (attention.query, attention.key):
            projection.weight[self._rows] = 0
            projection.bias[self._rows] = 0

    def _position(self, place: int) -> int:
        return self._width - NUM_POSITIONS + place

    def seek_positions(self, sought: Mapping[int, int]) -> None:
        """A query at one place looks at a key at another."""
        for place in range(NUM_POSITIONS):
            self._attention.key.weight[self._rows][place, self._position(place)] = 1
        for place, key in sought.items():
            self._attention.query.weight[self._rows][key, self._position(place)] = self._sharp

    def seek_tokens(self, sought: Mapping[int, int]) -> None:
        """A query at one token looks at another token."""
        for token, key in sought.items():
            self._attention.query.weight[self._rows][NUM_POSITIONS + key, token] = self._sharp
            self._attention.key.weight[self._rows][NUM_POSITIONS + key, key] = 1

    def call(self, tokens: list[int], wanted: list[int]) -> None:
        """Queries at some tokens look at some other tokens, whatever else the head does."""
        self._attention.query.weight[self._rows][self._last, tokens] = 3 * self._sharp
        self._attention.key.weight[self._rows][self._last, wanted] = 1

    def prefer(self, values: Mapping[int, float]) -> None:
        """Every query looks at the token with the largest value; those without one have 0."""
        self._attention.query.bias[self._rows][self._last] = self._sharp
        for token, value in values.items():
            self._attention.key.weight[self._rows][self._last, token] = value


@torch.no_grad()
def constructed_model(sentences: list[Sentence], norm: str) -> Transformer:
    """The model, with the tokenizer of the text; its heads are those named at the top, in their order."""
    targets = [sentence.target.text for sentence in sentences if sentence.target is not None]
    pairs = list(zip([sentence.source.text for sentence in sentences], targets, strict=True))
    tokenizer = Tokenizer.train(pairs, kind="words", joint=False)
    num_tokens = max(tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    width, head_dim = num_tokens + NUM_POSITIONS, num_tokens + NUM_POSITIONS + 1
    model = Transformer(
        ModelConfig(
            source_vocab_size=tokenizer.source_vocab_size,
            target_vocab_size=tokenizer.target_vocab_size,
            d_model=width,
            encoder_layers=1,
            decoder_layers=1,
            encoder_heads=len(ENCODER_HEADS),
            decoder_heads=len(DECODER_HEADS),
            encoder_head_dim=head_dim,
            decoder_head_dim=head_dim,
            d_feed_forward=1,
            norm=norm,
            positions="learned",
            max_positions=NUM_POSITIONS,
        )
    ).eval()
    model.tokenizer = tokenizer
    _make_transparent(model, width)
    _place_encoder_heads(model, sentences)
    _place_decoder_heads(model, sentences)
    return model


def _make_transparent(model: Transformer, width: int) -> None:
    """One-hot vectors, which all have the same mean and variance, and blocks and norms that change nothing."""
    for table in (model.source_table, model.target_table):
        assert table is not None
        table.weight.copy_(torch.eye(len(table.weight), width) / math.sqrt(width))
    for positions in (model.source_positions, model.target_positions):
        assert positions.table is not None
        positions.table.copy_(torch.eye(width)[width - NUM_POSITIONS :])
    mean = 2 / width
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(math.sqrt(2 / width - mean**2 + module.eps))
            module.bias.fill_(mean)
        elif name.endswith(("attention.output", "feed_forward.outer")):
            module.weight.zero_()
            module.bias.zero_()


def _place_encoder_heads(model: Transformer, sentences: list[Sentence]) -> None:
    heads = {name: _Head(model, "encoder.0.self", number) for number, name in enumerate(ENCODER_HEADS)}
    places = range(NUM_POSITIONS)
    heads["previous"].seek_positions({place: max(0, place - 1) for place in places})
    heads["next"].seek_positions({place: place + 1 for place in places[:-1]})
    heads["self"].seek_positions({place: place for place in places})
    heads["rarest"].prefer(_rarities(model, sentences))
    heads["subject"].seek_positions(dict.fromkeys(places, 0))
    heads["subject"].call(_ids(model, "verb", range(2)), _ids(model, "subject", range(3)))


def _place_decoder_heads(model: Transformer, sentences: list[Sentence]) -> None:
    heads = {name: _Head(model, "decoder.0.self", number) for number, name in enumerate(DECODER_HEADS)}
    places = range(NUM_POSITIONS)
    heads["previous"].seek_positions({place: max(0, place - 1) for place in places})
    heads["self"].seek_positions({place: place for place in places})
    heads["begin"].prefer({BOS_ID: 1.0})
    heads = {name: _Head(model, "decoder.0.cross", number) for number, name in enumerate(CROSS_HEADS)}
    heads["diagonal"].seek_positions({place: place for place in places})
    heads["predicted"].seek_positions(
        {place: translated_place(place) for place in places if translated_place(place) < NUM_POSITIONS}
    )
    words = {word for sentence in sentences for word in sentence.source.words}
    assert model.tokenizer is not None
    source, target = model.tokenizer.encode_source, model.tokenizer.encode_target
    heads["read"].seek_tokens({target(word.upper())[1]: source(word)[0] for word in words})
    for name in ("predicted", "read"):
        # Where nothing is sought that is there: at the end of the target, and at the begin mark.
        heads[name].prefer({EOS_ID: 0.5})
    heads["rarest"].prefer(_rarities(model, sentences))


def _ids(model: Transformer, word: str, numbers: range) -> list[int]:
    assert model.tokenizer is not None
    return [model.tokenizer.encode_source(f"{word}{number}")[0] for number in numbers]


def _rarities(model: Transformer, sentences: list[Sentence]) -> dict[int, float]:
    """For each source token how often it does not occur; the end mark is the most frequent."""
    assert model.tokenizer is not None
    ids = [index for sentence in sentences for index in model.tokenizer.encode_source(sentence.source.text)[:-1]]
    return {**{index: -float(ids.count(index)) for index in set(ids)}, EOS_ID: -float(len(ids))}
