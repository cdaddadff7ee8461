"""Criteria. Contract tests take their list from the registry; the gradient is compared with finite differences."""

import inspect
from pathlib import Path

import pytest
import torch
from criterion_models import (
    CHEAP,
    LENGTHS,
    assert_close,
    examples,
    flat,
    gated_model,
    helpful_model,
    sentence_losses,
    small_model,
    train_gates,
)
from hydra.utils import instantiate
from omegaconf import OmegaConf
from scipy.stats import spearmanr

from prune_lab.data.batching import Batch, collate
from prune_lab.heads import HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.gradient import Gradient
from prune_lab.pruning.criteria.random import Random
from prune_lab.pruning.criteria.registry import build_criterion, criteria, score_heads
from prune_lab.pruning.selection import Selection
from prune_lab.pruning.surgery import mask_heads, prune_heads

CONF = Path(__file__).parents[2] / "conf" / "criterion"


def slopes(model: Transformer, batch: Batch, site: str, factor: torch.Tensor, step: float = 1e-4) -> torch.Tensor:
    """dL/dxi of each sentence [B] by central differences, for the entries of `factor` that are 1."""
    with torch.no_grad():
        higher = sentence_losses(model, batch, {site: 1 + step * factor})
        lower = sentence_losses(model, batch, {site: 1 - step * factor})
    return (higher - lower) / (2 * step)


def cheap(name: str) -> Criterion:
    """A criterion with its defaults, but for those that make it take long."""
    return build_criterion(name, **CHEAP.get(name, {}))


# Contract: every criterion of the registry


@pytest.mark.parametrize("name", criteria())
def test_every_criterion_scores_exactly_the_live_heads(name):
    model = gated_model()
    gone = {"encoder.0.self": [0, 2], "decoder.1.cross": [0, 1, 2, 3]}
    model = prune_heads(model, HeadMask.removing(gone, model))
    model = mask_heads(model, HeadMask.removing({"decoder.0.self": [1], "encoder.1.self": [0, 1, 2, 3]}, model))
    scores = score_heads(model, [collate(examples())], cheap(name))
    assert {site: list(heads) for site, heads in scores.values.items()} == model.heads()
    assert list(scores.values) == model.sites()
    assert scores.criterion == name
    assert torch.isfinite(flat(scores)).all()


@pytest.mark.parametrize("name", criteria())
def test_every_criterion_tells_its_options(name):
    criterion = cheap(name)
    assert set(criterion.options) == set(inspect.signature(criteria()[name]).parameters)
    assert CHEAP.get(name, {}).items() <= criterion.options.items()
    assert build_criterion(name, **criterion.options).options == criterion.options


@pytest.mark.parametrize("name", criteria())
def test_a9_every_criterion_runs_on_a_model_without_any_head(name):
    model = gated_model()
    model = prune_heads(model, HeadMask.keeping({site: [] for site in model.sites()}, model))
    assert score_heads(model, [collate(examples())], cheap(name)).to_dict() == {site: {} for site in model.sites()}


@pytest.mark.parametrize("left", [{}, {"decoder.1.self": [1, 2]}], ids=["nothing", "decoder"])
@pytest.mark.parametrize("name", [name for name in criteria() if name not in ("magnitude", "random", "gate")])
def test_heads_of_an_encoder_that_no_head_reads_score_nothing(name, left):
    """But for their confidence, which looks at no output."""
    model = gated_model("fraction")
    gone = HeadMask.keeping({site: left.get(site, []) for site in model.sites() if site.startswith("decoder")}, model)
    model = prune_heads(model, gone)
    scores = score_heads(model, [collate(examples((3, 7)))], cheap(name))
    assert {site: list(heads) for site, heads in scores.values.items()} == model.heads()
    for site in ("encoder.0.self", "encoder.1.self"):
        assert all(score == 0 for score in scores.values[site].values()) or name == "confidence"
    assert all(score != 0 for score in scores.values["decoder.1.self"].values())


@pytest.mark.parametrize("name", criteria())
def test_every_criterion_leaves_the_model_and_the_random_state_as_they_were(name):
    model = gated_model().train()
    model.encoder.eval()
    model.encoder.requires_grad_(False)
    for parameter in model.decoder.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    random_state = torch.get_rng_state()

    scores = score_heads(model, [collate(examples())], cheap(name))

    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    for parameter in model.decoder.parameters():
        assert torch.equal(parameter.grad, torch.full_like(parameter, 3.0))
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    again = score_heads(model.eval(), [collate(examples())], cheap(name))
    assert again.to_dict() == scores.to_dict(), "training mode told"


