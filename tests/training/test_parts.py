"""A batch whose rows are shared between threads: the same sums and gradients as the whole, in a fixed order."""

import threading

import pytest
import torch
from test_module import assert_same_gradients, example, run, window_of

from prune_lab.data.batching import collate
from prune_lab.gates.held import held_gates
from prune_lab.gates.penalty import L0Penalty
from prune_lab.model.dropout import dropout_generator, scaled_mask
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parts import BatchParts, split_batch

LENGTHS = [11, 30, 4, 17, 23, 9, 30]


def batch_of(lengths):
    return collate([example(length, seed) for seed, length in enumerate(lengths)])


def rows(batch):
    pairs = zip(batch.source_ids.tolist(), batch.target_ids.tolist(), strict=True)
    return [tuple(tuple(i for i in side if i != batch.pad_id) for side in pair) for pair in pairs]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7, 12])
def test_parts_hold_every_row_once_and_no_column_of_padding(num_parts):
    batch = batch_of(LENGTHS)
    parts = split_batch(batch, num_parts)
    assert len(parts) == min(num_parts, len(LENGTHS))
    assert sorted(row for part in parts for row in rows(part)) == sorted(rows(batch))
    for part in parts if num_parts > 1 else []:
        for ids in (part.source_ids, part.target_ids):
            assert (ids != part.pad_id).any(0).all()


@pytest.mark.parametrize("settings", [{}, {"norm": "post"}, {"positions": "rotary", "activation": "swiglu"}])
@pytest.mark.parametrize("num_parts", [2, 3])
def test_parts_give_the_gradients_of_the_whole(small_model, settings, num_parts):
    window = window_of(batch_of(LENGTHS), batch_of(LENGTHS[:3]))
    (whole,) = run(small_model(**settings).double(), [window]).seen
    (shared,) = run(small_model(**settings).double(), [window], parts=num_parts).seen
    assert_same_gradients(whole, shared, 1e-10)


def test_gates_are_drawn_once_for_all_parts(small_model):
    def gated():
        model = small_model()
        model.add_gates("hard_concrete", options={"init": 0.3})
        return model.double()

    window = window_of(batch_of(LENGTHS))
    penalty = L0Penalty(weight=0.1)
    (whole,) = run(gated(), [window], penalty=penalty).seen
    (shared,) = run(gated(), [window], penalty=penalty, parts=2).seen
    assert any(name.endswith("log_a") for name in shared)
    assert_same_gradients(whole, shared, 1e-6)  # Gates are drawn in float32, in whatever type the model is.


def test_a_held_draw_is_used_by_every_pass_and_let_go(small_model):
    model = small_model()
    model.add_gates("hard_concrete", options={"init": 0.0})
    model.train()
    site = next(iter(model.attention_sites().values()))
    with held_gates(model) as (drawn, leaves):
        assert torch.equal(site.gates(), site.gates())
        assert len(drawn) == len(leaves) == len(model.gates())
        assert all(leaf.is_leaf and draw.requires_grad for draw, leaf in zip(drawn, leaves, strict=True))
    assert not torch.equal(site.gates(), site.gates())


def test_frozen_weights_and_unused_ones_have_no_gradient(small_model):
    model = small_model()
    model.encoder.requires_grad_(False)
    (seen,) = run(model, [window_of(batch_of(LENGTHS))], parts=2).seen
    assert seen and not any(name.startswith("encoder.") for name in seen)


def test_dropout_is_the_same_again_whichever_thread_is_faster(small_model):
    def gradients():
        torch.manual_seed(3)
        return run(small_model(dropout=0.3), [window_of(batch_of(LENGTHS))] * 2, parts=2).seen

    for one, two in zip(gradients(), gradients(), strict=True):
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_parts_and_updates_have_masks_of_their_own(small_model):
    model = small_model(dropout=0.3).train()
    seen = []

    def loss(part):
        seen.append((threading.get_ident(), scaled_mask(torch.empty(1000), 0.3)))
        total = model(part.source_ids, part.target_ids[:, :-1]).sum()
        return total, total.detach()

    shared = BatchParts(model, loss, 2)
    for _ in range(2):
        shared(batch_of(LENGTHS))[0].backward()
    masks = [mask for _, mask in seen]
    assert len(masks) == 4
    assert not any(torch.equal(masks[i], masks[j]) for i in range(4) for j in range(i))
    assert threading.get_ident() not in {thread for thread, _ in seen}


def test_the_generator_of_one_thread_leaves_the_global_one_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with dropout_generator(torch.Generator().manual_seed(1)):
        first = scaled_mask(torch.empty(100), 0.5)
        assert torch.equal(torch.get_rng_state(), before)
    with dropout_generator(torch.Generator().manual_seed(1)):
        assert torch.equal(scaled_mask(torch.empty(100), 0.5), first)
    scaled_mask(torch.empty(100), 0.5)
    assert not torch.equal(torch.get_rng_state(), before)


def test_threads_of_this_process_are_as_many_as_before(small_model):
    model, num_threads = small_model(), torch.get_num_threads()

    def loss(part):
        total = model(part.source_ids, part.target_ids[:, :-1]).sum()
        return total, total.detach()

    BatchParts(model, loss, 2)(batch_of(LENGTHS))
    assert torch.get_num_threads() == num_threads


def test_what_a_part_raises_is_raised(small_model):
    def loss(part):
        raise ValueError("a sequence that is too long")

    with pytest.raises(ValueError, match="too long"):
        BatchParts(small_model(), loss, 2)(batch_of(LENGTHS))


def test_gradients_may_be_asked_for_again(small_model):
    """As those of any other loss: a second backward pass of the same graph finds the same."""
    model, batch = small_model(dropout=0.0), batch_of(LENGTHS)
    total = BatchParts(model, BatchLoss(model, label_smoothing=0.1), 2)(batch)[0]
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    once = torch.autograd.grad(total, weights, retain_graph=True)
    half = torch.autograd.grad(total / 2, weights, retain_graph=True)
    for first, second in zip(once, half, strict=True):
        torch.testing.assert_close(second, first / 2)


def test_a_model_that_trains_nothing_has_a_loss_all_the_same(small_model):
    model, batch = small_model(dropout=0.0), batch_of(LENGTHS)
    model.requires_grad_(False)
    loss = BatchLoss(model, label_smoothing=0.1)
    torch.testing.assert_close(BatchParts(model, loss, 2)(batch)[0], loss(batch)[0])
