"""What many tests need: the data set Multi30k, small models with random biases, and padded batches of random ids."""

import gc
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# Two processes test on what may be two cores: threads that spin while they wait for work would take it from the other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from torch import Tensor

from prune_lab.attention.short import fused_only
from prune_lab.evaluation.comet import _load
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer


def pytest_collection_finish() -> None:
    """What is imported by now stays to the end: collections of garbage, one for each training, need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def multi30k_directory() -> Path:
    """Multi30k as gzip text: the directory PRUNE_LAB_MULTI30K, else ``../shared/data/multi30k`` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k"
    directory = Path(os.environ.get("PRUNE_LAB_MULTI30K") or default)
    if not (directory / "train.en.gz").is_file():
        pytest.skip(f"Multi30k is not in {directory}; set PRUNE_LAB_MULTI30K to the directory with train.en.gz")
    return directory


@pytest.fixture(scope="session")
def treebank_directory() -> Path:
    """English and German PUD as gzip CoNLL-U: the directory PRUNE_LAB_UD, else ``../shared/data/ud``, as above."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "ud"
    directory = Path(os.environ.get("PRUNE_LAB_UD") or default)
    if not (directory / "en_pud-ud-test.conllu.gz").is_file():
        pytest.skip(f"no treebank in {directory}; set PRUNE_LAB_UD to the directory with en_pud-ud-test.conllu.gz")
    return directory


@pytest.fixture(scope="session")
def small_model() -> Callable[..., Transformer]:
    """Builds the small model of the checks: 2+2 layers, D 32, 4 heads of width 8, random biases, evaluation mode.

    ``build(seed=0, **settings)`` changes settings of its `ModelConfig`. The vocabularies have 37 source and 41 target
    entries, 41 each when shared; the output has its own table, so that an untrained model does not repeat its input.
    """

    def build(seed: int = 0, **settings: Any) -> Transformer:
        sizes = {"source_vocab_size": 41 if settings.get("share_embeddings") else 37, "target_vocab_size": 41}
        stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4}
        widths = {"d_model": 32, "d_feed_forward": 48, "dropout": 0.0, "tie_output": False}
        torch.manual_seed(seed)
        model = Transformer(ModelConfig(**{**sizes, **stacks, **widths, **settings}))
        randomise(model)
        return model.eval()

    return build


@pytest.fixture(params=["short", "fused"])
def each_attention(request: pytest.FixtureRequest) -> Iterator[None]:
    """Attention over short sequences on the CPU by batched products, and by the fused kernel that serves elsewhere."""
    with fused_only() if request.param == "fused" else nullcontext():
        yield


# Every pair of settings occurs in some row: norm, positions, activation, tied output, shared embeddings, biases of
# projections and norms, and whether encoder and decoder are alike.
VARIANTS = (
    ("post", "learned", "relu", False, False, False, False, "unequal"),
    ("pre", "learned", "gelu", True, True, True, True, "equal"),
    ("post", "sinusoidal", "swiglu", True, True, False, False, "equal"),
    ("pre", "rotary", "swiglu", False, False, True, True, "unequal"),
    ("post", "sinusoidal", "relu", False, True, True, True, "equal"),
    ("pre", "sinusoidal", "gelu", True, False, False, False, "unequal"),
    ("pre", "rotary", "relu", True, True, True, False, "equal"),
    ("post", "rotary", "gelu", False, False, False, False, "equal"),
    ("post", "learned", "swiglu", True, True, False, True, "unequal"),
)


@pytest.fixture(params=VARIANTS, ids=lambda row: "-".join(map(str, row)))
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a model; the rows together cover every pair of settings."""
    names = ("norm", "positions", "activation", "tie_output", "share_embeddings", "projection_bias", "norm_bias")
    settings = dict(zip(names, request.param, strict=False))
    if request.param[-1] == "unequal":
        settings |= {"encoder_layers": 3, "decoder_layers": 1, "encoder_heads": 4, "decoder_heads": 2}
    return settings


@torch.no_grad()
def randomise(model: Transformer) -> None:
    """Random biases and norms, and weights so large that outputs depend on all of the input and end at some length."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(std=0.1)
        elif name.endswith("norm.weight"):
            parameter.uniform_(0.5, 1.5)
        elif "attention" in name and name.endswith("weight"):
            parameter.mul_(2.5 if "query" in name or "key" in name else 4)
        elif "feed_forward" in name:
            parameter.mul_(2)
    model.output_weight[model.config.eos_id].mul_(1.5)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have text and tables alone: to draw their figures takes longer than all the rest."""
    for place in ("prune_lab.results.report", "prune_lab.analysis.sections.figure_files"):
        monkeypatch.setattr(f"{place}.embed_figure", lambda *_: None)


