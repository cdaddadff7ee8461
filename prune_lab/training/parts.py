"""The rows of a batch shared between threads of one process, for training on the CPU.

The operations of a small model are too short for several threads to share one well, and each waits for the slowest. A
thread for each part of the batch, with forward and backward pass of its own, waits once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prune_lab.data.batching import Batch
from prune_lab.gates.held import held_gates
from prune_lab.model.dropout import dropout_generator
from prune_lab.model.transformer import Transformer
from prune_lab.threads import sharing_threads
from prune_lab.training.parameters import gate_parameters

Loss = Callable[[Batch], tuple[Tensor, Tensor]]


def parts_in_force(
    model: Transformer, parts: int, *, device: torch.device, compile_options: Mapping[str, Any] | None
) -> int:
    """How many threads share a batch where `parts` were asked for.

    One elsewhere than on the CPU, in compiled passes, and where attention weights are dropped: those masks cannot be
    drawn by several threads in a fixed order.
    """
    in_order = model.config.attention_dropout == 0 and compile_options is None
    return parts if in_order and device.type == "cpu" else 1


def split_batch(batch: Batch, num_parts: int) -> list[Batch]:
    """Rows of similar length together, as many parts as there are rows at most, without columns of padding only."""
    num_parts = min(num_parts, batch.num_sentences)
    if num_parts == 1:
        return [batch]
    lengths = [(ids != batch.pad_id).sum(1) for ids in (batch.source_ids, batch.target_ids)]
    order = torch.argsort(lengths[0] + lengths[1], stable=True)
    parts = []
    for rows in order.tensor_split(num_parts):
        source_ids, target_ids = (
            ids[rows, : int(length[rows].max())]
            for ids, length in zip((batch.source_ids, batch.target_ids), lengths, strict=True)
        )
        parts.append(Batch(source_ids=source_ids, target_ids=target_ids, pad_id=batch.pad_id))
    return parts


class BatchParts:
    """Computes the loss of a batch part by part, each in its own thread.

    Sums are those of the whole batch and gates are drawn once for it; dropout masks come from a generator of each part,
    seeded from the global one. The result is the same whatever thread is faster.

    Args:
        model: what the loss is differentiated by: its weights and gates.
        loss: sums (loss, negative log-likelihood) over the target tokens of a batch.
        num_parts: threads, of which each computes with its share of `torch.get_num_threads()`.
    """

    def __init__(self, model: Transformer, loss: Loss, num_parts: int) -> None:
        self._model, self._loss, self._num_parts = model, loss, num_parts
        self._threads = sharing_threads(num_parts, "batch-part")
        self._generators = [torch.Generator() for _ in range(num_parts)]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sums of `loss` over the batch; the first is differentiable (once)."""
        gates = {id(parameter) for parameter in gate_parameters(self._model)}
        weights = [p for p in self._model.parameters() if p.requires_grad and id(p) not in gates]
        with held_gates(self._model) as (drawn, leaves):
            return _SharedLoss.apply(self._run, batch, leaves, *weights, *drawn)

    def _run(self, batch: Batch, inputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor, tuple[Tensor | None, ...]]]:
        parts = split_batch(batch, self._num_parts)
        seeds = torch.randint(2**62, (len(parts),)).tolist()
        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def of_part(number: int) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:
            generator = self._generators[number].manual_seed(seeds[number])
            # Autocast and the source of dropout are properties of a thread.
            with dropout_generator(generator):
                with torch.autocast("cpu", enabled=autocast[0], dtype=autocast[1]):
                    loss, nll = self._loss(parts[number])
                gradients = torch.autograd.grad(loss, inputs, allow_unused=True) if inputs else ()
            return loss.detach(), nll, gradients

        return list(self._threads.map(of_part, range(len(parts))))


class _SharedLoss(torch.autograd.Function):
    """Gradients are computed with the loss, so that both passes of a part stay in its thread."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], batch: Batch, leaves: Sequence[Tensor], *inputs: Tensor) -> Any:
        weights = inputs[: len(inputs) - len(leaves)]
        losses, nlls, gradients = zip(*run(batch, [*weights, *leaves]), strict=True)
        ctx.save_for_backward(*map(_sum_of, zip(*gradients, strict=True)))
        loss, nll = torch.stack(losses).sum(), torch.stack(nlls).sum()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if gradient is None else gradient * grad_loss for gradient in ctx.saved_tensors)
        return (None, None, None, *gradients)


def _sum_of(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """The sum in the order of the parts."""
    there = [gradient for gradient in gradients if gradient is not None]
    if len(there) < 2:
        return there[0] if there else None
    total = there[0] + there[1]
    for gradient in there[2:]:
        total.add_(gradient)
    return total
