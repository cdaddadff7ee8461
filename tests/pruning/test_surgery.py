"""Masking and removing heads: masked equals pruned, what is left is right, and the given model stays as it was.

Shapes: D model width 32, K head width 8.
"""

import copy
import itertools
import math
import warnings

import pytest
import torch
from torch.nn import functional

from prune_lab.attention.masks import AttentionMask
from prune_lab.heads import HeadMask
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import fold_fractions, fold_gates, mask_heads, prune_heads

SITES = ["encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"]
HEADS = list(itertools.product(SITES, range(4)))
SEVERAL = {"encoder.0.self": [1], "encoder.1.self": [0, 2], "decoder.0.self": [3], "decoder.1.cross": [0, 1, 2]}
MASKS = {
    "none": {},
    **{f"one of {site}": {site: [number % 4]} for number, site in enumerate(SITES)},
    **{f"all of {site}": {site: range(4)} for site in SITES},
    "several": SEVERAL,
    "all of encoder.self": {site: range(4) for site in SITES[:2]},
    "all of decoder.cross": {site: range(4) for site in SITES if site.endswith("cross")},
    "all but one": {site: range(4 if site != "decoder.0.cross" else 3) for site in SITES},
    "all": {site: range(4) for site in SITES},
}
TOLERANCES = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


@pytest.fixture
def batch(sources, targets):
    return sources((3, 6, 5)), targets((4, 2, 6))


def loss_of(model, source_ids, target_ids):
    logits = model(source_ids, target_ids[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), target_ids[:, 1:].flatten(), ignore_index=0)


def removing(model, removed):
    return HeadMask.removing(removed, model)


def cut_gradients(masked, mask):
    """The gradients of a masked model, cut like its weights: a model that holds gradients as weights is pruned."""
    carrier = masked.copy()
    for gradient, parameter in zip(masked.parameters(), carrier.parameters(), strict=True):
        parameter.data = torch.zeros_like(gradient) if gradient.grad is None else gradient.grad.clone()
    return {name: parameter.detach() for name, parameter in prune_heads(carrier, mask).named_parameters()}


def assert_same_function(masked, pruned, mask, batch, tolerance):
    """Outputs, losses and gradients of surviving parameters."""
    torch.testing.assert_close(masked(*batch), pruned(*batch), rtol=0, atol=tolerance)
    for model in (masked, pruned):
        model.zero_grad()
        loss_of(model, *batch).backward()
    expected = cut_gradients(masked, mask)
    parameters = dict(pruned.named_parameters())
    assert set(parameters) == set(expected)
    for name, parameter in parameters.items():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            gradient, expected[name], rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


