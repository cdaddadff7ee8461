"""Gradient importance (Michel 2019, arXiv 1905.10650, eq. 2).

Shapes: B sentences of a batch, S source length, T target length, V target vocabulary, H heads at a site.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.cross_entropy import token_cross_entropy
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion, evaluating
from prune_lab.threads import share_of_threads

ABSOLUTES = ("sentence", "token", "batch")
_AT_ONCE = 2


class Gradient(Criterion):
    """I_h = mean over sentences x of |dL(x)/dxi_h|, at xi_h = 1, a factor on the output of head h.

    L(x) is the summed negative log-likelihood of the real target tokens of x, without label smoothing. The factor
    comes on top of the gate that the head has in evaluation, so a closed head scores 0. Every sentence has a xi of its
    own [B, H], which reaches its own loss only: one backward pass over a batch gives all sentences, heads and sites.
    Nothing but xi asks for gradients, so that no weight gradient is computed or stored.

    Args:
        absolute: where the absolute value is taken. `sentence`: as above, and as in the paper. `token`: of the
            derivative at each position of the query side (S positions at encoder sites, T at decoder sites), summed
            over the positions of a sentence; never below `sentence`. `batch`: of the sum over a batch, divided by the
            number of sentences in the end. There, derivatives of different sentences cancel, and the scores depend on
            the split into batches; the settings hold their number.
        normalise: divide the scores of each site by their l2 norm.

    Raises:
        ValueError: an unknown `absolute`, or a `normalise` that is no boolean.
    """

    name: ClassVar[str] = "gradient"

    def __init__(self, *, absolute: str = "sentence", normalise: bool = False) -> None:
        if absolute not in ABSOLUTES:
            raise ValueError(f"criterion.absolute: {absolute!r}; allowed are {', '.join(ABSOLUTES)}")
        if not isinstance(normalise, bool):
            raise ValueError(f"criterion.normalise: {normalise!r}; allowed are true and false")
        self.absolute = absolute
        self.normalise = normalise

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`.

        Raises:
            ValueError: no sentences, or a score that is not finite (the model's numbers overflow).
        """
        sites = model.attention_sites()
        sums = {name: torch.zeros(len(site.numbers), dtype=torch.float64) for name, site in sites.items()}
        num_sentences = num_tokens = num_batches = 0
        with evaluating(model):
            for batch, contributions in self._of_batches(model, batches):
                for name, contribution in contributions.items():
                    sums[name] += contribution
                num_sentences += batch.num_sentences
                num_tokens += int((batch.target_ids[:, 1:] != model.config.pad_id).sum())
                num_batches += 1
        if not num_sentences:
            raise ValueError("batches: no sentences; gradient importance is measured on at least one")
        measured = {"num_sentences": num_sentences, "num_tokens": num_tokens}
        if self.absolute == "batch":
            measured["num_batches"] = num_batches
        settings = {"absolute": self.absolute, "normalise": self.normalise, **measured}
        values = {name: self._finished(sites[name], total / num_sentences) for name, total in sums.items()}
        return HeadScores(values, self.name, settings)

    def _of_batches(self, model: Transformer, batches: Iterable[Batch]) -> Iterator[tuple[Batch, dict[str, Tensor]]]:
        """Each batch with what it adds to the sums, in order; on the CPU two at a time, each in a thread of its own.

        The operations of a small model are too short for several threads to share one well.
        """
        device = model.output_weight.device
        kind = device.type
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

        def contributions(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
            # Whether gradients are recorded, and autocast, are properties of a thread.
            with torch.inference_mode(False), torch.enable_grad(), torch.autocast(kind, dtype=dtype, enabled=enabled):
                return batch, self._contributions(model, batch.to(device))

        if kind != "cpu" or torch.get_num_threads() == 1:
            yield from map(contributions, batches)
            return
        with share_of_threads(_AT_ONCE), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="importance") as threads:
            waiting: deque[Future[tuple[Batch, dict[str, Tensor]]]] = deque()
            for batch in batches:
                waiting.append(threads.submit(contributions, batch))
                if len(waiting) > _AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _contributions(self, model: Transformer, batch: Batch) -> dict[str, Tensor]:
        """What a batch adds to the sums: site -> [H] (float64, on the CPU)."""
        gates = self._gates_of_ones(model, batch)
        if not gates:
            return {}
        derivatives = torch.autograd.grad(summed_loss(model, batch, gates), list(gates.values()))
        return dict(zip(gates, (self._reduced(derivative.cpu().double()) for derivative in derivatives), strict=True))

    def _gates_of_ones(self, model: Transformer, batch: Batch) -> dict[str, Tensor]:
        """xi of every site that has heads: [B, H], or [B, H, T] for absolute values by position."""
        weight = model.output_weight
        gates = {}
        for name, site in model.attention_sites().items():
            shape = [batch.num_sentences, len(site.numbers)]
            if self.absolute == "token":
                shape.append(batch.source_ids.shape[1] if name.startswith("encoder") else batch.target_ids.shape[1] - 1)
            if site.numbers:
                gates[name] = torch.ones(shape, dtype=weight.dtype, device=weight.device, requires_grad=True)
        return gates

    def _reduced(self, derivative: Tensor) -> Tensor:
        """dL/dxi [B, H] or [B, H, T] -> [H]. At padded positions it is exactly 0: no real token reads them."""
        if self.absolute == "token":
            return derivative.abs().sum((0, 2))
        return derivative.sum(0).abs() if self.absolute == "batch" else derivative.abs().sum(0)

    def _finished(self, site: AttentionSite, scores: Tensor) -> dict[int, float]:
        """Means [H] -> the scores of a site's live heads by original number."""
        by_number = dict(zip(site.numbers, scores.tolist(), strict=True))
        live = {number: by_number[number] for number in site.heads()}
        for number, value in live.items():
            if not math.isfinite(value):
                raise ValueError(f"score of {site.name}.{number}: {value}; its gradient overflows, use float32 weights")
        norm = math.hypot(*live.values())
        return {number: value / norm for number, value in live.items()} if self.normalise and norm > 0 else live


def summed_loss(model: Transformer, batch: Batch, head_gates: Mapping[str, Tensor] | None = None) -> Tensor:
    """The negative log-likelihood of all real target tokens (end marks among them, begin marks not), summed: a scalar.

    Logits exist for real positions alone and for a chunk of them at a time, never as [B, T, V].

    Args:
        model: in evaluation mode.
        batch: on the model's device.
        head_gates: see `Transformer.hidden`; the target side has T - 1 positions here, since the last predicts nothing.
    """
    hidden = model.hidden(batch.source_ids, batch.target_ids[:, :-1], head_gates).flatten(0, 1)
    targets = batch.target_ids[:, 1:].flatten()
    real = (targets != model.config.pad_id).nonzero()[:, 0]
    loss, _ = token_cross_entropy(hidden.index_select(0, real), model.output_weight, targets[real])
    return loss
