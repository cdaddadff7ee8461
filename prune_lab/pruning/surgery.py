"""Masking and removing heads. Both return a new model and leave the one they were given as it was.

`prune_heads(model, mask)` computes the same function as `mask_heads(model, mask)` with fewer weights: a head's output
reaches the rest of the model only through its own columns of W_O, so a head that contributes zero and a head that is
not there are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prune_lab.gates.fixed import FixedGate
from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.heads import HeadMask, checked_heads
from prune_lab.model.fitting import check_model
from prune_lab.model.transformer import Transformer


def mask_heads(model: Transformer, mask: HeadMask) -> Transformer:
    """A copy with the same shapes in which the heads that `mask` does not keep contribute exactly zero, in every mode.

    Raises:
        ValueError: no model, no mask, or a site or a head number that the model does not have.
    """
    _check(model, mask)
    return _masked_in_place(model.copy(), mask)


def prune_heads(model: Transformer, mask: HeadMask, *, keep_gates: bool = True) -> Transformer:
    """A copy without the heads that `mask` does not keep (masked heads go as well), with smaller shapes.

    Args:
        model: stays as it is.
        mask: what to keep, by original head number.
        keep_gates: the survivors keep their gates; False takes all gates off: constant factors go into the output
            weights (a head whose factor is 0 goes as well), and after gates that learn each survivor counts fully.

    Raises:
        ValueError: no model, no mask, or a site or a head number that the model does not have.
    """
    _check(model, mask)
    pruned = _masked_in_place(model.copy(), mask)
    if not keep_gates:
        _fold_in_place(pruned, [name for name, gate in pruned.gates().items() if isinstance(gate, FixedGate)])
        pruned.remove_gates()
    for name, site in pruned.attention_sites().items():
        kept = site.heads()
        if kept != site.numbers:
            site.keep_heads(kept)
        assert pruned.config.heads is not None  # filled in by the config
        pruned.config.heads[name] = kept
    pruned.freeze_unused()
    return pruned


def fold_gates(model: Transformer) -> Transformer:
    """A copy without gates whose output weights carry the evaluation gates: the same function in evaluation.

    Heads whose gate is exactly 0 are masked in the copy, so that they stay closed and count as gone.
    """
    folded = model.copy()
    _fold_in_place(folded, list(folded.gates()))
    folded.remove_gates()
    return folded


def fold_fractions(model: Transformer) -> Transformer:
    """A copy without gates whose output weights carry the fractions of its hard concrete gates, as published.

    Raises:
        ValueError: the model has no gates with fractions.
    """
    return fold_gates(with_fractions(model))


def with_fractions(model: Transformer) -> Transformer:
    """A copy that evaluates with the fractions of its hard concrete gates, whatever their own evaluation rule.

    The fractions are clip(sigmoid(log_a)*(zeta-gamma)+gamma, 0, 1).

    Raises:
        ValueError: the model has no gates with fractions.
    """
    fractional = model.copy()
    gates = list(fractional.gates().values())
    if not gates or not all(isinstance(gate, HardConcreteGate) for gate in gates):
        raise ValueError("gate_evaluation: fraction; allowed for a model with hard_concrete gates only")
    for gate in gates:
        gate.evaluation = "fraction"  # type: ignore[assignment]
    return fractional


@torch.no_grad()
def _fold_in_place(model: Transformer, names: Sequence[str]) -> None:
    """Multiply the evaluation gates of these sites into their output weights, and mask the heads that are closed."""
    open_heads, sites = model.open_heads(), model.attention_sites()
    for name in names:
        site = sites[name]
        if site.numbers:
            site.attention.fold_gates(site.gate.value())  # type: ignore[operator,union-attr]
            site.mask_heads(open_heads[name])


def _check(model: Transformer, mask: HeadMask) -> None:
    check_model(model)
    if not isinstance(mask, HeadMask):
        raise ValueError(
            f"mask: a {type(mask).__name__}; allowed is a HeadMask, as HeadMask.removing({{SITE: [0, 2]}}, model) gives"
        )


def _masked_in_place(model: Transformer, mask: HeadMask) -> Transformer:
    # A mask need not come from `removing` or `keeping`, nor from this model.
    kept = checked_heads(mask.kept, model)
    for name, site in model.attention_sites().items():
        if name in kept:
            site.mask_heads(kept[name])
    return model
