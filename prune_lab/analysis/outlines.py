"""Models without numbers, for costs as a function of the heads that remain."""

from __future__ import annotations

import dataclasses

from prune_lab.heads import HasHeads, HeadMask, checked_heads
from prune_lab.model.fitting import hollow_model
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import is_whole


def outline_with(model: Transformer, mask: HeadMask) -> Transformer:
    """What `prune_heads` would make of a model, with shapes alone and without gates; takes no memory.

    Raises:
        ValueError: a site or a head number that the model does not have, or a head that is removed already.
    """
    kept = checked_heads(mask.kept, model)
    for name, site in model.attention_sites().items():
        gone = [number for number in kept.setdefault(name, site.numbers) if number not in site.numbers]
        if gone:
            raise ValueError(f"{name}: heads {gone} cannot be kept, they are gone already; there are {site.numbers}")
    return hollow_model(dataclasses.replace(model.config, heads=kept, gates=None))


def spread_heads(model: HasHeads, num_heads: int) -> HeadMask:
    """Keeps as many live heads, as evenly over the sites as can be: from a site with the most, the last head goes.

    Of several such sites the last one loses a head first. What a selection by scores keeps may cost something else.

    Raises:
        ValueError: no whole number from 0 to the live heads.
    """
    kept = {site: list(numbers) for site, numbers in model.heads().items()}
    total = sum(map(len, kept.values()))
    if not is_whole(num_heads) or not 0 <= num_heads <= total:
        raise ValueError(f"num_heads: {num_heads!r}; allowed are whole numbers from 0 to {total}, the live heads")
    for _ in range(total - num_heads):
        fullest = max(reversed(kept), key=lambda site: len(kept[site]))
        kept[fullest].pop()
    return HeadMask({site: tuple(numbers) for site, numbers in kept.items()})
