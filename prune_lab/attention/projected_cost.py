"""What a block costs whose queries, keys and values are projections.

Shapes: T query positions, S key positions, E keys that are new, D model width, H heads that remain, V width of what a
head gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prune_lab.attention.cost import NOTHING, AttentionCost, PartCost, linear_cost

if TYPE_CHECKING:
    from prune_lab.attention.projected import ProjectedAttention


def projected_cost(block: ProjectedAttention, num_queries: int, num_keys: int, num_new_keys: int) -> AttentionCost:
    """The cost of projections, scores and weighted sums, by the widths that the block says.

    Args:
        block: whose weights are counted, all of them as active.
        num_queries: T.
        num_keys: S.
        num_new_keys: E.
    """
    parameters = sum(parameter.numel() for parameter in block.parameters())
    if block.numbers:
        projections = _projections(block, num_queries, num_new_keys)
        cache_elements = num_keys * block.num_entry_elements()
        products = _products(block, num_queries, num_keys, cache_elements)
    else:
        # What is left is the output bias.
        projections, products, cache_elements = PartCost(weights=parameters), NOTHING, 0
    flops = projections.flops + products.flops
    return AttentionCost(
        parameters=parameters,
        active_parameters=parameters,
        flops=flops,
        active_flops=flops,
        cache_elements=cache_elements,
        projections=projections,
        products=products,
    )


def _projections(block: ProjectedAttention, num_queries: int, num_new_keys: int) -> PartCost:
    of_queries = linear_cost(num_queries, block.query) + linear_cost(num_queries, block.output)
    of_keys = linear_cost(num_new_keys, block.key, block.value).as_entries()
    if block.sizes.cross:
        return of_queries + of_keys
    # Queries, keys and values are one product of the same inputs.
    return of_queries + of_keys - PartCost(read=block.sizes.d_model * min(num_queries, num_new_keys))


def _products(block: ProjectedAttention, num_queries: int, num_keys: int, num_entries: int) -> PartCost:
    scored, given = block.num_scoring * block.score_dim(), block.num_heads * block.value_dim
    return PartCost(
        flops=2 * num_queries * num_keys * (scored + given),
        read=num_queries * scored,
        written=num_queries * given,
        entries_read=num_entries,
    )
