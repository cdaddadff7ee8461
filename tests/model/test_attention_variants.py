"""Models of every attention variant: pruned, decoded, stored, scored and trained. The list is the registry's.

Shapes: B batch, S source length, T target length, D model width, H heads.
"""

import itertools
import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from attention_examples import EXAMPLES, example_id

from prune_lab import HeadMask, ModelConfig, Transformer, mask_heads, prune_heads, score_heads
from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import Batch
from prune_lab.gates.penalty import L0Penalty
from prune_lab.training.loss import BatchLoss

ROOT = Path(__file__).resolve().parents[2]
BY_KIND = {
    "encoder.self": "multi_head",
    "decoder.self": {"name": "grouped_query", "options": {"n_kv": 2}},
    "decoder.cross": {"name": "grouped_query", "options": {"n_kv": 1}},
}
LOAD_ELSEWHERE = """
import sys, torch
from pathlib import Path
from prune_lab.model.transformer import Transformer
for directory in sorted(Path(sys.argv[1]).iterdir()):
    model = Transformer.from_pretrained(directory / "export")
    source_ids, target_ids, logits, hypotheses, heads = torch.load(directory / "expected.pt")
    with torch.no_grad():
        same = torch.equal(model(source_ids, target_ids), logits), model.heads() == heads
    print(directory.name, *same, model.generate(source_ids, beam_size=2, max_length=4) == hypotheses)
"""


@pytest.fixture(params=[*EXAMPLES, BY_KIND], ids=example_id)
def example(request):
    """A variant with options: the defaults, and each of its examples; and a mapping by kind of site."""
    return request.param


@pytest.fixture(scope="module")
def variant_model(small_model):
    """Builds a model of 1+2 layers and 20 heads: no weight of attention is as special as it may be at the start."""

    @cache
    def of_options(attention):
        model = small_model(attention=json.loads(attention), encoder_layers=1, decoder_layers=2, activation="gelu")
        generator = torch.Generator().manual_seed(4)
        with torch.no_grad():
            model.output_weight[model.config.eos_id] *= 0.2  # long hypotheses
            for site in model.attention_sites().values():
                for parameter in site.attention.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        return model

    return lambda attention, dtype=torch.float64: of_options(json.dumps(attention)).copy().to(dtype)


@pytest.fixture
def model(variant_model, example):
    return variant_model(example)


@pytest.fixture
def batch(sources, targets):
    return sources((3, 6, 5)), targets((4, 2, 6))


def text_of(batch):
    source_ids, target_ids = batch
    return Batch(source_ids=source_ids, target_ids=target_ids)


def random_mask(model, seed):
    """One site loses all heads, one none, the others some of them."""
    draw = random.Random(seed)
    sites = draw.sample(model.sites(), len(model.sites()))
    removed = {site: draw.sample(range(4), draw.randint(1, 3)) for site in sites[2:]}
    return HeadMask.removing({**removed, sites[0]: range(4)}, model)


# Masked, removed, decoded


@pytest.mark.parametrize("seed", [0, 1])
def test_masked_heads_equal_removed_heads_and_cached_steps_whole_prefixes(model, batch, seed):
    mask = random_mask(model, seed)
    masked, pruned = mask_heads(model, mask), prune_heads(model, mask)
    counts = {site: len(heads) for site, heads in pruned.heads().items()}
    assert {0, 4} < set(counts.values()) and masked.heads() == pruned.heads()
    assert all(len(site.numbers) == counts[name] for name, site in pruned.attention_sites().items())
    with torch.no_grad():
        whole, expected, found = (each(*batch) for each in (model, masked, pruned))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert (found - whole).abs().max() > 1e-3
    if seed:
        return
    for beam_size in (1, 4):
        expected = masked.generate(batch[0], beam_size=beam_size, max_length=6)
        assert pruned.generate(batch[0], beam_size=beam_size, max_length=6) == expected
        assert sum(map(len, expected)) > 12
    # Steps of one hypothesis a sentence are compared with whole sequences for each block by itself.
    assert pruned.generate(batch[0], beam_size=4, max_length=6, use_cache=False) == expected


def test_a_sentence_does_not_depend_on_those_beside_it(model, batch):
    """Its logits are those that it has alone, without padding, after heads are gone."""
    pruned = prune_heads(model, random_mask(model, 2))
    source_ids, target_ids = batch
    together = pruned(source_ids, target_ids)
    for row in range(len(source_ids)):
        source, target = (ids[row][ids[row] != 0][None] for ids in batch)
        alone = pruned(source, target)[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=0, atol=1e-10)


# Stored