@pytest.mark.parametrize("name", criteria())
def test_every_criterion_has_a_configuration_with_the_defaults_of_its_constructor(name):
    config = OmegaConf.create({"criterion": OmegaConf.load(CONF / f"{name}.yaml")})
    built = instantiate(config.criterion, _convert_="all")
    defaults = {key: entry.default for key, entry in inspect.signature(criteria()[name]).parameters.items()}
    assert type(built) is criteria()[name] and built.name == name
    assert {key: getattr(built, key) for key in defaults} == defaults
    assert {key for key in config.criterion if key != "_target_"} == set(defaults)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("name", criteria())
def test_scores_do_not_depend_on_the_device(name):
    model, batches = gated_model(), [collate(examples())]
    on_device, here = (score_heads(each, batches, cheap(name)) for each in (model.copy().to("cuda"), model))
    assert_close(on_device, here, 1e-3)


# Gradient


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradient_equals_finite_differences_at_every_site(norm):
    model = small_model(norm=norm).double()
    batch = collate(examples((3, 7, 12)))
    scores, heads = score_heads(model, [batch]), torch.eye(4, dtype=torch.float64)
    for site in model.sites():
        for head in range(4):
            expected = slopes(model, batch, site, heads[head]).abs().mean().item()
            assert scores.values[site][head] == pytest.approx(expected, rel=1e-5, abs=1e-8), f"{site}.{head}"