# Masked equals pruned


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES, ids=["float64", "float32"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("removed", MASKS.values(), ids=MASKS)
def test_masked_equals_pruned(small_model, batch, removed, training, dtype, tolerance):
    model = small_model().to(dtype).train(training)
    mask = removing(model, removed)
    masked, pruned = mask_heads(model, mask), prune_heads(model, mask)
    assert masked.training == pruned.training == training
    assert masked.heads() == pruned.heads() == mask.to_dict()
    assert_same_function(masked, pruned, mask, batch, tolerance)


@pytest.mark.parametrize("removed", [SEVERAL, MASKS["all of decoder.0.cross"]], ids=["several", "site"])
def test_masked_equals_pruned_for_every_kind_of_model(small_model, variant, batch, removed):
    model = small_model(**variant).double().train()
    original = model.original_heads()
    fitting = {
        site: [head for head in heads if head < original[site]] for site, heads in removed.items() if site in original
    }
    mask = removing(model, fitting)
    assert_same_function(mask_heads(model, mask), prune_heads(model, mask), mask, batch, 1e-10)


@pytest.mark.parametrize("evaluation", ["round", "fraction"])
@pytest.mark.parametrize("removed", [{}, SEVERAL, MASKS["all"]], ids=["none", "several", "all"])
def test_masked_equals_pruned_with_gates(small_model, batch, removed, evaluation):
    model = small_model()
    model.add_gates("hard_concrete", options={"evaluation": evaluation})
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.normal_()
    model.double().eval()
    mask = removing(model, removed)
    masked, pruned = mask_heads(model, mask), prune_heads(model, mask)
    assert masked.open_heads() == pruned.open_heads()
    assert_same_function(masked, pruned, mask, batch, 1e-10)


def test_b2_masked_and_pruned_models_give_identical_hypotheses(small_model, sources):
    model = small_model()
    mask = removing(model, SEVERAL)
    source_ids = sources([1 + number % 9 for number in range(30)])
    for beam_size in (1, 4):
        masked, pruned = (
            remove(model, mask).generate(source_ids, beam_size=beam_size, max_length=12)
            for remove in (mask_heads, prune_heads)
        )
        assert masked == pruned
    assert masked != model.generate(source_ids, beam_size=4, max_length=12)


@pytest.mark.parametrize(("site", "head"), HEADS)
def test_masked_heads_contribute_exactly_nothing(small_model, batch, site, head):
    model = small_model()
    masked = mask_heads(model, removing(model, {site: [head]})).train()
    expected = masked(*batch)
    assert not torch.allclose(expected, model(*batch), atol=1e-4)
    attention = masked.attention_sites()[site].attention
    rows = slice(head * 8, (head + 1) * 8)
    with torch.no_grad():
        attention.value.weight[rows] = 1e3
        attention.query.weight[rows] = -7
        attention.output.weight[:, rows] = 1e3
    assert torch.equal(masked(*batch), expected)


# What is removed


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("removed", MASKS.values(), ids=MASKS)
def test_a2_each_head_takes_its_parameters_along(small_model, tmp_path, removed, bias):
    model = small_model(projection_bias=bias)
    pruned = prune_heads(model, removing(model, removed))
    num_removed = sum(len(heads) for heads in removed.values())
    counts = [sum(parameter.numel() for parameter in of.parameters()) for of in (model, pruned)]
    assert counts[0] - counts[1] == num_removed * (4 * 32 * 8 + (3 * 8 if bias else 0))
    if num_removed:
        for name, of in (("whole", model), ("pruned", pruned)):
            of.save_pretrained(tmp_path / name)
        sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "pruned")]
        assert sizes[0] - sizes[1] > num_removed * 4 * 32 * 8 * 3


def test_a2_gates_are_counted_aside(small_model):
    model = small_model()
    model.add_gates("hard_concrete")
    for keep_gates, per_head in ((True, 4 * 32 * 8 + 3 * 8 + 1), (False, 4 * 32 * 8 + 3 * 8)):
        pruned = prune_heads(model, removing(model, SEVERAL), keep_gates=keep_gates)
        counts = [sum(parameter.numel() for parameter in of.parameters()) for of in (model, pruned)]
        assert counts[0] - counts[1] == 7 * per_head + (0 if keep_gates else 24)


@pytest.mark.parametrize(("site", "head"), HEADS)
def test_a4_every_head_can_go_alone(small_model, batch, site, head):
    model = small_model()
    pruned = prune_heads(model, removing(model, {site: [head]}))
    assert pruned(*batch).isfinite().all()
    assert len(pruned.generate(batch[0], beam_size=3, max_length=5)) == 3
    assert pruned.heads()[site] == [number for number in range(4) if number != head]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a5_survivors_keep_width_scale_type_and_their_own_tensors(small_model, sources, targets, dtype):
    model = small_model()
    model.add_gates("hard_concrete")
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    model.to(dtype)
    model.encoder.requires_grad_(False)
    pruned = prune_heads(model, removing(model, SEVERAL))
    rows = [*range(8, 16), *range(24, 32)]
    whole, cut = (of.attention_sites()["encoder.1.self"] for of in (model, pruned))
    assert cut.numbers == [1, 3] and cut.attention.num_heads == 2 and cut.attention.head_dim == 8
    for name in ("query", "key", "value"):
        assert torch.equal(getattr(cut.attention, name).weight, getattr(whole.attention, name).weight[rows])
        assert torch.equal(getattr(cut.attention, name).bias, getattr(whole.attention, name).bias[rows])
    assert torch.equal(cut.attention.output.weight, whole.attention.output.weight[:, rows])
    assert torch.equal(cut.attention.output.bias, whole.attention.output.bias)
    assert torch.equal(cut.gate.log_a, whole.gate.log_a[[1, 3]]) and cut.head_mask.tolist() == [True, True]
    assert pruned.config.encoder_head_dim == pruned.config.decoder_head_dim == 8
    trainable = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    for name, parameter in pruned.named_parameters():
        assert parameter.dtype == dtype and parameter.device == model.output_weight.device
        assert parameter.requires_grad == trainable[name]
    # The scale is 1/sqrt(8): the weights of the survivors are those that they had.
    inputs = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    query, key = (functional.linear(inputs, p.weight, p.bias) for p in (cut.attention.query, cut.attention.key))
    query, key = (tensor.unflatten(-1, (2, 8)).transpose(1, 2) for tensor in (query, key))
    weights = cut.attention(inputs, inputs, AttentionMask(), need_weights=True).weights
    expected = (query @ key.mT / math.sqrt(8)).softmax(-1)
    torch.testing.assert_close(weights, expected, rtol=0, atol=0.02 if dtype == torch.bfloat16 else 1e-5)
    for lengths in ([4], [4, 9, 1], [2], [3, 3, 3]):
        ids = sources(lengths), targets(lengths)
        assert pruned(*ids).shape == (len(lengths), max(lengths) + 2, 41)
        assert len(pruned.generate(ids[0], beam_size=2, max_length=4)) == len(lengths)