def test_exports_say_the_same_in_a_new_process(variant_model, batch, tmp_path):
    """All variants in one process, each pruned, and masked beside."""
    for number, attention in enumerate([*EXAMPLES, BY_KIND]):
        model = variant_model(attention, torch.float32)
        model = prune_heads(model, random_mask(model, number))
        more = {site: heads[:1] for site, heads in model.heads().items() if len(heads) > 1}
        model = mask_heads(model, HeadMask.removing(more, model))
        directory = tmp_path / f"{number:02}"
        model.save_pretrained(directory / "export")
        with torch.no_grad():
            logits = model(*batch)
        hypotheses = model.generate(batch[0], beam_size=2, max_length=4)
        torch.save((*batch, logits, hypotheses, model.heads()), directory / "expected.pt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", LOAD_ELSEWHERE, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    expected = [f"{number:02} True True True" for number in range(len(EXAMPLES) + 1)]
    assert done.stdout.splitlines() == expected


def test_a_mapping_by_kind_of_site_builds_prunes_and_is_read_again(variant_model, batch, tmp_path):
    model = variant_model(BY_KIND)
    names = {site: type(block.attention) for site, block in model.attention_sites().items()}
    assert names == {
        site: ATTENTION["multi_head" if site.startswith("encoder") else "grouped_query"] for site in model.sites()
    }
    pruned = prune_heads(model, HeadMask.removing({"decoder.0.self": [2, 3], "decoder.1.cross": [0, 1, 3]}, model))
    num_keys = {site: len(each.attention.key.weight) // 8 for site, each in pruned.attention_sites().items()}
    assert num_keys == {
        "encoder.0.self": 4,
        "decoder.0.self": 1,
        "decoder.0.cross": 1,
        "decoder.1.self": 2,
        "decoder.1.cross": 1,
    }
    again = ModelConfig.from_dict(pruned.config.to_dict())
    assert again == pruned.config and again.attention["decoder.self"] == BY_KIND["decoder.self"]
    pruned.float().save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path)
    assert torch.equal(loaded(*batch), pruned(*batch)) and loaded.heads() == pruned.heads()


# Scored


def sentence_losses(model, batch, head_gates):
    """The summed negative log-likelihood of each sentence [B], the plain way."""
    logits = model(batch.source_ids, batch.target_ids[:, :-1], head_gates)
    targets = batch.target_ids[:, 1:]
    nll = -torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    return (nll * (targets != 0)).sum(1)


def test_gradient_importance_equals_finite_differences(model, batch):
    """Of a pruned model. All heads and both directions are sentences of one pass, each with factors of its own."""
    model = prune_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.1.self": [0, 2]}, model))
    text = text_of(batch)
    scores = score_heads(model, [text], "gradient")
    heads = [(site, number) for site, numbers in model.heads().items() for number in numbers]
    step, num = 1e-5, len(text.source_ids)
    gates = {
        site: torch.ones(2 * len(heads) * num, len(numbers), dtype=torch.float64)
        for site, numbers in model.heads().items()
    }
    for row, ((site, number), sign) in enumerate(itertools.product(heads, (1, -1))):
        gates[site][row * num : (row + 1) * num, model.heads()[site].index(number)] += sign * step
    repeated = text_of([ids.repeat(2 * len(heads), 1) for ids in batch])
    with torch.no_grad():
        losses = sentence_losses(model, repeated, gates).view(len(heads), 2, num)
    expected = ((losses[:, 0] - losses[:, 1]) / (2 * step)).abs().mean(1)
    found = torch.tensor([scores.values[site][number] for site, number in heads], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_ablation_is_the_loss_of_a_model_without_the_head(model, batch):
    model = prune_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.1.self": [0, 2]}, model))
    text = text_of(batch)
    with torch.no_grad():
        whole = sentence_losses(model, text, {}).sum()
        for site, of_heads in score_heads(model, [text], "ablation").values.items():
            for head in of_heads if site != "decoder.0.cross" else [2]:
                without = sentence_losses(prune_heads(model, HeadMask.removing({site: [head]}, model)), text, {}).sum()
                assert of_heads[head] == pytest.approx(float(without - whole) / text.num_target_tokens, abs=1e-9)


def helpful_model(attention, idle):
    """A model whose heads all help, whatever they attend to, but for those whose output weights are zero.

    Each head gives some of one direction, the more of it there is already, and with it rises the logit of the token
    that all targets are. All else is random, and small beside it.
    """
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 37, "target_vocab_size": 41, "d_model": 32, "d_feed_forward": 48, "dropout": 0.0}
    stacks = {"encoder_layers": 1, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4, "tie_output": False}
    model = Transformer(ModelConfig(**sizes, **stacks, attention=attention)).double().eval()
    direction = torch.randn(32, dtype=torch.float64)
    direction = torch.nn.functional.normalize(direction - direction.mean(), dim=0)  # layer norms leave it as it is
    with torch.no_grad():
        for table in (model.source_table, model.target_table):
            table.weight -= torch.outer(table.weight @ direction, direction)
        for name, site in model.attention_sites().items():
            block = site.attention
            block.value.weight.mul_(0.1).add_(0.05 * direction)
            block.value.bias.fill_(1.0)
            block.output.weight.mul_(0.1).add_(0.03 * direction[:, None])
            block.fold_gates(torch.tensor([float(head not in idle[name]) for head in site.numbers]).double())
        for name, parameter in model.named_parameters():
            if "feed_forward" in name:
                parameter *= 0.1
        model.output_weight[5] = direction
    return model


def test_heads_that_add_nothing_are_last(example, batch):
    """By criteria that look at loss, weights and attention: 5 of the 20 heads have output weights of zero."""
    numbers = {"encoder.0.self": [3], "decoder.0.self": [2], "decoder.0.cross": [3], "decoder.1.cross": [2, 3]}
    idle = {site: numbers.get(site, []) for site in (*numbers, "decoder.1.self")}
    model = helpful_model(example, idle)
    target_ids = torch.where(batch[1] > 1, 5, batch[1])  # end marks as well
    batch = batch[0], target_ids
    same = torch.allclose(prune_heads(model, HeadMask.removing(idle, model))(*batch), model(*batch), rtol=0, atol=1e-10)
    # Where tokens choose among heads, one that adds nothing takes a share of theirs, so that its absence is felt.
    criteria = ("gradient", "magnitude", "confidence", *(["ablation"] if same else []))
    for criterion in criteria:
        scores = score_heads(model, [text_of(batch)], criterion)
        assert {site: sorted(heads) for site, heads in scores.values.items()} == model.heads()
        by_kind = {True: [], False: []}
        for site, of_heads in scores.values.items():
            for head, score in of_heads.items():
                by_kind[head in idle[site]].append(score)
        # No token chooses some routed heads: they add nothing here either.
        assert max(by_kind[True]) <= min(by_kind[False]), criterion
        assert sum(score > max(by_kind[True]) for score in by_kind[False]) > 15 / 2, criterion


# Trained


def training_loss(model, batch):
    loss, _ = BatchLoss(model, label_smoothing=0.1)(text_of(batch))
    return loss


def test_one_update_changes_all_that_the_loss_depends_on(model, batch):
    """What gets no gradient is what the loss does not depend on: random numbers instead of it change nothing."""
    pruned = prune_heads(model, random_mask(model, 3))
    for each in (model, pruned):
        each.train()
        loss = training_loss(each, batch)
        loss.backward()
        trained = {name: parameter for name, parameter in each.named_parameters() if parameter.requires_grad}
        largest = {name: float(parameter.grad.abs().max()) for name, parameter in trained.items()}
        assert all(parameter.grad is not None for parameter in trained.values())
        still = [name for name, size in largest.items() if size < 1e-12]
        assert len(still) < len(trained) / 4
        changed = each.copy()
        with torch.no_grad():
            for name in still:
                changed.get_parameter(name).normal_(std=0.3, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(training_loss(changed, batch), loss, rtol=0, atol=1e-9)
        before = {name: parameter.detach().clone() for name, parameter in trained.items()}
        torch.optim.Adam(trained.values(), lr=1e-7).step()
        assert [n for n, parameter in trained.items() if torch.equal(parameter, before[n])] == [
            name for name in still if (trained[name].grad == 0).all()
        ]
        later = training_loss(each, batch)
        assert later.isfinite() and float(later.detach()) < float(loss.detach())


def test_the_penalty_reaches_the_gates(model, batch):
    """Of the live heads alone, at all sites; so does the loss, through gates that are drawn."""
    model = prune_heads(model, HeadMask.removing({"encoder.0.self": [0], "decoder.0.cross": range(4)}, model))
    model.add_gates("hard_concrete", options={"init": 0.5})
    model = mask_heads(model, HeadMask.removing({"decoder.1.cross": [1]}, model))
    L0Penalty(weight=0.1)(model, 0).backward()
    for site, gate in model.gates().items():
        live = [number in model.heads()[site] for number in model.attention_sites()[site].numbers]
        if live:
            assert (gate.log_a.grad > 0).tolist() == live, site
    model.zero_grad()
    model.train()
    torch.manual_seed(0)
    sum(training_loss(model, batch) for _ in range(8)).backward()
    for site, gate in model.gates().items():
        if len(gate.log_a):
            assert (gate.log_a.grad != 0).sum() >= len(model.heads()[site]) - 1, site


def test_models_in_bfloat16_run(model, batch):
    pruned = prune_heads(model, random_mask(model, 4)).bfloat16()
    with torch.no_grad():
        logits = pruned(*batch)
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()
    assert len(pruned.generate(batch[0], beam_size=4, max_length=4)) == 3
    loss = training_loss(pruned.train(), batch)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in pruned.parameters()) and loss.isfinite()


def test_a_step_of_training_and_a_search_under_autocast(example, small_model, batch):
    """Losses, gradients and hypotheses in bfloat16 products are near those of float32."""
    config = small_model(attention=example, encoder_layers=1, decoder_layers=2).config
    torch.manual_seed(0)
    model, found = Transformer(config).train(), {}  # as it starts: weights at which nothing is amplified
    for is_on in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on):
            loss, _ = BatchLoss(model, label_smoothing=0.1)(text_of(batch))
        loss.backward()
        gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        found[is_on] = loss.detach().float(), torch.cat(gradients).float()
    torch.testing.assert_close(found[True][0], found[False][0], rtol=0.02, atol=0)
    away, whole = (found[True][1] - found[False][1]).norm(), found[False][1].norm()
    assert 0 < away < 0.2 * whole
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hypotheses = model.generate(batch[0], beam_size=3, max_length=4)
    assert len(hypotheses) == len(batch[0]) and any(hypotheses)