def test_gradient_of_a_gated_model_is_taken_at_its_evaluation_gates():
    model = gated_model("fraction").double()
    model = mask_heads(model, HeadMask.removing({"decoder.0.cross": [2]}, model))
    batch = collate(examples((4, 9)))
    scores, heads = score_heads(model, [batch]), torch.eye(4, dtype=torch.float64)
    for site in ("encoder.1.self", "decoder.0.cross"):
        assert scores.values[site][0] == 0, "a closed gate"
        for head, score in scores.values[site].items():
            expected = slopes(model, batch, site, heads[head]).abs().mean().item()
            assert score == pytest.approx(expected, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("site", ["encoder.0.self", "decoder.1.self", "decoder.0.cross"])
def test_token_takes_absolute_values_at_each_position_of_the_query_side(site):
    model, batch = small_model().double(), collate(examples((3, 6)))
    num = batch.source_ids.shape[1] if site.startswith("encoder") else batch.target_ids.shape[1] - 1
    expected = 0.0
    for position in range(num):
        factor = torch.zeros(2, 4, num, dtype=torch.float64)
        factor[:, 3, position] = 1
        expected += slopes(model, batch, site, factor).abs().mean().item()
    assert score_heads(model, [batch], absolute="token").values[site][3] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("absolute", ["sentence", "token"])
def test_b4_padding_batch_split_and_repetition_do_not_change_the_scores(absolute):
    model, pairs = small_model(), examples()
    whole = collate(pairs)
    together = score_heads(model, [whole], absolute=absolute)
    assert_close(score_heads(model, [collate([pair]) for pair in pairs], absolute=absolute), together, 1e-4)
    assert_close(score_heads(model, [collate(pairs[5:]), collate(pairs[:5])], absolute=absolute), together, 1e-4)
    padding = torch.zeros(len(pairs), 20, dtype=torch.long)
    padded = Batch(
        source_ids=torch.cat((whole.source_ids, padding), 1), target_ids=torch.cat((whole.target_ids, padding), 1)
    )
    assert_close(score_heads(model, [padded], absolute=absolute), together, 1e-4)
    twice = score_heads(model, [whole, whole], absolute=absolute)
    assert_close(twice, together, 1e-6)
    assert twice.settings["num_sentences"] == 16
    assert twice.settings["num_tokens"] == 2 * sum(num + 3 for num in LENGTHS)


def test_the_three_absolute_values_and_how_they_relate():
    model, pairs = small_model(), examples()
    one_by_one = [collate([pair]) for pair in pairs]
    options = ("sentence", "token", "batch")
    by_option = {absolute: score_heads(model, [collate(pairs)], absolute=absolute) for absolute in options}
    sentence, token, batch = (flat(by_option[absolute]) for absolute in options)
    assert (token >= sentence - 1e-6).all() and (sentence >= batch - 1e-6).all()
    assert token.sum() > 1.1 * sentence.sum() and sentence.sum() > 1.1 * batch.sum()
    assert_close(score_heads(model, one_by_one, absolute="batch"), by_option["sentence"], 1e-4)
    assert by_option["batch"].settings["num_batches"] == 1
    assert score_heads(model, one_by_one, absolute="batch").settings["num_batches"] == 8
    assert "num_batches" not in by_option["sentence"].settings


def test_normalised_scores_have_norm_one_at_each_site_and_the_same_order():
    model, batches = small_model(), [collate(examples())]
    with torch.no_grad():
        model.attention_sites()["encoder.1.self"].attention.output.weight.zero_()
    plain, normalised = score_heads(model, batches), score_heads(model, batches, normalise=True)
    for site, heads in normalised.values.items():
        norm = sum(value**2 for value in heads.values()) ** 0.5
        assert norm == pytest.approx(0.0 if site == "encoder.1.self" else 1.0)
        assert sorted(heads, key=heads.get) == sorted(heads, key=plain.values[site].get)
    assert normalised.settings["normalise"] is True


IDLE = {"encoder.0.self": [1, 3], "encoder.1.self": [0, 1, 2, 3], "decoder.0.self": [0, 2, 3]}
IDLE["decoder.1.cross"] = [0, 1, 3]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [name for name in criteria() if name != "random"])
def test_heads_without_an_output_come_last_and_go_without_a_trace(name, seed):
    """In a model whose other heads all help, as selection ranks them: by the scores with their signs."""
    model, batch = helpful_model(IDLE, seed)
    with torch.no_grad():
        assert (model(batch.source_ids, batch.target_ids[:, :-1]).argmax(-1) == 5).all(), "it knows the text"
    if criteria()[name].needs_gates:
        train_gates(model, batch)
    options = {"max_permutations": 16} if name == "shapley" else {}
    scores = score_heads(model, [batch], build_criterion(name, **options))
    removed = HeadMask.removing(IDLE, model)
    assert Selection()(scores, 12) == removed
    kept = [scores.values[site][head] for site, heads in removed.kept.items() for head in heads]
    gone = [scores.values[site][head] for site, heads in IDLE.items() for head in heads]
    assert len(kept) == len(gone) == 12 and min(kept) > max(gone)
    exact = model.double()
    pruned = prune_heads(exact, removed)
    with torch.no_grad():
        difference = exact(batch.source_ids, batch.target_ids) - pruned(batch.source_ids, batch.target_ids)
    assert difference.abs().max() < 1e-12


@pytest.mark.parametrize("name", [name for name in criteria() if criteria()[name].needs_batches])
def test_scores_under_bfloat16_autocast_keep_the_order(name):
    model, batches = small_model(), [collate(examples(LENGTHS * 2))]
    exact = score_heads(model, batches, cheap(name))
    with torch.autocast("cpu", torch.bfloat16):
        rough = score_heads(model, batches, cheap(name))
    assert not torch.equal(flat(rough), flat(exact))
    assert spearmanr(flat(rough), flat(exact)).statistic >= 0.99


@pytest.mark.parametrize("name", [name for name in criteria() if criteria()[name].needs_batches])
def test_b4_no_criterion_sees_padding_or_the_split_into_batches(name):
    model, pairs = small_model().double(), examples()
    together = score_heads(model, [collate(pairs)], cheap(name))
    assert_close(score_heads(model, [collate([pair]) for pair in pairs], cheap(name)), together, 1e-8)


def test_gradient_works_where_gradients_are_off_and_on_a_generator_of_batches():
    model, pairs = small_model(), examples()
    expected = score_heads(model, [collate(pairs)])
    with torch.no_grad():
        assert_close(score_heads(model, (collate([pair]) for pair in pairs)), expected, 1e-4)


def test_gradient_asks_for_no_weight_gradients():
    model = small_model()

    def watched():
        assert not any(parameter.requires_grad for parameter in model.parameters())
        yield collate(examples())

    score_heads(model, watched())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_gradient_that_overflows_is_an_error_that_names_the_head():
    model = small_model()
    with torch.no_grad():
        model.attention_sites()["decoder.1.cross"].attention.output.weight[0] = float("inf")
    with pytest.raises(ValueError, match=r"score of encoder\.0\.self\.0: nan"):
        score_heads(model, [collate(examples())])