@pytest.mark.parametrize("sites", [[site] for site in SITES] + [SITES], ids=lambda sites: "+".join(sites))
def test_a9_sites_may_lose_all_their_heads(small_model, batch, tmp_path, sites):
    model = small_model()
    pruned = prune_heads(model, removing(model, {site: range(4) for site in sites})).train()
    loss_of(pruned, *batch).backward()
    pruned.eval()
    pruned.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path)
    assert torch.equal(loaded(*batch), pruned(*batch))
    for beam_size in (1, 3):
        hypotheses = loaded.generate(batch[0], beam_size=beam_size, max_length=6)
        assert hypotheses == loaded.generate(batch[0], beam_size=beam_size, max_length=6, use_cache=False)
    assert {site: len(heads) for site, heads in loaded.heads().items()} == {
        site: 0 if site in sites else 4 for site in SITES
    }
    card = (tmp_path / "README.md").read_text()
    assert all(f"| {site} | none |" in card for site in sites)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_empty_sites_run_no_norm_before_them(small_model, batch, norm):
    """Nothing reads what such a norm gives; one after a site (post) is a part of the model and stays."""
    model = small_model(norm=norm)
    mask = removing(model, MASKS["all"])
    masked, pruned = mask_heads(model, mask), prune_heads(model, mask)
    calls = {"masked": [], "pruned": []}
    for name, each in (("masked", masked), ("pruned", pruned)):
        for place, module in each.named_modules():
            if place.endswith(("self_residual.norm", "cross_residual.norm")):
                module.register_forward_hook(lambda *_, name=name, place=place: calls[name].append(place))
    torch.testing.assert_close(pruned(*batch), masked(*batch), rtol=1e-5, atol=1e-5)
    assert len(set(calls["masked"])) == len(calls["masked"]) == len(SITES)
    assert calls["pruned"] == ([] if norm == "pre" else calls["masked"])
    for beam_size in (1, 3):
        calls["pruned"].clear()
        found = pruned.generate(batch[0], beam_size=beam_size, max_length=6)
        assert bool(calls["pruned"]) == (norm == "post")
        assert found == masked.generate(batch[0], beam_size=beam_size, max_length=6)


def test_the_norm_before_a_site_with_heads_stays(small_model, batch):
    model = small_model(norm="pre")
    emptied = {site: range(4) for site in SITES if site != "decoder.1.cross"}
    pruned, seen = prune_heads(model, removing(model, emptied)), []
    for place, module in pruned.named_modules():
        if place.endswith(("self_residual.norm", "cross_residual.norm")):
            module.register_forward_hook(lambda *_, place=place: seen.append(place))
    pruned(*batch)
    assert seen == ["decoder.layers.1.cross_residual.norm"]


