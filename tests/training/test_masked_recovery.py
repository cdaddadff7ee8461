"""Training a masked model is training the pruned one: the same function after every update, and no head comes back."""

from functools import partial

import pytest
import torch
from test_module import example, run, window_of

from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.pruning.surgery import mask_heads, prune_heads
from prune_lab.training.distillation import Distillation
from prune_lab.training.teacher import Teacher

SEVERAL = {"encoder.0.self": [1], "encoder.1.self": [0, 2], "decoder.0.self": range(4), "decoder.1.cross": [0, 1, 2]}
NO_CROSS = {"decoder.0.cross": range(4), "decoder.1.cross": range(4)}
OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.5),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": partial(torch.optim.Adam, lr=0.01, weight_decay=0.1),
    "adamw": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.3),
}
WINDOWS = [window_of(collate([example(length, seed) for length in (5, 11, 20)])) for seed in range(3)]


def logits(model):
    batch = WINDOWS[0].batches[0]
    with torch.no_grad():
        return model.eval()(batch.source_ids, batch.target_ids[:, :-1])


def trained(unpruned, removed, *, num_updates, **settings):
    """The masked and the pruned model, trained in the same way."""
    mask = HeadMask.removing(removed, unpruned)
    models = mask_heads(unpruned, mask), prune_heads(unpruned, mask)
    for model in models:
        torch.manual_seed(7)
        run(model, WINDOWS[:num_updates], **settings)
    return mask, *models


@pytest.fixture(params=sorted(ATTENTION))
def unpruned(request, small_model):
    """A whole model in float64; the dropout outside of attention draws the same masks for both."""
    return small_model(attention=request.param, dropout=0.2).double()


@pytest.mark.parametrize("removed", [SEVERAL, NO_CROSS], ids=["several", "no cross head"])
@pytest.mark.parametrize(("name", "num_updates"), [("sgd", 1), ("momentum", 3), ("adam", 3)])
def test_optimizers_train_masked_and_pruned_models_alike(small_model, name, num_updates, removed):
    check_training(small_model(dropout=0.2).double(), name, num_updates, removed)


@pytest.mark.parametrize("removed", [SEVERAL, NO_CROSS], ids=["several", "no cross head"])
def test_masked_and_pruned_models_train_alike(unpruned, removed):
    check_training(unpruned, "adamw", 3, removed)


def check_training(unpruned, name, num_updates, removed):
    before = logits(prune_heads(unpruned, HeadMask.removing(removed, unpruned)))
    mask, masked, pruned = trained(
        unpruned, removed, num_updates=num_updates, optimizer=OPTIMIZERS[name], clip_norm=1.0, average_decay=0.9
    )
    assert masked.heads() == pruned.heads() == mask.to_dict()
    torch.testing.assert_close(logits(masked), logits(pruned), rtol=0, atol=1e-9)
    assert (logits(masked) - before).abs().max() > 1e-2


def test_the_weights_of_both_are_the_same(unpruned):
    mask, masked, pruned = trained(unpruned, SEVERAL, num_updates=3, optimizer=OPTIMIZERS["adamw"])
    cut = prune_heads(masked, mask).state_dict()
    assert cut.keys() == pruned.state_dict().keys()
    for name, tensor in pruned.state_dict().items():
        if not name.endswith("key.bias"):  # whose gradient is rounding alone
            torch.testing.assert_close(cut[name], tensor, rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def own_matrices(attention):
    """Output weights of the heads, and values where no head has them in common with others."""
    values, outputs = attention.head_matrices()
    is_own = values.untyped_storage().data_ptr() == attention.value.weight.untyped_storage().data_ptr()
    return [outputs, *([values] if is_own else [])]


def test_masked_heads_stay_out_whatever_their_weights_are(unpruned):
    """Training leaves their weights and the mask alone, but for weight decay; and the function does not know them."""
    mask, masked, _ = trained(unpruned, SEVERAL, num_updates=1, optimizer=OPTIMIZERS["sgd"])
    for site, attention in ((name, block.attention) for name, block in masked.attention_sites().items()):
        start = mask_heads(unpruned, mask).attention_sites()[site].attention
        for head in set(range(4)) - set(mask.to_dict()[site]):
            for ours, theirs in zip(own_matrices(attention), own_matrices(start), strict=True):
                assert torch.equal(ours[head], theirs[head])
    expected = logits(masked)
    with torch.no_grad():
        for site, block in masked.attention_sites().items():
            gone = set(range(4)) - set(mask.to_dict()[site])
            for head in gone:
                for matrix in own_matrices(block.attention):
                    matrix[head] += 10.0
    assert torch.equal(logits(masked), expected)


def test_distillation_is_the_same_for_both(unpruned):
    taught = {"teacher": Teacher(unpruned, Distillation(weight=0.7, temperature=2.0))}
    _, masked, pruned = trained(unpruned, SEVERAL, num_updates=3, optimizer=OPTIMIZERS["adam"], parts=2, **taught)
    torch.testing.assert_close(logits(masked), logits(pruned), rtol=0, atol=1e-9)


def test_a_masked_run_ends_like_the_pruned_one(task, train, tmp_path):
    """`fit` from beginning to end: validation, average and export."""
    unpruned = task.model(dropout=0.1)
    mask = HeadMask.removing(SEVERAL, unpruned)
    masked, pruned = (
        train(remove(unpruned, mask), tmp_path / remove.__name__, max_steps=10, average_decay=0.9)
        for remove in (mask_heads, prune_heads)
    )
    assert masked.model.heads() == pruned.model.heads() == mask.to_dict()
    assert masked.validation_bleu == pytest.approx(pruned.validation_bleu, abs=0.5)
    batch = task.data.train.batch(range(20))
    ids = batch.source_ids, batch.target_ids
    torch.testing.assert_close(masked.model(*ids), pruned.model(*ids), rtol=0, atol=1e-3)