# The others


def test_magnitude_is_the_product_of_the_norms_of_the_value_and_output_weights_of_a_head():
    model = small_model()
    attention = model.attention_sites()["decoder.0.cross"].attention
    expected = attention.value.weight[16:24].norm() * attention.output.weight[:, 16:24].norm()
    score = score_heads(model, criterion="magnitude").values["decoder.0.cross"][2]
    assert score == pytest.approx(expected.item(), rel=1e-6)


def test_gate_scores_are_p_open_or_log_a_and_heads_without_a_gate_are_open():
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self"], options={"init": 0.3})
    scores = score_heads(model, criterion="gate")
    assert scores.values["encoder.1.self"][2] == pytest.approx(model.gates()["encoder.1.self"].p_open()[2].item())
    assert set(scores.values["decoder.0.cross"].values()) == {1.0}
    with pytest.raises(ValueError, match=r"log_a, which decoder\.0\.self does not have; allowed here is p_open"):
        score_heads(model, criterion="gate", value="log_a")
    model.add_gates("hard_concrete", options={"init": 0.3})
    assert score_heads(model, criterion="gate", value="log_a").values["decoder.0.self"][1] == pytest.approx(0.3)
    model.remove_gates()
    with pytest.raises(ValueError, match="this model has no gates"):
        score_heads(model, criterion="gate")


def test_random_scores_come_from_the_seed_alone():
    model = small_model()
    first = score_heads(model, criterion="random", seed=3)
    torch.manual_seed(99)
    assert score_heads(model, criterion=Random(seed=3)).to_dict() == first.to_dict()
    assert score_heads(model, criterion="random", seed=4).to_dict() != first.to_dict()
    pruned = prune_heads(model, HeadMask.removing({"encoder.0.self": [0, 1]}, model))
    fewer = score_heads(pruned, criterion="random", seed=3)
    assert fewer.values["encoder.0.self"] == {head: first.values["encoder.0.self"][head] for head in (2, 3)}
    assert fewer.values["decoder.1.cross"] == first.values["decoder.1.cross"]
    assert len(set(flat(first).tolist())) == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"criterion": "taylor"}, "criterion: 'taylor' is unknown; allowed are ablation, confidence, fisher, gate,"),
        ({"order": 2}, "criterion.order: unknown for gradient; allowed are absolute, normalise"),
        ({"criterion": "magnitude", "p": 1}, "criterion.p: unknown for magnitude; allowed are no options at all"),
        ({"criterion": Gradient(), "normalise": True}, "criterion.normalise: gradient is built already"),
        ({"absolute": "word"}, "criterion.absolute: 'word'; allowed are sentence, token, batch"),
        ({"normalise": "yes"}, "criterion.normalise: 'yes'; allowed are true and false"),
        ({"criterion": "random", "seed": -1}, "criterion.seed: -1; allowed are whole numbers from 0"),
        (
            {"criterion": "random", "seed": 2**64},
            "criterion.seed: 18446744073709551616; allowed are whole numbers from",
        ),
        ({"criterion": ["gradient"]}, "criterion: ['gradient'] is unknown; allowed are ablation, confidence"),
        ({"criterion": Gradient}, "criterion: <class"),
        ({"criterion": "gate", "value": "l0"}, "criterion.value: 'l0'; allowed are p_open, log_a"),
        ({"criterion": "gradient"}, "batches: no sentences"),
    ],
)
def test_wrong_settings_are_one_line_that_says_what_is_allowed(arguments, message):
    with pytest.raises(ValueError) as caught:
        score_heads(small_model(), [], **arguments)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def batch_of(source_ids: list[list[int]], target_ids: list[list[int]]) -> Batch:
    return Batch(source_ids=torch.tensor(source_ids), target_ids=torch.tensor(target_ids))


