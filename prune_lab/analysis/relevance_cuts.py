"""Where the relevance of logits is at every depth of a model, what biases keep included.

A cut is a set of activations without which nothing reaches the output. What they hold and what the biases after them
keep is, at every cut, the logit: layers neither make relevance nor lose it, which is what layer-wise propagation asks.

Shapes: B sentences of a batch, S source length, T target positions that predict a token, D model width, H heads at a
site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prune_lab.attention.linearised import linearised
from prune_lab.attention.site import AttentionSite
from prune_lab.data.batch import Batch
from prune_lab.heads import kind_of_site
from prune_lab.model.observation import Observation
from prune_lab.model.relevance import gates_of_one, largest_logits
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True)
class Cut:
    """What logits consist of at one depth of a model.

    Attributes:
        heads: relevance of the outputs of the site's heads, before W_O.
        around: of the stream that goes around the site; of all token vectors at the cut `inputs`, and of what the
            vocabulary projection reads at `hidden`.
        elsewhere: of what is only read later: the target's token vectors at encoder sites, and at decoder sites the
            memory, as far as later cross sites read it.
        biases: what the biases after the cut keep.
        logits: what all of it should sum up to.
    """

    heads: float
    around: float
    elsewhere: float
    biases: float
    logits: float

    @property
    def error(self) -> float:
        """The difference between the sum and the logits, relative to the logits; 0 where both are 0."""
        difference = abs(self.heads + self.around + self.elsewhere + self.biases - self.logits)
        return difference / abs(self.logits) if difference else 0.0


def relevance_cuts(model: Transformer, batch: Batch, factors: Tensor | None = None) -> dict[str, Cut]:
    """Where the relevance of the largest logits is at every depth, by one forward and one backward pass.

    Args:
        model: stays as it is; whatever its mode, nothing is dropped.
        batch: on the model's device.
        factors: [B, T] on the logits of real target tokens, whose sum is looked at; 1 when None.

    Returns:
        `inputs`, the token vectors; each site, at the outputs of its heads; and `hidden`, before the vocabulary.
    """
    with torch.inference_mode(False), torch.enable_grad(), _recording(model):
        is_step = batch.target_ids[:, 1:] != model.config.pad_id
        gates, seen = gates_of_one(model, batch.num_sentences), Observation(need_streams=True)
        with evaluation_mode(model), linearised(), _noting_memory(model) as memory:
            hidden = model.hidden(batch.source_ids, batch.target_ids[:, :-1], gates, seen)
            logits = largest_logits(model, hidden)
        total = (logits * (is_step if factors is None else factors * is_step)).sum()
        around = {name: stream.around for name, stream in seen.streams.items()}
        added = {name: stream.added for name, stream in seen.streams.items()}
        biases = [entry for entry in _order(model) if isinstance(entry, nn.Parameter)]
        slope_of = _Slopes(
            total, (hidden, *gates.values(), *memory.values(), *around.values(), *added.values(), *biases)
        )

    exact = float(total.detach())
    target = slope_of.relevance(around["decoder.0.self"])
    kept = read_later = 0.0
    cuts = {"hidden": Cut(0.0, slope_of.relevance(hidden), 0.0, 0.0, exact)}
    for entry in reversed(list(_order(model))):
        if isinstance(entry, nn.Parameter):
            kept += slope_of.relevance(entry)
            continue
        heads = slope_of.relevance(gates[entry]) if entry in gates else 0.0
        # The stream and what a site adds to it are summed, so that the slope is that of either.
        direct = slope_of.relevance(around[entry], as_of=added[entry])
        elsewhere = target if kind_of_site(entry) == "encoder.self" else read_later
        cuts[entry] = Cut(heads, direct, elsewhere, kept, exact)
        if entry in memory:
            read_later += slope_of.relevance(memory[entry])
    tokens = slope_of.relevance(around["encoder.0.self"]) + target
    cuts["inputs"] = Cut(0.0, tokens, 0.0, kept, exact)
    return dict(reversed(cuts.items()))


class _Slopes:
    """Derivatives of a scalar by tensors, each looked up by the tensor itself."""

    def __init__(self, total: Tensor, tensors: Sequence[Tensor]) -> None:
        recorded = [tensor for tensor in tensors if tensor.requires_grad]
        slopes = torch.autograd.grad(total, recorded, allow_unused=True)
        self._slopes = {id(tensor): slope for tensor, slope in zip(recorded, slopes, strict=True)}

    def relevance(self, tensor: Tensor, as_of: Tensor | None = None) -> float:
        """The sum of a tensor times its slope, or that of `as_of` where there is one; 0 for what nothing depends on."""
        slope = None if as_of is None else self._slopes.get(id(as_of))
        slope = self._slopes.get(id(tensor)) if slope is None else slope
        return 0.0 if slope is None else float((tensor.detach().double() * slope.double()).sum())


def _order(model: Transformer) -> Iterator[str | nn.Parameter]:
    """The biases that a pass adds to what is read later, in this order, and among them the sites, by name.

    A site stands between the biases of its values and that of its output.
    """
    for stack in (model.encoder, model.decoder):
        layer: Any
        for layer in stack.layers:
            blocks = [(layer.self_residual, layer.self_attention), (layer.feed_forward_residual, layer.feed_forward)]
            if stack is model.decoder:
                blocks.insert(1, (layer.cross_residual, layer.cross_attention))
            for residual, block in blocks:
                if residual.pre:
                    yield from _biases(residual)
                if isinstance(block, AttentionSite):
                    yield from _biases(block, of_output=False)
                    yield block.name
                    yield from _biases(block, of_output=True)
                else:
                    yield from _biases(block)
                if not residual.pre:
                    yield from _biases(residual)
        yield from _biases(stack.norm)


def _biases(module: nn.Module, of_output: bool | None = None) -> Iterator[nn.Parameter]:
    for name, parameter in module.named_parameters():
        if name.endswith("bias") and of_output in (None, name.endswith("output.bias")):
            yield parameter


@contextmanager
def _recording(model: Transformer) -> Iterator[None]:
    """All parameters ask for gradients inside, and those that did before ask afterwards."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, requires_grad in flags:
            parameter.requires_grad_(requires_grad)


@contextmanager
def _noting_memory(model: Transformer) -> Iterator[dict[str, Tensor]]:
    """What each cross site reads of the memory, as a tensor of its own: site -> [B, S, D]."""
    noted: dict[str, Tensor] = {}

    def note(site: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        query, memory, *others = arguments
        noted[str(site.name)] = own = memory.view_as(memory)
        return query, own, *others

    sites = [site for name, site in model.attention_sites().items() if kind_of_site(name) == "decoder.cross"]
    hooks = [site.register_forward_pre_hook(note) for site in sites]
    try:
        yield noted
    finally:
        for hook in hooks:
            hook.remove()