def test_a10_heads_go_by_original_number_in_any_order(small_model, batch):
    model, site = small_model(), "decoder.0.cross"

    def one_after_the_other(*numbers, remove=prune_heads):
        cut = model
        for number in numbers:
            cut = remove(cut, removing(cut, {site: [number]}))
        return cut

    at_once = prune_heads(model, removing(model, {site: [0, 2]}))
    for other in (
        one_after_the_other(0, 2),
        one_after_the_other(2, 0),
        prune_heads(one_after_the_other(0, 2, remove=mask_heads), removing(model, {})),
    ):
        assert other.heads()[site] == [1, 3] and other.config == at_once.config
        assert weights_hash(other) == weights_hash(at_once)
        assert torch.equal(other(*batch), at_once(*batch))
    with pytest.warns(UserWarning, match=r"decoder.0.cross: heads \[0\] are gone already, live are \[1, 3\]"):
        again = prune_heads(at_once, removing(at_once, {site: [0]}))
    assert weights_hash(again) == weights_hash(at_once) and again.heads() == at_once.heads()
    with pytest.raises(ValueError, match=r"head 7 of decoder.0.cross: allowed are whole numbers from 0 to 3"):
        removing(at_once, {site: [7]})


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("removed", MASKS.values(), ids=MASKS)
def test_a11_one_step_changes_every_trainable_tensor(small_model, batch, removed, norm):
    for settings in ({}, {"share_embeddings": True, "tie_output": True}, {"positions": "learned"}):
        model = small_model(norm=norm, **settings).train()
        pruned = prune_heads(model, removing(model, removed))
        before = {name: parameter.detach().clone() for name, parameter in pruned.named_parameters()}
        trainable = [parameter for parameter in pruned.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trainable, lr=1.0)
        loss_of(pruned, *batch).backward()
        assert all(parameter.grad is not None for parameter in trainable)
        optimizer.step()
        for name, parameter in pruned.named_parameters():
            if name.endswith("key.bias"):
                continue
            assert torch.equal(parameter, before[name]) != parameter.requires_grad, name


def test_a11_frozen_is_only_what_nothing_reads(small_model):
    def frozen(removed, **settings):
        model = small_model(**settings)
        pruned = prune_heads(model, removing(model, removed))
        return {name for name, parameter in pruned.named_parameters() if not parameter.requires_grad}

    def of_site(block, kind):
        parts = ("query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias", "output.weight")
        return {f"{block}.{kind}_attention.attention.{part}" for part in parts}

    assert frozen(SEVERAL) == set()
    norm = {f"decoder.layers.1.self_residual.norm.{part}" for part in ("weight", "bias")}
    assert frozen({"decoder.1.self": range(4)}) == of_site("decoder.layers.1", "self") | norm
    assert frozen({"decoder.1.self": range(4)}, norm="post") == of_site("decoder.layers.1", "self")
    without_cross = frozen(MASKS["all of decoder.cross"])
    encoder = {name for name, _ in small_model().encoder.named_parameters()}
    assert without_cross >= {"source_table.weight"} | {f"encoder.{name}" for name in encoder}
    assert not any("feed_forward" in name or name.startswith("target") for name in without_cross if "decoder" in name)
    assert "source_table.weight" not in frozen(MASKS["all of decoder.cross"], share_embeddings=True)


def test_gates_added_to_a_pruned_model_fit_it(small_model, batch):
    model = small_model()
    pruned = prune_heads(model, removing(model, {**SEVERAL, "decoder.0.cross": range(4)}))
    expected = pruned(*batch)
    pruned.add_gates("hard_concrete")
    assert {site: len(gate.log_a) for site, gate in pruned.gates().items()} == {
        site: len(heads) for site, heads in pruned.heads().items()
    }
    torch.testing.assert_close(pruned(*batch), expected)
    pruned.train()
    loss_of(pruned, *batch).backward()
    assert all(parameter.grad is not None for parameter in pruned.parameters() if parameter.requires_grad)


# What stays


@pytest.mark.parametrize("remove", [mask_heads, prune_heads])
def test_the_model_that_was_given_stays_as_it_was(small_model, batch, remove):
    model = small_model().train()
    model.add_gates("hard_concrete")
    model.tokenizer = object()
    config, weights = copy.deepcopy(model.config), weights_hash(model)
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    gates, heads, mode = model.gates(), model.heads(), [module.training for module in model.modules()]
    other = remove(model, removing(model, {**SEVERAL, "decoder.0.cross": range(4)}))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.remove_gates()
    other.config.heads["decoder.1.self"].clear()
    assert model.config == config and weights_hash(model) == weights and model.heads() == heads
    assert model.gates() == gates and [module.training for module in model.modules()] == mode
    assert [parameter.requires_grad for parameter in model.parameters()] == trainable
    assert other.tokenizer is model.tokenizer