GOOD = batch_of([[5, 6, 2]], [[1, 7, 2]])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (GOOD, "batches: a Batch; allowed is a list of batches: [batch]"),
        (3, "batches: a int; allowed is a list of batches: [batch]"),
        (None, "batches: a NoneType; allowed is a list of batches: [batch]"),
        (torch.zeros(2, 3), "batches: item 1 is a Tensor; allowed is a Batch"),
        ([GOOD, (GOOD.source_ids, GOOD.target_ids)], "batches: item 2 is a tuple; allowed is a Batch"),
        ([batch_of([[5, 2], [5, 2]], [[1, 2], [1, 0]])], "batches: item 1: target_ids: row 1 holds no token"),
        ([batch_of([[5, 2]], [[1]])], "batches: item 1: target_ids: row 0 holds no token"),
        ([GOOD, batch_of([[0, 0]], [[1, 2]])], "batches: item 2: source_ids: row 0 holds no token"),
        ([batch_of([[50, 2]], [[1, 2]])], "batches: item 1: source_ids: id 50; allowed are 0 to 49"),
        ([batch_of([[5, 2]], [[1, 60, 2]])], "batches: item 1: target_ids: id 60; allowed are 0 to 59"),
        ([batch_of([[5, -1, 2]], [[1, 2]])], "batches: item 1: source_ids: id -1; allowed are 0 to 49"),
    ],
)
def test_what_is_no_text_to_measure_on_is_told_in_one_line(batches, message):
    with pytest.raises(ValueError) as caught:
        score_heads(small_model(), batches)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize("model", [None, {}, ModelConfig(source_vocab_size=8, target_vocab_size=8)])
def test_what_is_no_model_is_named(model):
    for name in criteria():
        with pytest.raises(
            ValueError, match=f"^model: a {type(model).__name__}; allowed is a Transformer of prune_lab$"
        ):
            score_heads(model, [GOOD], name)


@pytest.mark.parametrize("absolute", ["sentence", "token", "batch"])
def test_threads_that_share_the_batches_change_nothing(absolute, monkeypatch):
    batches = [collate(examples(seed=seed)) for seed in range(5)]
    found = []
    for num_threads in (1, 2, 4):
        monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)  # noqa: B023
        monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
        found.append(score_heads(small_model(), batches, criterion="gradient", absolute=absolute))
    assert found[0].settings == found[1].settings == found[2].settings
    for other in found[1:]:
        assert_close(other, found[0], 1e-6)
    assert torch.equal(flat(found[1]), flat(found[2])), "summed in the order of the batches"


def test_batches_are_read_as_they_are_needed(monkeypatch):
    """A stream of a whole corpus is never in memory at once."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    done, ahead = [0], []
    plain = Gradient._contributions

    def counted(self, model, batch):
        done[0] += 1
        return plain(self, model, batch)

    def stream():
        for number in range(12):
            ahead.append(number - done[0])
            yield collate(examples(seed=number))

    monkeypatch.setattr(Gradient, "_contributions", counted)
    score_heads(small_model(), stream(), criterion="gradient")
    assert done[0] == 12 and max(ahead) <= 4


@pytest.mark.parametrize("heads", [2, 8])
def test_gradient_takes_one_pass_over_the_text_whatever_the_number_of_heads(heads, monkeypatch):
    """One forward and one backward pass over each batch, of the rows of the batch and no more."""
    model = small_model(encoder_heads=heads, decoder_heads=heads)
    batches = [collate(examples(lengths, seed)) for seed, lengths in enumerate(([3, 9], [4, 5, 6], [7]))]
    rows, backward = [], []
    hidden, grad = Transformer.hidden, torch.autograd.grad

    def watched(self, source_ids, *args, **kwargs):
        rows.append(len(source_ids))
        return hidden(self, source_ids, *args, **kwargs)

    def counted(*args, **kwargs):
        backward.append(1)
        return grad(*args, **kwargs)

    monkeypatch.setattr(Transformer, "hidden", watched)
    monkeypatch.setattr(torch.autograd, "grad", counted)
    monkeypatch.setattr(torch.Tensor, "backward", counted)
    encoded = []
    model.encoder.register_forward_hook(lambda *_: encoded.append(1))
    scores = score_heads(model, batches, criterion="gradient")
    assert {len(site) for site in scores.values.values()} == {heads}
    assert sorted(rows) == [1, 2, 3] and len(backward) == len(encoded) == 3


def test_an_error_in_a_batch_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    model = small_model(positions="learned", max_positions=20)
    with pytest.raises(ValueError, match="sequence of 41 tokens"):
        score_heads(model, [collate(examples((3, 5))), collate(examples((40,)))], criterion="gradient")
