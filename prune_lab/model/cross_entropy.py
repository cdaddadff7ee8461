"""Label-smoothed cross entropy per target token, computed chunk by chunk.

Shapes: N real target tokens, C tokens of a chunk, D model width, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prune_lab.attention.products import product_type
from prune_lab.kernels import packed_product, softmax_in_place

# Few enough that most tokens of a batch are in whole chunks, for which products are prepared once.
_CHUNK = 256

Product = Callable[[Tensor, Tensor], Tensor]
# From the logits [C, V] of a chunk, which it may overwrite, the chunk and the product of rows and matrix: the loss and
# the plain negative log-likelihood, both summed, and a function that gives the loss's gradient by the logits [C, V].
ChunkLoss = Callable[[Tensor, slice, Product], tuple[Tensor, Tensor, Callable[[], Tensor]]]


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
    return chunked_loss(hidden, output_weight, CrossEntropy(hidden, output_weight, targets, label_smoothing))


def chunked_loss(hidden: Tensor, output_weight: Tensor, loss_of_chunk: ChunkLoss) -> tuple[Tensor, Tensor]:
    """A loss of the logits of a linear layer over the vocabulary that never builds all of them.

    Args:
        hidden: [N, D].
        output_weight: [V, D].
        loss_of_chunk: the loss of some of the tokens.

    Returns:
        as `token_cross_entropy`.
    """
    if not torch.is_grad_enabled():
        hidden, output_weight = hidden.detach(), output_weight.detach()
    loss, nll = _ChunkedLoss.apply(hidden, output_weight, loss_of_chunk)
    return loss, nll


class CrossEntropy:
    """Label-smoothed cross entropy of the logits of a chunk, a `ChunkLoss`.

    The loss is sum_v q_v (lse - z_v) with q = (1 - smoothing) onehot + smoothing / V.

    Args:
        hidden: [N, D].
        output_weight: [V, D].
        targets: [N].
        smoothing: share of the target distribution that is spread evenly.
    """

    def __init__(self, hidden: Tensor, output_weight: Tensor, targets: Tensor, smoothing: float) -> None:
        self._hidden, self._targets, self._smoothing = hidden.detach(), targets, smoothing
        self._average = None
        if smoothing:
            with torch.autocast(hidden.device.type, enabled=False):
                self._average = output_weight.detach().to(exact_type(hidden)).mean(dim=0)

    def __call__(self, logits: Tensor, chunk: slice, times: Product) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        """On the CPU the gradient takes the place of the logits."""
        picked = self.picked(logits, chunk)
        probabilities, normaliser = softmax(logits, in_place=True)
        loss, nll = self.sums(picked, normaliser, chunk)
        return loss, nll, lambda: self.subtract_target(probabilities, chunk)

    def picked(self, logits: Tensor, chunk: slice) -> Tensor:
        """The logits [C] of the targets."""
        return logits.gather(1, self._targets[chunk][:, None])[:, 0]

    def sums(self, picked: Tensor, normaliser: Tensor, chunk: slice) -> tuple[Tensor, Tensor]:
        """The smoothed loss and the plain negative log-likelihood, both summed.

        Args:
            picked: see there.
            normaliser: log of the summed exponentials of the logits [C].
            chunk: which tokens.
        """
        # The logits' mean over the vocabulary, which the spread part needs.
        mean = 0.0 if self._average is None else self._hidden[chunk].to(normaliser.dtype) @ self._average
        loss = (normaliser - (1 - self._smoothing) * picked - self._smoothing * mean).sum()
        return loss, (normaliser - picked).sum()

    def subtract_target(self, probabilities: Tensor, chunk: slice, share: float = 1.0) -> Tensor:
        """p - share q [C, V] in place of p: for the softmax and all of q, the gradient of the loss."""
        if self._smoothing:
            probabilities.sub_(share * self._smoothing / probabilities.shape[1])
        targets = self._targets[chunk]
        value = probabilities.new_full((len(targets), 1), share * (self._smoothing - 1))
        return probabilities.scatter_add_(1, targets[:, None], value)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, loss_of_chunk: ChunkLoss) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        product, exact = product_type(hidden), exact_type(hidden)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        nll = torch.zeros_like(loss)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if need_weight else None
        with torch.autocast(device, enabled=False):
            matrix = weight.to(product)
            for start in range(0, len(hidden), _CHUNK):
                chunk = slice(start, start + _CHUNK)
                rows = hidden[chunk].to(product)
                times = packed_product if len(rows) == _CHUNK else torch.nn.functional.linear
                chunk_loss, chunk_nll, gradient_of = loss_of_chunk(times(rows, matrix).to(exact), chunk, times)
                loss += chunk_loss
                nll += chunk_nll
                if not need_hidden and not need_weight:
                    continue
                gradient = gradient_of().to(product)
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
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else (grad_hidden * grad_loss).to(grad_hidden.dtype),
            None if grad_weight is None else (grad_weight * grad_loss).to(grad_weight.dtype),
            None,
        )


def exact_type(hidden: Tensor) -> torch.dtype:
    """The type of sums over classes and tokens: float32, or float64 where `hidden` is."""
    return torch.promote_types(hidden.dtype, torch.float32)


def softmax(logits: Tensor, *, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """Probabilities [C, V] of logits, and the log of their summed exponentials [C].

    The largest probability of a row is exp(z - lse) of its largest logit, and never so small that its logarithm would
    be inexact.

    Args:
        logits: [C, V].
        in_place: whether the probabilities may take the place of the logits, as they do on the CPU.
    """
    top = logits.amax(dim=1)
    probabilities = softmax_in_place(logits) if in_place else torch.softmax(logits, dim=1)
    return probabilities, top - probabilities.amax(dim=1).log()
