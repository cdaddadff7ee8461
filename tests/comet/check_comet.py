"""COMET scores of prune-lab-evaluate are those of the package unbabel-comet, on a tiny model with random weights.

    pip install '.[comet]' pytest && pytest tests/comet/check_comet.py

Not part of the usual tests, since the package is an extra. Nothing is downloaded: the model is made here.
"""

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from prune_lab.data.corpus import read_lines
from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.evaluation.comet import Comet
from prune_lab.evaluation.comet_checkpoint import find_checkpoint
from prune_lab.model.transformer import Transformer
from prune_lab.results.record import Record

comet = pytest.importorskip("comet", reason="pip install 'prune-lab[comet]'")
LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß.,!?0123456789"
COMET_ID, ENCODER_ID = "tiny/comet", "tiny/encoder"
SCRIPT = """
import socket, sys
def refuse(*arguments, **settings):
    open("asked", "a").write(f"{arguments}")
    raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from prune_lab.commands.evaluate import main
main()
"""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a BERT of two layers, with letters as its words: configuration and vocabulary, no weights."""
    from transformers import BertConfig

    directory = tmp_path_factory.mktemp("comet") / "encoder"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    # As XLM-R has it, large and stored long ago: transformers asks the hub about vocabularies above 100000.
    vocabulary += [f"[unused{number}]" for number in range(101_000)]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertConfig(vocab_size=len(vocabulary), max_position_embeddings=96, **sizes).save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "transformers_version": "4.17.0"}))
    (directory / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def metric(encoder: Path) -> Any:
    """A regression metric with weights so large that its scores differ from sentence to sentence."""
    from comet.models import RegressionMetric

    torch.manual_seed(3)
    settings = {"encoder_model": "BERT", "load_pretrained_weights": False, "local_files_only": True}
    model = RegressionMetric(pretrained_model=str(encoder), hidden_sizes=[24, 8], **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)
    return model.eval()


@pytest.fixture(scope="module")
def model_directory(metric: Any, encoder: Path) -> Path:
    """The metric as Lightning stores it."""
    import pytorch_lightning as pl

    directory = encoder.parent / "made-up"
    trainer = pl.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
    trainer.strategy.connect(metric)
    trainer.save_checkpoint(directory / "checkpoints" / "model.ckpt")
    settings = {**dict(metric.hparams), "class_identifier": "regression_metric"}
    (directory / "hparams.yaml").write_text(yaml.safe_dump(settings))
    return directory


@pytest.fixture(scope="module")
def hub(model_directory: Path, encoder: Path) -> Path:
    """A cache of the hub with the metric and its encoder, which the metric names by its id."""
    cache = encoder.parent / "hub"
    for name, source in ((COMET_ID, model_directory), (ENCODER_ID, encoder)):
        repository = cache / f"models--{name.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("0" * 40)
        for path in source.rglob("*.*"):
            target = repository / "snapshots" / ("0" * 40) / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            if path.suffix == ".ckpt":
                content = torch.load(path, weights_only=True)
                content["hyper_parameters"]["pretrained_model"] = ENCODER_ID
                torch.save(content, target)
            if path.name == "hparams.yaml":
                target.write_text(path.read_text().replace(str(encoder), ENCODER_ID))
    return cache


def lines(num: int, seed: int) -> list[str]:
    """Sentences of made-up words, an empty one among them."""
    generator = random.Random(seed)
    words = ["".join(generator.choices(LETTERS, k=generator.randrange(1, 9))) for _ in range(50)]
    return ["", *(" ".join(generator.choices(words, k=generator.randrange(1, 14))) for _ in range(num - 1))]


def test_the_score_is_that_of_predict(metric: Any, model_directory: Path) -> None:
    sources, hypotheses, references = (lines(37, seed) for seed in (1, 2, 3))
    ours = Comet(find_checkpoint(str(model_directory)), torch.device("cpu"))
    samples = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    expected = metric.predict(samples, batch_size=5, gpus=0, progress_bar=False)
    assert statistics.stdev(expected.scores) > 0.01
    assert ours.score(sources, hypotheses, references) == pytest.approx(expected.system_score, abs=1e-6)
    for others in ((hypotheses, sources, references), (sources, references, hypotheses)):
        assert abs(ours.score(*others) - expected.system_score) > 1e-4


def test_prune_lab_evaluate_without_a_network(
    metric: Any, hub: Path, model_directory: Path, small_model: Callable[..., Transformer], tmp_path: Path
) -> None:
    pairs = [(pair.source, pair.target) for pair in generate(num_pairs=60, seed=1, split="train")]
    tokenizer = Tokenizer.train(pairs, kind="bpe", joint=False, vocab_size=120)
    model = small_model(source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "export")
    for name, side in (("test.en", 0), ("test.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs[:21]), encoding="utf-8")
    found = {}
    for name, source in (("cached", COMET_ID), ("on_disk", str(model_directory))):
        settings = ["data=text", "data.test.source=test.en", "data.test.target=test.de", "speed=null", "device=cpu"]
        command = [sys.executable, "-c", SCRIPT, "export=export", *settings, f"comet={source}", f"output={name}"]
        environment = {**os.environ, "HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
        said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert not (tmp_path / "asked").exists(), (tmp_path / "asked").read_text()
        record = Record.load(tmp_path / name)
        hypotheses = read_lines(tmp_path / name / "hypotheses.txt")
        samples = [{"src": src, "mt": mt, "ref": ref} for (src, ref), mt in zip(pairs, hypotheses, strict=False)]
        expected = metric.predict(samples, gpus=0, progress_bar=False).system_score
        assert record.comet == pytest.approx(expected, abs=1e-6)
        assert record.comet_model is not None
        assert said.stdout.splitlines()[2].startswith(f"COMET {expected:.4f}  {record.comet_model['name']}, ")
        assert said.stderr.splitlines()[1:] == [f"record: {name}/record.json"], said.stderr
        found[name] = record
    assert found["cached"].comet == pytest.approx(found["on_disk"].comet, abs=1e-7)
    assert [record.comet_model["name"] for record in found.values() if record.comet_model] == [COMET_ID, "made-up"]
    assert json.loads((tmp_path / "cached" / "record.json").read_text())["comet_model"]["version"] == comet.__version__
