"""COMET: what is looked for before any work, and the mean over sentences of what the package says."""

import hashlib
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.data.corpus import Corpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.comet import BATCH_SIZE, Comet, warn_unless_raw
from prune_lab.evaluation.comet_checkpoint import find_checkpoint
from prune_lab.evaluation.evaluate import evaluate
from prune_lab.model.transformer import Transformer

HUB_ID = "Unbabel/wmt22-comet-da"
CPU = torch.device("cpu")
Build = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"asks the network: {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def refusal(source: Any) -> str:
    with pytest.raises(ValueError) as found:
        find_checkpoint(source)
    message = str(found.value)
    assert "\n" not in message and message.startswith(("comet=", "comet: "))
    return message


@pytest.mark.parametrize("source", [HUB_ID, "no/such/model.ckpt"])
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    assert "pip install 'prune-lab[comet]'" in refusal(source)


def test_the_package_needs_an_early_setuptools(
    comet_model: Build, comet_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(comet_model())
    about = comet_package / "torchmetrics-0.10.3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchmetrics\nVersion: 0.10.3\n")
    monkeypatch.syspath_prepend(comet_package)
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    assert "pip install 'setuptools<81'" in refusal(model)


@pytest.mark.parametrize("source", ["no/such/model.ckpt", "./none", "wmt20-comet-da", "a/b/c"])
def test_a_path_that_is_not_there(comet_package: Path, source: str) -> None:
    assert f"comet={source}: no such file" in refusal(source)


@pytest.mark.parametrize("source", [3, True, ["a"], ""])
def test_values_that_are_no_path(comet_package: Path, source: Any) -> None:
    assert "allowed is a checkpoint (.ckpt)" in refusal(source)


@pytest.mark.parametrize("source", [HUB_ID, "not an/id at all"])
def test_an_id_of_the_hub_is_looked_for_in_the_cache_alone(comet_package: Path, source: str) -> None:
    message = refusal(source)
    assert f"comet={source}: not in the cache of the hub" in message
    assert f"load_from_checkpoint(download_model('{source}'))" in message


def test_all_ways_to_name_a_model(comet_model: Build, tmp_path: Path) -> None:
    model = comet_model("mine")
    checkpoint = model / "checkpoints" / "model.ckpt"
    for source in (model, checkpoint):
        found = find_checkpoint(str(source))
        assert (found.path, found.name, found.version) == (checkpoint, "mine", "2.2.9")
    snapshot = tmp_path / "hub" / "models--Unbabel--wmt22-comet-da" / "snapshots" / "abc"
    (snapshot.parent.parent / "refs").mkdir(parents=True)
    (snapshot.parent.parent / "refs" / "main").write_text("abc")
    snapshot.parent.mkdir()
    model.rename(snapshot)
    cached = snapshot / "checkpoints" / "model.ckpt"
    for source in (HUB_ID, str(cached), str(snapshot), str(snapshot.parent.parent), str(tmp_path / "hub")):
        found = find_checkpoint(source)
        assert (found.path.resolve(), found.name) == (cached.resolve(), HUB_ID)


def test_a_model_that_is_not_whole(comet_model: Build, tmp_path: Path) -> None:
    model = comet_model()
    settings = model / "hparams.yaml"
    text = settings.read_text()
    settings.write_text("a: 1\n")
    assert "does not name an encoder (KeyError)" in refusal(str(model))
    settings.write_text(text)
    (tmp_path / "encoder" / "tokenizer.json").unlink()
    assert f"its encoder {tmp_path / 'encoder'} is not in the cache" in refusal(str(model))
    (tmp_path / "encoder" / "vocab.txt").write_text("a")
    find_checkpoint(str(model))
    settings.write_text(text.replace(str(tmp_path / "encoder"), "xlm-roberta-large"))
    assert "its encoder xlm-roberta-large is not in the cache" in refusal(str(model))
    settings.write_text(text.replace("BERT", "MiniLM"))  # with the tokenizer of another model
    assert f"its encoder {tmp_path / 'encoder'} is not" in refusal(str(model))
    settings.unlink()
    assert f"its hparams.yaml would be {settings}" in refusal(str(model))


def test_a_directory_of_no_or_several_checkpoints(comet_model: Build, tmp_path: Path) -> None:
    model = comet_model()
    checkpoint = model / "checkpoints" / "model.ckpt"
    (model / "checkpoints" / "last.ckpt").write_text("1")
    assert find_checkpoint(str(model)).path == checkpoint
    checkpoint.rename(checkpoint.with_name("first.ckpt"))
    assert "holds 2 checkpoints; name one of them" in refusal(str(model))
    assert "holds no checkpoint" in refusal(str(tmp_path / "encoder"))