def test_a_mask_of_another_model_is_refused(small_model):
    deeper = small_model(encoder_layers=3)
    mask = removing(deeper, {})
    for remove in (mask_heads, prune_heads):
        with pytest.raises(ValueError, match=r"site 'encoder.2.self' is not in this model; it has encoder.0.self"):
            remove(small_model(), mask)


@pytest.mark.parametrize("remove", [mask_heads, prune_heads])
def test_a10_a_mask_with_a_head_that_the_model_does_not_have_is_refused(small_model, remove):
    model = small_model()
    with pytest.raises(ValueError, match=r"^head 7 of decoder.0.cross: allowed are whole numbers from 0 to 3$"):
        remove(model, HeadMask({"decoder.0.cross": (7,)}))
    assert model.heads()["decoder.0.cross"] == [0, 1, 2, 3]
    assert remove(model, HeadMask({"decoder.0.cross": (2,)})).heads()["decoder.0.cross"] == [2]


@pytest.mark.parametrize("remove", [mask_heads, prune_heads])
def test_what_is_no_mask_or_no_model_is_named(small_model, remove):
    model = small_model()
    for mask in ({"decoder.0.cross": [1]}, None, model):
        with pytest.raises(
            ValueError, match=f"^mask: a {type(mask).__name__}; allowed is a HeadMask, as HeadMask.remov"
        ):
            remove(model, mask)
    with pytest.raises(ValueError, match="^model: a dict; allowed is a Transformer of prune_lab$"):
        remove({}, HeadMask({"decoder.0.cross": (2,)}))


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_a_mask_written_by_hand_is_seen_by_the_next_pass(small_model, batch, gated):
    model = small_model(gates={"name": "hard_concrete"} if gated else None)
    before = model(*batch)
    site = model.attention_sites()["decoder.0.cross"]
    with torch.no_grad():
        site.head_mask[1] = False
    whole = small_model(gates=model.config.gates)
    expected = mask_heads(whole, removing(whole, {"decoder.0.cross": [1]}))
    assert model.heads()["decoder.0.cross"] == [0, 2, 3]
    torch.testing.assert_close(model(*batch), expected(*batch), rtol=0, atol=0)
    assert not torch.equal(model(*batch), before)
    with torch.inference_mode():
        torch.testing.assert_close(model.copy()(*batch), expected(*batch), rtol=0, atol=0)
    site.head_mask = torch.ones(4, dtype=torch.bool)
    torch.testing.assert_close(model(*batch), before, rtol=0, atol=0)


def test_the_mask_itself_is_read_only_after_it_was_written_to(small_model, batch, monkeypatch):
    model = small_model()
    model(*batch)
    read, seen = torch.Tensor.all, []
    monkeypatch.setattr(torch.Tensor, "all", lambda tensor: [seen.append(tensor.shape), read(tensor)][1])
    model(*batch)
    assert torch.Size([4]) not in seen
    model.attention_sites()["decoder.0.cross"].head_mask[0] = True
    model(*batch)
    assert seen.count(torch.Size([4])) == 1


