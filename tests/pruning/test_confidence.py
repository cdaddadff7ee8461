"""Confidence of heads, against loops over sentences, heads and tokens."""

import pytest
import torch
from criterion_models import examples, gated_model, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import kind_of_site
from prune_lab.model.observation import Observation
from prune_lab.pruning.criteria.registry import score_heads


@pytest.mark.parametrize("site", ["encoder.1.self", "decoder.0.self", "decoder.1.cross"])
def test_equals_loops_over_single_sentences(site):
    model, pairs = small_model(), examples((2, 5, 9))
    kind, total, num = kind_of_site(site), torch.zeros(4), 0
    for source, target in pairs:
        seen = Observation(need_weights=True)
        with torch.no_grad():
            model.hidden(torch.tensor([source]), torch.tensor([target[:-1]]), seen=seen)
        queries = range(len(source) - 1) if kind == "encoder.self" else range(len(target) - 1)
        keys = range(len(target) - 1) if kind == "decoder.self" else range(len(source) - 1)
        for query in queries:
            num += 1
            for head in range(4):
                total[head] += max(float(seen.weights[site][0, head, query, key]) for key in keys)
    scores = score_heads(model, [collate(pairs)], "confidence")
    assert list(scores.values[site].values()) == pytest.approx((total / num).tolist(), rel=1e-5)
    assert scores.settings == {
        "num_sentences": 3,
        "num_encoder_tokens": sum(len(source) - 1 for source, _ in pairs),
        "num_decoder_tokens": sum(len(target) - 1 for _, target in pairs),
    }


def test_a_head_that_looks_at_one_token_is_as_sure_as_can_be():
    model = small_model(positions="rotary")
    attention = model.attention_sites()["decoder.0.self"].attention
    with torch.no_grad():
        attention.query.weight[:8] = 0
        attention.query.bias[:8] = 0
    even = score_heads(model, [collate([([5, 6, 2], [1, 7, 8, 9, 2])])], "confidence").values["decoder.0.self"][0]
    assert even == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_closed_gates_score_nothing():
    scores = score_heads(gated_model("round"), [collate(examples())], "confidence").values["encoder.0.self"]
    assert scores[0] == scores[1] == 0 < min(scores[2], scores[3])


def test_text_of_end_marks_alone_is_refused():
    with pytest.raises(ValueError, match="batches: no tokens beside end marks"):
        score_heads(small_model(), [collate([([2], [1, 2])])], "confidence")
