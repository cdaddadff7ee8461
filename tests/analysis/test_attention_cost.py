"""What attention costs by formula is what is counted when a model runs.

Shapes: S source positions, T target positions.
"""

from collections.abc import Callable

import pytest
import torch
from cost_models import REMOVED, pruned
from torch import Tensor

from prune_lab import HeadMask, mask_heads
from prune_lab.analysis.cost import attention_cost
from prune_lab.attention.contract import Attention
from prune_lab.attention.mixture_of_head import MixtureOfHeadAttention
from prune_lab.evaluation.flops import count_flops
from prune_lab.model.stepping import CachedState
from prune_lab.model.transformer import Transformer

# No position of padding is added to sources of 16 positions or more; unlike lengths tell queries from keys.
S, T = 18, 21
Build = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def test_parameters_and_flops_are_those_that_are_counted(costed_model: Transformer, sources: Ids, targets: Ids) -> None:
    cost = attention_cost(costed_model, S, T)
    source_ids, target_ids = sources([S - 1]), targets([T - 2])
    assert (source_ids.shape, target_ids.shape) == ((1, S), (1, T))
    with torch.inference_mode():
        assert count_flops(costed_model, lambda: costed_model(source_ids, target_ids)).attention == cost["flops"]
    blocks = [site.attention for site in costed_model.attention_sites().values()]
    assert cost["parameters"] == sum(parameter.numel() for block in blocks for parameter in block.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_cache_is_the_one_of_a_decoder_and_a_step_costs_what_it_does(
    costed_model: Transformer, sources: Ids, dtype: torch.dtype
) -> None:
    costed_model = costed_model.to(dtype)
    cost = attention_cost(costed_model, S, T)
    with torch.inference_mode():
        state = CachedState(costed_model, sources([S - 1]))
        for _ in range(T - 1):
            state.step(torch.tensor([[5]]))
        assert count_flops(costed_model, lambda: state.step(torch.tensor([[6]]))).attention == cost["step_flops"]
    element_size = torch.empty(0, dtype=dtype).element_size()
    assert cost["cache_bytes"] == element_size * sum(cache.num_elements for cache in state._caches.values())


def test_what_is_active_is_less_only_where_tokens_choose(small_model: Build, attention: dict) -> None:
    model = small_model(attention=attention)
    cost = attention_cost(model, S, T)
    chooses = any(_num_idle(site.attention) for site in model.attention_sites().values())
    for whole in ("parameters", "flops", "step_flops"):
        assert (0 < cost[f"active_{whole}"] < cost[whole]) if chooses else cost[f"active_{whole}"] == cost[whole]


def _num_idle(block: Attention) -> int:
    """Heads of a block that a token does not choose."""
    if not isinstance(block, MixtureOfHeadAttention):
        return 0
    block = block.eval()
    return block.num_heads - int((block.route(torch.ones(1, 1, 32)).gates != 0).sum())


def test_active_heads_of_a_mixture_by_hand(small_model: Build) -> None:
    """One shared head and one of three routed ones: half of queries, scores, weighted sums and outputs."""
    options = {"num_shared": 1, "k": 1}
    model = small_model(attention={"name": "mixture_of_head", "options": options})
    width, head_dim, heads = 32, 8, 4
    idle = 0
    for queries, keys in [(S, S)] * 2 + [(T, T)] * 2 + [(T, S)] * 2:
        # Queries and output, then scores and weighted sums.
        idle += heads // 2 * (2 * 2 * queries * width * head_dim + 2 * 2 * queries * keys * head_dim)
    cost = attention_cost(model, S, T)
    assert cost["flops"] - cost["active_flops"] == idle
    own = heads // 2 * (4 * width * head_dim + 3 * head_dim)
    assert cost["parameters"] - cost["active_parameters"] == 6 * own


def test_masked_heads_cost_what_they_did_and_removed_ones_nothing(small_model: Build) -> None:
    model = small_model()
    masked_model = mask_heads(model, HeadMask.removing(REMOVED, model))
    whole, masked, smaller = (attention_cost(each, S, T) for each in (model, masked_model, pruned(model)))
    assert masked == whole
    num_removed = sum(map(len, REMOVED.values()))
    assert whole["parameters"] - smaller["parameters"] == num_removed * (4 * 32 * 8 + 3 * 8)
    assert all(smaller[key] < whole[key] for key in whole)


@pytest.mark.parametrize(("lengths", "message"), [((0, 5), "source_length: 0"), ((5, 2.0), "target_length: 2.0")])
def test_lengths_are_whole_numbers_from_one(small_model: Build, lengths: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}; allowed are whole numbers from 1"):
        attention_cost(small_model(), *lengths)