def test_masks_add_up(small_model, batch):
    model = small_model()
    once = mask_heads(model, removing(model, {"encoder.0.self": [1], "decoder.1.cross": [0]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice = mask_heads(once, removing(once, {"encoder.0.self": [2]}))
    assert twice.heads()["encoder.0.self"] == [0, 3] and twice.heads()["decoder.1.cross"] == [1, 2, 3]
    whole = HeadMask.keeping({}, model)
    assert mask_heads(twice, whole).heads() == twice.heads()
    pruned = prune_heads(twice, whole)
    assert pruned.heads() == twice.heads() and pruned.attention_sites()["encoder.0.self"].attention.num_heads == 2
    torch.testing.assert_close(pruned(*batch), twice(*batch), rtol=0, atol=1e-5)


# Gates


@pytest.fixture
def gated(small_model):
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self", "decoder.cross"])
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.copy_(torch.tensor([-4.0, -0.5, 0.5, 4.0]))
    return model


def with_evaluation(model, evaluation):
    for gate in model.gates().values():
        gate.evaluation = evaluation
    return model


@pytest.mark.parametrize(("evaluation", "remaining"), [("round", [2, 3]), ("fraction", [1, 2, 3])])
def test_gates_fold_into_the_output_weights(gated, batch, tmp_path, evaluation, remaining):
    gated = mask_heads(gated, removing(gated, {"decoder.1.cross": [3], "decoder.0.self": [0]}))
    with_evaluation(gated, evaluation)
    folded = fold_gates(gated)
    assert folded.gates() == {} and folded.config.gates is None and len(gated.gates()) == 4
    torch.testing.assert_close(folded(*batch), gated(*batch), rtol=0, atol=1e-5)
    assert folded.heads() == gated.open_heads()
    assert folded.heads()["encoder.0.self"] == remaining and folded.heads()["decoder.1.cross"] == remaining[:-1]
    assert folded.heads()["decoder.1.self"] == [0, 1, 2, 3]
    # Weights of heads that the masks hold apart and sites without gates are as they were.
    same = (of.attention_sites()["decoder.0.self"].attention.output.weight for of in (folded, gated))
    assert torch.equal(*same)
    pruned = prune_heads(folded, HeadMask.keeping({}, folded))
    pruned.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(*batch), gated(*batch), rtol=0, atol=1e-5)
    assert loaded.heads() == gated.open_heads()


@pytest.mark.parametrize("closed", [[], [0, 3]], ids=["open", "two closed"])
def test_constant_factors_go_into_the_output_weights_when_gates_come_off(small_model, batch, closed):
    model = small_model()
    model.add_gates("fixed", kinds=["encoder.self", "decoder.cross"], options={"value": 0.5})
    model.gates()["decoder.1.cross"].factors[closed] = 0
    mask = removing(model, {"encoder.0.self": [1], "decoder.0.self": [2]})
    masked, bare = mask_heads(model, mask), prune_heads(model, mask, keep_gates=False)
    assert bare.gates() == {} and bare.config.gates is None and len(model.gates()) == 4
    torch.testing.assert_close(bare(*batch), masked(*batch), rtol=0, atol=1e-5)
    assert bare.heads() == masked.open_heads()


def test_fractions_fold_whatever_the_evaluation_rule(gated, batch, small_model):
    expected = fold_gates(with_evaluation(gated.copy(), "fraction"))
    folded = fold_fractions(gated)
    assert {gate.evaluation for gate in gated.gates().values()} == {"round"}
    assert torch.equal(folded(*batch), expected(*batch)) and not torch.allclose(folded(*batch), gated(*batch))
    for ungated in (small_model(), fold_gates(gated)):
        with pytest.raises(
            ValueError, match="gate_evaluation: fraction; allowed for a model with hard_concrete gates only"
        ):
            fold_fractions(ungated)


def test_folding_leaves_no_closed_head_to_an_optimiser(gated, batch):
    folded = fold_gates(gated).train()
    loss_of(folded, *batch).backward()
    for site in ("encoder.0.self", "decoder.1.cross"):
        gradient = folded.attention_sites()[site].attention.output.weight.grad
        assert (gradient[:, :16] == 0).all() and (gradient[:, 16:] != 0).any()


def test_survivors_keep_their_gates_or_lose_them_all(gated, batch):
    mask = HeadMask.keeping(gated.open_heads(), gated)
    kept = prune_heads(gated, mask)
    assert torch.equal(kept.gates()["encoder.0.self"].log_a, torch.tensor([0.5, 4.0]))
    torch.testing.assert_close(kept(*batch), gated(*batch), rtol=0, atol=1e-5)
    bare = prune_heads(gated, mask, keep_gates=False)
    assert bare.gates() == {} and bare.config.gates is None
    torch.testing.assert_close(bare(*batch), gated(*batch), rtol=0, atol=1e-5)
    with_evaluation(kept, "fraction")
    assert not torch.allclose(kept(*batch), bare(*batch))
