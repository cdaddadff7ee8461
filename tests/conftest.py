"""What many tests need: the data set Multi30k, small models with random biases, and padded batches of random ids."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer


@pytest.fixture(scope="session")
def multi30k_directory() -> Path:
    """Multi30k as gzip text: the directory PRUNE_LAB_MULTI30K, else ``../shared/data/multi30k`` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k"
    directory = Path(os.environ.get("PRUNE_LAB_MULTI30K") or default)
    if not (directory / "train.en.gz").is_file():
        pytest.skip(f"Multi30k is not in {directory}; set PRUNE_LAB_MULTI30K to the directory with train.en.gz")
    return directory


@pytest.fixture(scope="session")
def small_model() -> Callable[..., Transformer]:
    """Builds the small model of the checks: 2+2 layers, D 32, 4 heads of width 8, random biases, evaluation mode.

    ``build(seed=0, **settings)`` changes settings of its `ModelConfig`. The vocabularies have 37 source and 41 target
    entries, 41 each when shared.
    """

    def build(seed: int = 0, **settings: Any) -> Transformer:
        sizes = {"source_vocab_size": 41 if settings.get("share_embeddings") else 37, "target_vocab_size": 41}
        stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4}
        torch.manual_seed(seed)
        model = Transformer(
            ModelConfig(**{**sizes, **stacks, "d_model": 32, "d_feed_forward": 48, "dropout": 0.0, **settings})
        )
        randomise(model)
        return model.eval()

    return build


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
def randomise(model: nn.Module) -> None:
    """Random biases and norms; queries and keys large enough for attention that is far from even."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(std=0.3)
        elif name.endswith("norm.weight"):
            parameter.uniform_(0.5, 1.5)
        elif name.endswith(("query.weight", "key.weight")):
            parameter.mul_(2.5)


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
