"""Label-smoothed cross entropy per target token, computed chunk by chunk.

Shapes: N real target tokens, D model width, V target vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prune_lab.attention.products import packed_product, product_type

# Few enough that most tokens of a batch are in whole chunks, for which products are prepared once.
_CHUNK = 256


def token_cross_entropy(
    hidden: Tensor, output_weight: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Cross entropy of a linear layer over the vocabulary, summed over tokens.

    The logits [N, V] exist for one chunk of tokens at a time, and their gradient is made while they are there. That is
    what `torch.nn.functional.linear_cross_entropy` does with its chunks, which know no label smoothing; with label
    smoothing it needs all logits. Products run in the type of `hidden`, or that of autocast where it is on; sums over
    classes and tokens in float32, or in float64 where `hidden` is.

    Args:
        hidden: [N, D], real tokens only.
        output_weight: [V, D].
        targets: [N].
        label_smoothing: share of the target distribution that is spread evenly over the vocabulary (Szegedy 2016,
            arXiv 1512.00567, section 7).

    Returns:
        the smoothed loss summed over tokens (differentiable once), and the plain negative log-likelihood summed over
        tokens (not differentiable).
    """
    if not torch.is_grad_enabled():
        hidden, output_weight = hidden.detach(), output_weight.detach()
    loss, nll = _ChunkedCrossEntropy.apply(hidden, output_weight, targets, label_smoothing)
    return loss, nll


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        product = product_type(hidden)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        nll = torch.zeros_like(loss)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if need_weight else None
        with torch.autocast(device, enabled=False):
            matrix = weight.to(product)
            average = weight.to(exact).mean(dim=0) if smoothing else None
            for start in range(0, len(hidden), _CHUNK):
                chunk = slice(start, start + _CHUNK)
                rows = hidden[chunk].to(product)
                times = packed_product if len(rows) == _CHUNK else torch.nn.functional.linear
                logits = times(rows, matrix).to(exact)
                mean = None if average is None else hidden[chunk].to(exact) @ average
                sums, probabilities = _sums_and_probabilities(logits, targets[chunk], mean, smoothing)
                loss += sums[0]
                nll += sums[1]
                if not need_hidden and not need_weight:
                    continue
                gradient = _gradient(probabilities, targets[chunk], smoothing).to(product)
                if grad_hidden is not None:
                    grad_hidden[chunk] = times(gradient, matrix.T)
                if grad_weight is None:
                    continue
                if product == exact:
                    grad_weight.addmm_(gradient.T, rows)
                else:
                    grad_weight += gradient.T @ rows
        ctx.save_for_backward(grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else (grad_hidden * grad_loss).to(grad_hidden.dtype),
            None if grad_weight is None else (grad_weight * grad_loss).to(grad_weight.dtype),
            None,
            None,
        )


def _sums_and_probabilities(
    logits: Tensor, targets: Tensor, mean: Tensor | None, smoothing: float
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The smoothed loss and the plain negative log-likelihood of logits [N, V], both summed, and softmax(logits).

    The loss is sum_v q_v (lse - z_v) with q = (1 - smoothing) onehot + smoothing / V. The largest probability of a row
    is exp(z - lse) of its largest logit, and never so small that its logarithm would be inexact.

    Args:
        logits: on the CPU the probabilities take their place.
        targets: [N].
        mean: of the logits over V [N], which the spread part needs; None without one.
        smoothing: share of the spread part.
    """
    top, picked = logits.amax(dim=1), logits.gather(1, targets[:, None])[:, 0]
    in_place = logits.device.type == "cpu" and not torch.compiler.is_compiling()
    probabilities = torch.softmax(logits, dim=1, out=logits) if in_place else torch.softmax(logits, dim=1)
    normaliser = top - probabilities.amax(dim=1).log()
    spread = smoothing * mean if mean is not None else 0.0
    loss = (normaliser - (1 - smoothing) * picked - spread).sum()
    return (loss, (normaliser - picked).sum()), probabilities


def _gradient(probabilities: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """softmax(z) - q [N, V], the gradient of the loss by the logits, in place of the probabilities."""
    if smoothing:
        probabilities.sub_(smoothing / probabilities.shape[1])
    return probabilities.scatter_add_(1, targets[:, None], probabilities.new_full((len(targets), 1), smoothing - 1))
