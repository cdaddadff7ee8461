"""Label-smoothed cross entropy per target token, computed chunk by chunk.

Shapes: N real target tokens, D model width, V target vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_CHUNK = 512


def token_cross_entropy(hidden: Tensor, output_weight: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross entropy of a linear layer over the vocabulary, summed over tokens.

    Logits exist for one chunk of tokens at a time, and their gradient is made while they are there, so that neither N x V logits nor a second
    product for them are needed: the idea of `torch.nn.functional.linear_cross_entropy` with chunks, in half the passes over memory.

    Args:
        hidden: [N, D], real tokens only.
        output_weight: [V, D].
        targets: [N].
        label_smoothing: share of the target distribution that is spread evenly over the vocabulary (Szegedy 2016, arXiv 1512.00567, section 7).

    Returns:
        the smoothed loss summed over tokens (differentiable), and the plain negative log-likelihood summed over tokens (not differentiable).
    """
    loss, nll = _ChunkedCrossEntropy.apply(hidden, output_weight, targets, label_smoothing)
    return loss, nll


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        nll = torch.zeros_like(loss)
        need_hidden, need_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight) if need_weight else None
        num_classes = weight.shape[0]
        spread = smoothing / num_classes
        for start in range(0, len(hidden), _CHUNK):
            rows = hidden[start : start + _CHUNK]
            target = targets[start : start + _CHUNK, None]
            logits = rows @ weight.T
            top = logits.amax(dim=1, keepdim=True)
            # sum_v q_v (lse - z_v) with q = (1 - eps) onehot + eps / V.
            picked = logits.gather(1, target)
            mean = logits.mean(dim=1, keepdim=True) if smoothing else picked
            probabilities = logits.sub_(top).exp_()
            total = probabilities.sum(dim=1, keepdim=True)
            normaliser = total.log() + top
            nll += (normaliser - picked).sum()
            loss += (normaliser - (1 - smoothing) * picked - smoothing * mean).sum()
            if grad_hidden is None and grad_weight is None:
                continue
            gradient = probabilities.div_(total)
            if smoothing:
                gradient.sub_(spread)
            gradient.scatter_add_(1, target, torch.full_like(top, smoothing - 1))
            if grad_hidden is not None:
                torch.mm(gradient, weight, out=grad_hidden[start : start + _CHUNK])
            if grad_weight is not None:
                grad_weight.addmm_(gradient.T, rows)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else grad_hidden * grad_loss,
            None if grad_weight is None else grad_weight * grad_loss,
            None,
            None,
        )
