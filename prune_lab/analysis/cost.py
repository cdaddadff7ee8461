"""What the attention of a model costs, by the formulas of its blocks, and where its parameters are.

Shapes: S source positions, T target positions.
"""

from __future__ import annotations

from prune_lab.analysis.operations import GROUPS, Workload, operations
from prune_lab.heads import HeadSite
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import is_whole


def attention_cost(model: Transformer, source_length: int, target_length: int) -> dict[str, int]:
    """The cost of all attention blocks for one sentence; masked heads count, as they are computed.

    Nothing is run. `prune_lab.evaluation.flops.count_flops` counts the same of a pass without padding.

    Args:
        model: whose blocks are summed.
        source_length: S, positions that the encoder reads.
        target_length: T, positions that the decoder reads.

    Returns:
        `parameters`: weights and biases of the blocks;
        `active_parameters`: of them, those that serve one token, where tokens choose among heads;
        `flops`: of matrix products of a pass under teacher forcing, multiplications and additions counted as two;
        `active_flops`: of them, those for heads that are chosen;
        `cache_bytes`: of keys, values and what else is kept when T positions were decoded with one hypothesis, in
        numbers of the size that the weights have;
        `step_flops` and `active_step_flops`: FLOPs of decoding the last of these T positions, with the keys of the
        source at hand.

    Raises:
        ValueError: a length that is no whole number from 1.
    """
    for key, value in (("source_length", source_length), ("target_length", target_length)):
        if not is_whole(value) or value < 1:
            raise ValueError(f"{key}: {value!r}; allowed are whole numbers from 1")
    names = ("parameters", "active_parameters", "flops", "active_flops", "cache_bytes", "step_flops")
    total = dict.fromkeys((*names, "active_step_flops"), 0)
    element_size = model.output_weight.element_size()
    for name, site in model.attention_sites().items():
        block, place = site.attention, HeadSite.parse(name)
        in_encoder, is_cross = place.stack == "encoder", place.attention == "cross"
        num_keys = source_length if in_encoder or is_cross else target_length
        whole = block.cost(source_length if in_encoder else target_length, num_keys)
        for key in ("parameters", "active_parameters", "flops", "active_flops"):
            total[key] += getattr(whole, key)
        if in_encoder:
            continue
        step = block.cost(1, num_keys, 0 if is_cross else 1)
        total["cache_bytes"] += step.cache_elements * element_size
        total["step_flops"] += step.flops
        total["active_step_flops"] += step.active_flops
    return total


def parameters_by_group(model: Transformer) -> dict[str, int]:
    """Parameters of each group of operations, and `other`: norms, gates, and embeddings that are no projection.

    They sum to all parameters of the model.
    """
    costs = [each for each in operations(model, Workload(bytes_per_number=1)) if each.phase != "step"]
    found = {group: sum(each.weight_bytes for each in costs if each.group == group) for group in GROUPS}
    found["other"] = sum(parameter.numel() for parameter in model.parameters()) - sum(found.values())
    return found