def test_the_score_is_the_mean_over_sentences(comet_model: Build, stand_in_score: Callable[..., float]) -> None:
    generator = random.Random(1)
    num = 2 * BATCH_SIZE + 5
    lines = [["x" * generator.randrange(40) for _ in range(num)] for _ in range(3)]
    model = comet_model(factor=0.003)
    comet = Comet(find_checkpoint(str(model)), CPU)
    assert comet.score(*lines) == pytest.approx(stand_in_score(*lines, factor=0.003), rel=1e-12)
    assert comet.score(["a"], [""], ["abc"]) == pytest.approx(0.003 * 301)
    digest = hashlib.sha256((model / "checkpoints" / "model.ckpt").read_bytes()).hexdigest()
    expected = {"name": "made-up-comet", "hash": digest, "version": "2.2.9", "precision": "float32"}
    assert comet.facts == expected
    again = Comet(find_checkpoint(str(model / "checkpoints" / "model.ckpt")), CPU)
    assert again.score(*lines) == comet.score(*lines)
    assert len(sys.modules["comet"].loaded) == 1


def test_lines_that_do_not_belong_together(comet_model: Build) -> None:
    comet = Comet(find_checkpoint(str(comet_model())), CPU)
    with pytest.raises(ValueError, match="2 hypotheses of 1 sources"):
        comet.score(["a"], ["b", "c"], ["d", "e"])
    with pytest.raises(ValueError, match="1 hypotheses against 2 references"):
        comet.score(["a"], ["b"], ["d", "e"])
    with pytest.raises(ValueError, match="at least one sentence"):
        comet.score([], [], [])


def test_a_checkpoint_that_cannot_be_loaded(comet_model: Build) -> None:
    model = comet_model()
    (model / "checkpoints" / "model.ckpt").write_text("no\nnumber")
    with pytest.raises(ValueError, match=r"model\.ckpt: cannot be loaded \(ValueError: could not") as found:
        Comet(find_checkpoint(str(model)), CPU).score(["a"], ["b"], ["c"])
    assert "\n" not in str(found.value)


def splits_of(tokenize: str, lowercase: bool) -> Splits:
    languages = {"source_language": "en", "target_language": "de"}
    return Splits(name="made_up", **languages, score_tokenize=tokenize, lowercase=lowercase, sources={})


@pytest.mark.filterwarnings("error")
def test_text_that_is_not_raw_is_warned_of() -> None:
    warn_unless_raw(splits_of("13a", False))
    with pytest.warns(UserWarning, match="COMET expects raw text, and data=made_up is tokenised"):
        warn_unless_raw(splits_of("none", False))
    with pytest.warns(UserWarning, match="COMET heeds case"):
        warn_unless_raw(splits_of("13a", True))


def test_an_evaluation_with_comet(
    text_model: Callable[..., Transformer],
    pairs: list[tuple[str, str]],
    comet_model: Build,
    stand_in_score: Callable[..., float],
) -> None:
    corpus = Corpus(pairs=[*pairs[:5], ("", "ein Rest")], name="data.test", origin="memory")
    options = DecodingOptions(beam_size=1, max_length_a=6, max_length_b=0)
    comet = Comet(find_checkpoint(str(comet_model())), CPU)
    model = text_model()
    found = evaluate(model, corpus, options, splits=splits_of("13a", False), comet=comet)
    assert set(found.seconds) == {"decoding", "scoring", "comet"}
    record = found.to_record(method="unpruned", seed=1)
    value = stand_in_score(corpus.sources, found.hypotheses, corpus.targets, factor=0.001)
    assert record.comet == pytest.approx(value) and record.comet_model == comet.facts
    told = f"COMET {value:.4f}  made-up-comet, {comet.facts['hash'][:8]}, unbabel-comet 2.2.9, float32"
    assert found.in_words().splitlines()[2] == told
    with pytest.warns(UserWarning, match="expects raw text"):
        evaluate(model, corpus, options, splits=splits_of("none", False), comet=comet)
    plain = evaluate(model, corpus, options, splits=splits_of("13a", False))
    assert (plain.comet, plain.comet_model) == (None, None) and len(plain.in_words().splitlines()) == 2
