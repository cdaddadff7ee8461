"""FLOPs against a count by hand, memory against known sizes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from prune_lab import HeadMask, prune_heads
from prune_lab.attention.reduced import reduced_products
from prune_lab.evaluation.flops import Flops, count_flops
from prune_lab.evaluation.memory import peak_memory
from prune_lab.model.transformer import Transformer

CPU = torch.device("cpu")
Build = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def by_hand(model: Transformer, num_rows: int, source: int, target: int) -> Flops:
    """Two for each multiplication and addition of the matrix products."""
    config, width = model.config, model.config.d_model
    attention = 0
    for name, site in model.attention_sites().items():
        queries = source if name.startswith("encoder") else target
        keys = source if name.endswith("cross") or name.startswith("encoder") else target
        inner = len(site.numbers) * site.attention.head_dim
        # Queries and output; keys and values; scores and weighted sums.
        attention += 2 * width * inner * 2 * queries + 2 * width * inner * 2 * keys + 2 * 2 * queries * keys * inner
    rows = config.encoder_layers * source + config.decoder_layers * target
    feed_forward = 2 * 2 * width * config.d_feed_forward * rows
    vocabulary = 2 * width * config.target_vocab_size * target
    return Flops(num_rows * (attention + feed_forward + vocabulary), num_rows * attention)


@pytest.mark.parametrize("removed", [[], [1], [0, 1, 2, 3]])
def test_flops_of_a_forward_pass_are_those_counted_by_hand(
    small_model: Build, sources: Ids, targets: Ids, removed: list[int]
) -> None:
    model = small_model()
    model = prune_heads(model, HeadMask.removing({"encoder.1.self": removed, "decoder.0.cross": removed}, model))
    source_ids, target_ids = sources([7, 7, 7]), targets([9, 9, 9])
    with torch.inference_mode():
        found = count_flops(model, lambda: model(source_ids, target_ids))
    assert found == by_hand(model, 3, source_ids.shape[1], target_ids.shape[1])


def test_flops_of_a_backward_pass_are_twice_those_of_the_forward_pass(
    small_model: Build, sources: Ids, targets: Ids
) -> None:
    """Up to the scores, which the backward pass of fused attention computes again."""
    model, source_ids, target_ids = small_model(), sources([7]), targets([9])
    with torch.inference_mode():
        forward = count_flops(model, lambda: model(source_ids, target_ids))
    both = count_flops(model, lambda: model(source_ids, target_ids).sum().backward())
    assert 3 * forward.total <= both.total < 3.2 * forward.total
    assert both.attention == forward.attention


def test_counting_leaves_no_hooks_behind(small_model: Build, sources: Ids, targets: Ids) -> None:
    model = small_model()
    with pytest.raises(RuntimeError, match="stop"):
        count_flops(model, lambda: exec("raise RuntimeError('stop')"))
    assert not any(site._forward_hooks or site._forward_pre_hooks for site in model.attention_sites().values())


def test_peak_memory_is_what_lives_at_once() -> None:
    outside = torch.ones(1000)

    def run() -> None:
        first = outside + 1  # 4000 bytes
        second = torch.cat([first, first])  # 12000 in all
        second.add_(1).view(20, 100)[0].sigmoid_()  # nothing new
        del first, second
        outside.mul_(2)
        torch.zeros(2500).sum()  # 10000, and the sum

    assert peak_memory(run, CPU) == 12000


def test_peak_memory_sees_what_the_backward_pass_needs() -> None:
    weight = nn.Parameter(torch.ones(500))

    def run(num_steps: int) -> int:
        def chain() -> None:
            value = weight
            for _ in range(num_steps):
                value = value.sin()
            value.sum().backward()
            weight.grad = None

        return peak_memory(chain, CPU)

    # Each sine keeps its input, and the first that of the parameter, which was there before.
    assert run(9) - run(5) == 4 * 500 * 4


def test_products_of_whole_numbers_count_as_others_do(small_model: Build, sources: Ids) -> None:
    model, ids = small_model(), sources((5, 20, 17))
    plain = count_flops(model, lambda: model.encode(ids))

    def encode() -> None:
        with torch.inference_mode(), reduced_products("int8", CPU):
            model.encode(ids)

    assert count_flops(model, encode) == plain
