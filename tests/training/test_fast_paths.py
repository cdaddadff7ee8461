"""All that makes training fast on the CPU, together, against the plain way: the same loss and gradients in float32.

Fast: threads share the batch, attention over short sequences by batched products, cross entropy chunk by chunk through
oneDNN. Plain: the fused kernel, all logits, `torch.nn.functional.cross_entropy`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from prune_lab import kernels
from prune_lab.attention import core
from prune_lab.attention.short import fused_only
from prune_lab.data.batching import Batch, collate
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parts import BatchParts

VOCABULARY = 10_000
SMOOTHING = 0.1


def batch_of(num_sentences: int) -> Batch:
    """Lengths as of captions, common words more often than rare ones."""
    generator = torch.Generator().manual_seed(0)
    lengths = (13 + 5 * torch.randn(num_sentences, generator=generator)).round().long().clamp(3, 40).tolist()

    def words(num: int) -> list[int]:
        uniform = torch.rand(num, generator=generator)
        return (4 + ((VOCABULARY - 4) ** uniform).long()).clamp(max=VOCABULARY - 1).tolist()

    return collate(
        [([*words(length), 2], [1, *words(length + number % 4), 2]) for number, length in enumerate(lengths)]
    )


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY, "d_model": 128, "d_feed_forward": 256}
    stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4}
    return Transformer(ModelConfig(**sizes, **stacks, dropout=0.0, share_embeddings=True)).train()


def noting(used: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which adds its name to a list, also from several threads."""

    def noted(*arguments: Any) -> Any:
        used.append(name)
        return function(*arguments)

    return noted


def gradients(model: Transformer, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def test_loss_and_gradients_are_those_of_the_plain_way(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(80)
    used: list[str] = []
    for module, name in ((core, "attend_short"), (kernels, "_packed")):
        monkeypatch.setattr(module, name, noting(used, name, getattr(module, name)))

    fast, nll = BatchParts(model, BatchLoss(model, label_smoothing=SMOOTHING), 2)(batch)
    fast = fast / batch.num_target_tokens
    found = gradients(model, fast)
    assert used.count("attend_short") == 2 * 6, "each part, at each of the six sites"
    # In each part at least one whole chunk, with a product forward and one backward.
    assert not torch.backends.mkldnn.is_available() or used.count("_packed") >= 2 * 2

    num_used = len(used)
    with fused_only():
        logits = model(batch.source_ids, batch.target_ids[:, :-1]).flatten(0, 1)
        targets = batch.target_ids[:, 1:].flatten()
        plain = functional.cross_entropy(logits, targets, ignore_index=batch.pad_id, label_smoothing=SMOOTHING)
        expected = gradients(model, plain)
    assert len(used) == num_used, "the plain way"
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=0)
    of_words = functional.cross_entropy(logits, targets, ignore_index=batch.pad_id, reduction="sum")
    torch.testing.assert_close(nll, of_words.detach(), rtol=1e-6, atol=0)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # Nothing but rounding moves the biases of keys, to which a softmax is blind.
        largest = max(float(gradient.abs().max()), 1e-4)
        assert float((found[name] - gradient).abs().max()) < 1e-5 * largest, name
