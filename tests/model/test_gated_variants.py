"""What gates decided is what surgery leaves, for every attention variant. The list is the registry's."""

import pytest
import torch
from attention_examples import EXAMPLES, example_id

from prune_lab import prune_heads, score_heads
from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import Batch
from prune_lab.pruning.selection import keep_rule_mask
from prune_lab.pruning.surgery import fold_gates

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
TARGET = torch.tensor([[1, 8, 7, 2], [1, 5, 2, 0]])


@torch.no_grad()
def logits(model):
    return model(SOURCE, TARGET)


@pytest.fixture(params=EXAMPLES, ids=example_id)
def whole(request, small_model):
    """A model of each variant with options; no weight of attention is as special as it may be at the start."""
    model = small_model(attention=request.param, encoder_layers=1, decoder_layers=1)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for site in model.attention_sites().values():
            for parameter in site.attention.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.double()


@pytest.mark.parametrize("evaluation", ["round", "fraction"])
def test_a_gated_model_evaluates_as_what_its_keep_rule_leaves(whole, evaluation):
    whole.add_gates("hard_concrete", options={"evaluation": evaluation})
    for turn, gate in enumerate(whole.gates().values()):
        gate.log_a.data = 3 * (1 - 2 * torch.eye(4)[turn] - 2 * torch.eye(4)[3])
    whole.eval()
    assert [len(kept) for kept in keep_rule_mask(whole).kept.values()] == [2, 2, 2]
    pruned = prune_heads(whole, keep_rule_mask(whole))
    torch.testing.assert_close(logits(whole), logits(pruned), rtol=0, atol=1e-10)
    torch.testing.assert_close(logits(whole), logits(fold_gates(whole)), rtol=0, atol=1e-10)
    assert (logits(whole) - logits(prune_heads(whole, keep_rule_mask(whole), keep_gates=False))).abs().max() < 1e-10
    ids = {"beam_size": 2, "max_length": 6}
    assert whole.generate(SOURCE, **ids) == pruned.generate(SOURCE, **ids)


def test_gates_of_a_subset_too(whole):
    torch.manual_seed(3)
    whole.add_gates("subset", options={"keep": 5})
    whole.eval()
    pruned = prune_heads(whole, keep_rule_mask(whole), keep_gates=False)
    assert sum(map(len, pruned.heads().values())) == 5
    torch.testing.assert_close(logits(whole), logits(pruned), rtol=0, atol=1e-10)


def test_a_gate_that_is_closed_beside_a_head_that_is_masked(whole):
    whole.attention_sites()["decoder.0.self"].mask_heads([0, 2, 3])
    whole.add_gates("fixed")
    for gate in whole.gates().values():
        gate.factors[2] = 0
    whole.eval()
    pruned = prune_heads(whole, keep_rule_mask(whole))
    assert pruned.heads() == {**dict.fromkeys(whole.sites(), [0, 1, 3]), "decoder.0.self": [0, 3]}
    torch.testing.assert_close(logits(whole), logits(pruned), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_open_gates_change_no_score(small_model, name):
    """Gradients by gates that are open, and by those of a model that has none."""
    model = small_model(attention=name, encoder_layers=1, decoder_layers=1).double()
    batches = [Batch(source_ids=SOURCE, target_ids=TARGET)]
    expected = score_heads(model, batches, criterion="gradient").to_dict()
    model.add_gates("hard_concrete")
    found = score_heads(model, batches, criterion="gradient").to_dict()
    assert {site: pytest.approx(scores, rel=1e-12) for site, scores in expected.items()} == found
