"""Ablation against the plain way: a masked copy, its loss, its BLEU."""

import pytest
import sacrebleu
import torch
from criterion_models import examples, sentence_losses, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.pruning.criteria.ablation import Ablation
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.surgery import mask_heads


def test_loss_is_that_of_a_masked_copy():
    model = small_model().double()
    model = mask_heads(model, HeadMask.removing({"decoder.1.self": [1]}, model))
    batches = [collate(examples((3, 7))), collate(examples((12,), seed=5))]
    num_tokens = sum(int((batch.target_ids[:, 1:] != 0).sum()) for batch in batches)

    def loss(of):
        with torch.no_grad():
            return sum(float(sentence_losses(of, batch, {}).sum()) for batch in batches) / num_tokens

    scores = score_heads(model, batches, "ablation")
    assert scores.settings == {"measure": "loss", "num_sentences": 3, "num_tokens": num_tokens}
    for site, heads in scores.values.items():
        for head, score in heads.items():
            without = mask_heads(model, HeadMask.removing({site: [head]}, model))
            assert score == pytest.approx(loss(without) - loss(model), rel=1e-6, abs=1e-12), f"{site}.{head}"


def test_bleu_is_that_of_a_masked_copy():
    model = small_model()
    source = [ids for ids, _ in examples((4, 6, 9))]
    # What the model says itself, with some words exchanged: any head that matters then costs BLEU.
    own = model.generate(collate([(ids, [1, 2]) for ids in source]).source_ids, beam_size=1)
    golds = [[1, *(ids[:-2] or [7]), 9, 2] for ids in own]
    batch = collate(list(zip(source, golds, strict=True)))

    def bleu(of):
        lines = [" ".join(map(str, ids)) for ids in of.generate(batch.source_ids, beam_size=1)]
        references = [" ".join(map(str, ids[1:-1])) for ids in golds]
        return sacrebleu.corpus_bleu(lines, [references], tokenize="none", force=True).score

    scores = score_heads(model, [batch], "ablation", measure="bleu")
    assert scores.settings["bleu"] == pytest.approx(bleu(model)) and scores.settings["bleu"] > 10
    assert "tok:none" in scores.settings["signature"]
    for site, head in (("encoder.0.self", 1), ("decoder.1.cross", 3)):
        without = mask_heads(model, HeadMask.removing({site: [head]}, model))
        assert scores.values[site][head] == pytest.approx(bleu(model) - bleu(without))
    assert any(score for heads in scores.values.values() for score in heads.values())


def test_bleu_is_scored_as_the_options_say():
    model = small_model()
    batch = collate(examples((4, 6, 9)))
    lines = [" ".join(map(str, ids)) for ids in model.generate(batch.source_ids, beam_size=1)]
    references = [" ".join(str(i) for i in ids if i > 2) for ids in batch.target_ids.tolist()]
    criterion = Ablation(measure="bleu", tokenize="char", lowercase=True)
    settings = score_heads(model, [batch], criterion).settings
    expected = sacrebleu.corpus_bleu(lines, [references], tokenize="char", lowercase=True).score
    assert settings["bleu"] == pytest.approx(expected) and expected > 0
    assert (settings["tokenize"], settings["lowercase"]) == ("char", True)
    assert "case:lc" in settings["signature"] and "tok:char" in settings["signature"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ("intl", True)),
        ({"tokenize": "char"}, ("char", True)),
        ({"lowercase": False}, ("intl", False)),
        ({"tokenize": "none", "lowercase": False}, ("none", False)),
    ],
)
def test_the_scoring_of_the_data_fills_in_what_was_not_set(own, expected):
    criterion = Ablation(measure="bleu", beam_size=3, **own)
    filled = criterion.with_scoring(tokenize="intl", lowercase=True)
    assert (filled.tokenize, filled.lowercase) == expected
    assert (filled.measure, filled.beam_size) == ("bleu", 3)
    assert (criterion.tokenize, criterion.lowercase) == (own.get("tokenize"), own.get("lowercase"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "chrf"}, "criterion.measure: 'chrf'; allowed are loss, bleu"),
        ({"beam_size": 0}, "criterion.beam_size: 0; allowed are whole numbers from 1"),
        ({"tokenize": "words"}, "criterion.tokenize='words' is no BLEU tokenizer; allowed are 13a, char,"),
        ({"lowercase": "yes"}, "criterion.lowercase: 'yes'; allowed are true and false"),
        ({}, "batches: no sentences; ablation is measured on at least one"),
        ({"measure": "bleu"}, "batches: no sentences; ablation is measured on at least one"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError) as caught:
        score_heads(small_model(), [], "ablation", **options)
    assert str(caught.value).startswith(message)
