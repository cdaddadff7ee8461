"""What becomes of trained gates when their model is pruned, and which heads count then.

`round`: gates that learn come off, and each head that stays counts fully. `fraction`: their fractions go into W_O.
`keep`: gates stay, and count by their own rule. Constant gates go into W_O unless they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from prune_lab.gates.fixed import FixedGate
from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import fold_fractions, prune_heads, with_fractions


def counting(model: Transformer, gate_evaluation: str) -> Transformer:
    """The model with those heads alone that would count in its export, and gates that evaluate as they do there.

    Its heads are what budgets are taken from: a head whose gate is 0 can be no part of an exact number.

    Args:
        model: stays as it is.
        gate_evaluation: see the module.

    Raises:
        ValueError: `fraction` of a model without gates that have one.
    """
    if gate_evaluation == "fraction":
        model = with_fractions(model)
    all_constant = all(isinstance(gate, FixedGate) for gate in model.gates().values())
    heads = model.open_heads() if gate_evaluation != "round" or all_constant else model.heads()
    return model if heads == model.heads() else prune_heads(model, HeadMask.keeping(heads, model))


def settled(model: Transformer, gate_evaluation: str) -> Transformer:
    """The model as it is exported. The given one stays as it is, and is the result where nothing is left to do."""
    if gate_evaluation == "keep" or not model.gates():
        return model
    whole = fold_fractions(model) if gate_evaluation == "fraction" else model
    return prune_heads(whole, HeadMask.keeping({}, whole), keep_gates=False)


def check_counting(
    wanted: Sequence[int], counted: Transformer, model: Transformer, gate_evaluation: str, key: str = "budgets"
) -> None:
    """ValueError for a budget that the heads that count cannot pay for.

    Args:
        wanted: heads to keep.
        counted: see `counting`; made from `model`.
        model: as given.
        gate_evaluation: see the module.
        key: of the configuration, for the message.
    """
    num_counted, num_live = (sum(map(len, each.heads().values())) for each in (counted, model))
    for budget in wanted:
        if num_counted < budget <= num_live:
            raise ValueError(
                f"{key}: {budget} heads, but of the {num_live} there are, {num_counted} count with "
                f"gate_evaluation={gate_evaluation} (the gates of the others are 0); allowed are whole numbers from 0 "
                f"to {num_counted}"
            )
