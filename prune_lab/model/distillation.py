"""What a model loses to a teacher on the same target tokens, computed chunk by chunk.

Shapes: N real target tokens, C tokens of a chunk, D model width, E model width of the teacher, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from prune_lab.attention.products import product_type
from prune_lab.model.cross_entropy import CrossEntropy, Product, chunked_loss, softmax


@dataclass(frozen=True, kw_only=True)
class Taught:
    """What a teacher says of the target tokens of a batch, and how much of it counts.

    Attributes:
        hidden: [N, E], what its vocabulary projection reads; without a gradient.
        output_weight: [V, E], its vocabulary projection.
        weight: w of the loss, from 0 to 1.
        temperature: tau of the loss, above 0.
    """

    hidden: Tensor
    output_weight: Tensor
    weight: float
    temperature: float


def token_distillation(
    hidden: Tensor, output_weight: Tensor, targets: Tensor, taught: Taught, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Word-level knowledge distillation, summed over tokens.

    The loss is (1 - w) * cross entropy + w * tau^2 * KL(teacher || model), KL being that of softmax(z / tau) of the
    logits z of both; tau^2 keeps the size of its gradient when tau changes (Hinton 2015, arXiv 1503.02531, section 2).
    Under teacher forcing it is the word-level distillation of Kim and Rush 2016 (arXiv 1606.07947, section 3.1) less
    the teacher's entropy, which does not depend on the model. At tau = 1 both parts share one softmax, and the gradient
    by the logits is that softmax minus the mixture of both target distributions.

    Logits of both models exist for one chunk of tokens at a time, as in `token_cross_entropy`, whose types of products
    and sums these are.

    Args:
        hidden: [N, D], real tokens only.
        output_weight: [V, D].
        targets: [N].
        taught: by the teacher, for the same tokens.
        label_smoothing: of the cross entropy.

    Returns:
        the loss summed over tokens (differentiable once, by `hidden` and `output_weight`), and the plain negative
        log-likelihood of the targets summed over tokens (not differentiable).
    """
    cross_entropy = CrossEntropy(hidden, output_weight, targets, label_smoothing)
    return chunked_loss(hidden, output_weight, _Distillation(cross_entropy, taught, product_type(hidden)))


class _Distillation:
    """The loss of the logits of a chunk, a `ChunkLoss`.

    Args:
        cross_entropy: the other part of the loss.
        taught: by the teacher.
        product: type of the product that gives the teacher's logits.
    """

    def __init__(self, cross_entropy: CrossEntropy, taught: Taught, product: torch.dtype) -> None:
        self._cross_entropy, self._taught, self._product = cross_entropy, taught, product
        self._matrix = taught.output_weight.detach().to(product)

    def __call__(self, logits: Tensor, chunk: slice, times: Product) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        weight, temperature = self._taught.weight, self._taught.temperature
        rows = self._taught.hidden[chunk].detach().to(self._product)
        theirs = times(rows, self._matrix).to(logits.dtype)
        picked = self._cross_entropy.picked(logits, chunk)
        cooled = logits
        if temperature != 1:
            theirs, cooled = theirs.div_(temperature), logits / temperature
        wanted, their_normaliser = softmax(theirs)
        # KL = sum_v p_v (z'_v - z_v) - lse' + lse, for each token
        distance = torch.dot(wanted.view(-1), theirs.sub_(cooled).view(-1)) - their_normaliser.sum()
        probabilities, normaliser = softmax(logits, in_place=True)
        cooled_probabilities, cooled_normaliser = (
            (probabilities, normaliser) if temperature == 1 else softmax(cooled, in_place=True)
        )
        divergence = distance + cooled_normaliser.sum()
        loss, nll = self._cross_entropy.sums(picked, normaliser, chunk)

        def gradient() -> Tensor:
            if temperature == 1:
                probabilities.sub_(wanted, alpha=weight)
            else:
                probabilities.mul_(1 - weight)
                probabilities.add_(cooled_probabilities.sub_(wanted), alpha=weight * temperature)
            return self._cross_entropy.subtract_target(probabilities, chunk, 1 - weight)

        return (1 - weight) * loss + weight * temperature**2 * divergence, nll, gradient
