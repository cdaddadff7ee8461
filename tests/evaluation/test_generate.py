"""One line out for each line in, the same whatever lies beside it."""

import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab import Translator
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.generate import translate_lines, translate_stream
from prune_lab.model.transformer import Transformer

GREEDY = DecodingOptions(beam_size=1, max_length_a=5, max_length_b=0.5)
BEAM = DecodingOptions(beam_size=4, max_length_a=5, max_length_b=0.5)
Build = Callable[..., Transformer]
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def model(text_model: Build) -> Transformer:
    return text_model()


@pytest.fixture(scope="module")
def export(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("translator") / "export"
    model.save_pretrained(directory)
    return directory


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_c3_batches_and_order_do_not_matter(model: Transformer, pairs: Pairs, options: DecodingOptions) -> None:
    lines = [source for source, _ in pairs[:30]]
    alone = translate_lines(model, lines, options, max_sentences=1)
    for size in (7, 30):
        found = translate_lines(model, lines, options, max_sentences=size)
        assert found.lines == alone.lines
        assert found.scores == pytest.approx(alone.scores, abs=1e-4)
    order = random.Random(3).sample(range(30), 30)
    shuffled = translate_lines(model, [lines[index] for index in order], options, max_sentences=7)
    assert shuffled.lines == [alone.lines[index] for index in order]
    assert shuffled.scores == pytest.approx([alone.scores[index] for index in order], abs=1e-4)
    assert len(set(alone.lines)) > 20  # unlike translations, or the comparisons would say nothing


def test_translations_are_those_of_the_model(model: Transformer, tokenizer: Tokenizer, pairs: Pairs) -> None:
    line = pairs[0][0]
    found = translate_lines(model, [line], BEAM)
    ids = model.search(torch.tensor([tokenizer.encode_source(line)]), BEAM).ids[0]
    assert found.lines == [tokenizer.decode_target(ids)]
    assert found.source_lengths == [len(tokenizer.encode_source(line)) - 1]
    assert found.target_lengths == [len(ids)]


def test_c5_blank_lines_stay_blank_and_are_not_decoded(
    model: Transformer, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [source for source, _ in pairs[:3]]
    lines = [texts[0], "", texts[1], " \t\u3000", texts[2]]
    shapes = _shapes(model, monkeypatch)
    found = translate_lines(model, lines, GREEDY)
    assert [index for index, line in enumerate(found.lines) if not line] == [1, 3]
    assert sum(rows for rows, _ in shapes) == 3
    assert [found.lines[index] for index in (0, 2, 4)] == translate_lines(model, texts, GREEDY).lines
    assert (found.scores[1], found.source_lengths[1], found.target_lengths[1]) == (0, 0, 0)


def test_nothing_in_nothing_out(model: Transformer) -> None:
    assert translate_lines(model, []).lines == []
    assert translate_lines(model, ["", " "]).lines == ["", ""]


def test_c5_an_over_long_line_is_cut_and_named(model: Transformer, pairs: Pairs) -> None:
    lines = [pairs[0][0], pairs[1][0] * 40, ""]
    with pytest.warns(UserWarning, match=r"^line 12 was cut to the first 50 source tokens$"):
        found = translate_lines(model, lines, GREEDY, max_source_tokens=50, first_line=11)
    assert found.cut == [12]
    assert len(found.lines) == 3 and found.lines[1]
    assert found.source_lengths[1] == 50
    with pytest.warns(UserWarning, match=r"^8 lines \(1, 2, 3, 4, 5, \.\.\.\) were cut"):
        translate_lines(model, [pairs[1][0]] * 8, GREEDY, max_source_tokens=1)


def test_c5_learned_positions_limit_a_line(text_model: Build, pairs: Pairs) -> None:
    model = text_model(positions="learned", max_positions=40)
    with pytest.warns(UserWarning, match="line 2 was cut to the first 39 source tokens"):
        found = translate_lines(model, [pairs[0][0], pairs[1][0] * 40], DecodingOptions(beam_size=2))
    assert found.source_lengths[1] == 39
    assert max(found.target_lengths) <= 39


def test_batches_stay_within_the_limit_of_padded_tokens(
    model: Transformer, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [source for source, _ in pairs[:40]] + [" ".join(source for source, _ in pairs[:20])]
    shapes = _shapes(model, monkeypatch)
    found = translate_lines(model, lines, GREEDY, max_sentences=9, max_padded_tokens=300)
    assert sum(rows for rows, _ in shapes) == len(lines) == len(found.lines)
    assert all(rows * longest <= 300 for rows, longest in shapes if rows > 1)
    assert max(rows for rows, _ in shapes) <= 9
    assert max(longest for _, longest in shapes) > 300  # by itself, whatever the limit


def test_settings_around_it_change_nothing(model: Transformer, pairs: Pairs) -> None:
    lines = [source for source, _ in pairs[:5]]
    expected = translate_lines(model, lines, BEAM)
    model.train()
    before = torch.random.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = translate_lines(model, lines, BEAM)
    assert model.training and torch.equal(torch.random.get_rng_state(), before)
    model.eval()
    assert found == expected


def test_a_line_never_holds_a_newline(text_model: Build, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = text_model()
    monkeypatch.setattr(tokenizer, "decode_target", lambda ids: "two\nlines\r")
    assert translate_lines(model, ["a"], GREEDY).lines == ["two lines "]


def test_a_stream_is_read_as_it_is_needed(model: Transformer, pairs: Pairs) -> None:
    lines, taken = [source for source, _ in pairs[:25]], []

    def read() -> Iterator[str]:
        for number, line in enumerate(lines):
            taken.append(number)
            yield line

    chunks = translate_stream(model, read(), GREEDY, chunk_lines=10)
    first = next(chunks)
    assert len(first.lines) == 10 and len(taken) == 10
    rest = [line for chunk in chunks for line in chunk.lines]
    assert first.lines + rest == translate_lines(model, lines, GREEDY).lines


def test_a_stream_counts_lines_through(model: Transformer, pairs: Pairs) -> None:
    lines = [""] * 7 + [pairs[0][0] * 30]
    with pytest.warns(UserWarning, match="^line 8 was cut"):
        list(translate_stream(model, lines, GREEDY, chunk_lines=3, max_source_tokens=20))


def test_translator_from_a_path(export: Path, model: Transformer, pairs: Pairs) -> None:
    lines = [pairs[0][0], "", pairs[1][0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator = Translator.from_pretrained(export)
        found = translator.translate(lines, beam_size=2, length_penalty=1.0)
    assert found == translate_lines(model, lines, DecodingOptions(beam_size=2, length_penalty=1.0)).lines
    assert translator.translate([]) == []
    assert translator.translate(lines) == translate_lines(model, lines).lines


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        ("A sentence.", {}, r"^lines is one string of 11 characters; a list of lines is needed$"),
        (["a", None], {}, r"^line 2 is a NoneType; allowed are strings$"),
        (None, {}, r"^lines: a NoneType; allowed is a list of strings$"),
        (3, {}, r"^lines: a int; allowed is a list of strings$"),
        (b"A sentence.", {}, r"^lines: a bytes; allowed is a list of strings$"),
        ({"a": "b"}, {}, r"^lines: a dict; allowed is a list of strings$"),
        (["a"], {"beam_size": "5"}, r"^decoding.beam_size: '5'; allowed are whole numbers from 1$"),
        (["a"], {"beam_size": 0}, r"^decoding.beam_size: 0; allowed are whole numbers from 1$"),
        (["a"], {"max_sentences": 0}, r"^max_sentences: 0; allowed are whole numbers from 1$"),
        (["a"], {"length_penalty": -1}, r"^decoding.length_penalty: -1; allowed are numbers from 0$"),
    ],
)
def test_what_cannot_be_translated(
    model: Transformer, lines: list[str], settings: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Translator(model).translate(lines, **settings)  # type: ignore[arg-type]


def test_lines_may_come_from_a_generator(model: Transformer, pairs: Pairs) -> None:
    lines = [source for source, _ in pairs[:3]]
    found = Translator(model).translate((line for line in lines), beam_size=1)
    assert found == Translator(model).translate(lines, beam_size=1) and len(found) == 3


@pytest.mark.parametrize("wrong", [None, "export", 3])
def test_a_translator_has_a_model(wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^model: a {type(wrong).__name__}; allowed is a Transformer of prune_lab$"):
        Translator(wrong)  # type: ignore[arg-type]


def test_a_tokenizer_with_other_vocabularies_is_refused(text_model: Build, small_model: Build) -> None:
    model = small_model(source_vocab_size=400, target_vocab_size=400)
    model.tokenizer = text_model().tokenizer
    with pytest.raises(ValueError, match="^tokenizer: the tokenizer has [0-9]+ source entries, the model has 400$"):
        translate_lines(model, ["a"])


@pytest.mark.parametrize(
    "source_ids", [[[5, 2]], torch.zeros(2, 3), torch.tensor([5, 2])], ids=["list", "float", "row"]
)
def test_what_is_searched_for_is_a_tensor_of_ids(model: Transformer, source_ids: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="^source_ids: a .*; allowed is a tensor of whole numbers, a row for each"):
        model.generate(source_ids)


def test_a_translator_needs_a_tokenizer_and_a_device(small_model: Build, export: Path, tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"bare: the export has no tokenizer.json; a Translator needs one$"):
        Translator.from_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match="has no tokenizer"):
        Translator(small_model())
    for device in ("gpu", "meta", "xla", ["cpu"]):
        with pytest.raises(ValueError, match=rf"^device: .*{device[0]}.*; allowed here are auto, cpu"):
            Translator.from_pretrained(export, device=device)  # type: ignore[arg-type]
    assert Translator.from_pretrained(export, device="auto").translate(["a"])


def _shapes(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Collects the shape of every batch that is searched."""
    shapes: list[tuple[int, int]] = []
    search = model.search

    def watched(source_ids: torch.Tensor, options: DecodingOptions) -> object:
        shapes.append((source_ids.shape[0], source_ids.shape[1]))
        return search(source_ids, options)

    monkeypatch.setattr(model, "search", watched)
    return shapes


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_threads_share_the_batches_and_change_nothing(
    text_model: Build, pairs: list[tuple[str, str]], three_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, lines = text_model(dropout=0.4).train(), [source for source, _ in pairs[:40]]
    used: list[tuple[int, int]] = []
    search = Transformer.search

    def watched(self: Transformer, *given: Any, **rest: Any) -> Any:
        used.append((threading.get_ident(), torch.get_num_threads()))
        return search(self, *given, **rest)

    monkeypatch.setattr(Transformer, "search", watched)
    together = translate_lines(model, lines, BEAM, max_sentences=4)
    assert len({thread for thread, _ in used}) == 3 and {share for _, share in used} == {1}
    assert torch.get_num_threads() == 3 and all(module.training for module in model.modules())
    torch.set_num_threads(1)
    used.clear()
    assert translate_lines(model, lines, BEAM, max_sentences=4) == together
    assert {thread for thread, _ in used} == {threading.get_ident()}


def test_an_error_in_a_thread_ends_the_translation(
    text_model: Build, pairs: list[tuple[str, str]], three_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = text_model(), []

    def fail(self: Transformer, *_: Any) -> Any:
        calls.append(None)
        time.sleep(0.02)
        raise RuntimeError("no memory")

    monkeypatch.setattr(Transformer, "search", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        translate_lines(model, [source for source, _ in pairs[:40]], BEAM, max_sentences=1)
    assert len(calls) < 40 and torch.get_num_threads() == 3