@pytest.fixture(scope="session")
def sources() -> Callable[..., Tensor]:
    """Builds source ids ``[B, S]``: ``build(lengths, seed=0, extra_padding=0)``, lengths without the end mark."""

    def build(lengths: Sequence[int], seed: int = 0, extra_padding: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.zeros(len(lengths), max(lengths) + 1 + extra_padding, dtype=torch.long)
        for row, length in enumerate(lengths):
            ids[row, :length] = torch.randint(4, 37, (length,), generator=generator)
            ids[row, length] = 2
        return ids

    return build


@pytest.fixture(scope="session")
def targets(sources: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Builds target ids ``[B, T]`` with marks: ``build(lengths, seed=1, extra_padding=0)``, lengths without marks."""

    def build(lengths: Sequence[int], seed: int = 1, extra_padding: int = 0) -> Tensor:
        ids = sources(lengths, seed, extra_padding)
        return torch.cat((torch.ones(len(ids), 1, dtype=torch.long), ids), dim=1)

    return build


COMET_STAND_IN = """
import torch

loaded = []


def load_from_checkpoint(path, local_files_only=False):
    assert local_files_only, "asks the hub"
    with open(path) as file:
        factor = float(file.read())
    loaded.append(path)
    return Model(factor)


class Model:
    def __init__(self, factor):
        self.factor = factor

    def eval(self):
        return self

    def to(self, device):
        return self

    def prepare_for_inference(self, lines):
        return lines

    def transfer_batch_to_device(self, lines, device, index):
        return lines

    def predict_step(self, lines):
        sizes = [[len(line[key]) for key in ("src", "mt", "ref")] for line in lines]
        scores = torch.tensor(sizes, dtype=torch.float64) @ torch.tensor([1, 10, 100], dtype=torch.float64)
        return {"scores": self.factor * scores}
"""


@pytest.fixture
def comet_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the package unbabel-comet, version 2.2.9; returns the directory that it is imported from.

    Its scores are a multiple of the lengths in characters: source + 10 hypothesis + 100 reference. No cache of the hub.
    """
    directory = tmp_path / "comet_package"
    (directory / "comet").mkdir(parents=True)
    (directory / "comet" / "__init__.py").write_text(COMET_STAND_IN)
    (directory / "unbabel_comet-2.2.9.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.9\n"
    (directory / "unbabel_comet-2.2.9.dist-info" / "METADATA").write_text(about)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    # A package of this name that is imported already comes back afterwards.
    monkeypatch.setitem(sys.modules, "comet", None)
    monkeypatch.delitem(sys.modules, "comet")
    monkeypatch.syspath_prepend(directory)
    _load.cache_clear()
    return directory


@pytest.fixture
def comet_model(tmp_path: Path, comet_package: Path) -> Callable[..., Path]:
    """`comet_model("name", factor=0.001)`: the directory of a model of the stand-in; its encoder is beside it."""

    def build(name: str = "made-up-comet", factor: float = 0.001) -> Path:
        encoder, model = tmp_path / "encoder", tmp_path / name
        encoder.mkdir(exist_ok=True)
        for file in ("config.json", "tokenizer.json"):
            (encoder / file).write_text("{}")
        (model / "checkpoints").mkdir(parents=True)
        (model / "checkpoints" / "model.ckpt").write_text(str(factor))
        (model / "hparams.yaml").write_text(
            f"class_identifier: regression_metric\nencoder_model: BERT\npretrained_model: {encoder}\n"
        )
        return model

    return build


def stand_in_score(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], factor: float
) -> float:
    """What the stand-in for COMET says of these lines, by itself."""
    lines = zip(sources, hypotheses, references, strict=True)
    return factor * statistics.fmean(len(src) + 10 * len(mt) + 100 * len(ref) for src, mt, ref in lines)


@pytest.fixture(scope="session", name="stand_in_score")
def stand_in_score_fixture() -> Callable[..., float]:
    """The function `stand_in_score`."""
    return stand_in_score


class ScriptedState:
    """A decoding state whose logits are looked up: it fulfils the step protocol and keeps every prefix as it is.

    Args:
        probabilities: gives those of the next token from (sentence, prefix without begin mark).
        num_sentences: N.
    """

    def __init__(self, probabilities: Callable[[int, tuple[int, ...]], Sequence[float]], num_sentences: int) -> None:
        self._probabilities = probabilities
        self._rows: list[tuple[int, list[tuple[int, ...]]]] = [(number, [()]) for number in range(num_sentences)]
        self.seen: list[list[int]] = []

    def step(self, last_ids: Tensor) -> Tensor:
        """Add the newest tokens [N, E] to the prefixes and look up the logits [N, E, V]."""
        assert last_ids.shape == (len(self._rows), len(self._rows[0][1]))
        self.seen.append([number for number, _ in self._rows])
        logits = []
        for row, (number, prefixes) in enumerate(self._rows):
            prefixes[:] = [(*prefix, int(token)) for prefix, token in zip(prefixes, last_ids[row], strict=True)]
            logits.append([self._probabilities(number, prefix[1:]) for prefix in prefixes])
        return torch.tensor(logits, dtype=torch.float64).log()

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis e goes on from parents[n, e]."""
        self._rows = [
            (number, [prefixes[e] for e in row]) for (number, prefixes), row in zip(self._rows, parents, strict=True)
        ]

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences."""
        self._rows = [self._rows[row] for row in sentences]


@pytest.fixture(scope="session")
def scripted_state() -> type[ScriptedState]:
    """The class `ScriptedState`."""
    return ScriptedState
