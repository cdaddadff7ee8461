"""Gates that draw together: exactly k heads over all sites, in training, evaluation, exports and copies."""

import copy
import math
from pathlib import Path

import pytest
import torch

from prune_lab.gates.held import held_gates
from prune_lab.gates.registry import build_gate, draw_overlap, set_update
from prune_lab.gates.subset import SubsetGate
from prune_lab.heads import HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.selection import keep_rule_mask
from prune_lab.pruning.surgery import mask_heads, prune_heads


def model_with(keep: int, **options) -> Transformer:
    """Two layers on each side, four heads at each of six sites, and scores of its own."""
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 20, "target_vocab_size": 20, "d_model": 16, "d_feed_forward": 16, "dropout": 0.0}
    model = Transformer(ModelConfig(**sizes, encoder_layers=2, decoder_layers=2, encoder_heads=4, decoder_heads=4))
    model.add_gates("subset", options={"keep": keep, "init_std": 1.0, **options})
    return model


def draw(model: Transformer) -> torch.Tensor:
    """The gates of all sites, in the order in which a pass asks for them."""
    return torch.cat([gate() for gate in model.gates().values()])


def scores(model: Transformer) -> torch.Tensor:
    return torch.cat([gate.scores.detach() for gate in model.gates().values()])


@pytest.mark.parametrize("variant", ["gumbel", "straight_through"])
@pytest.mark.parametrize("keep", [0, 1, 7, 23, 24, 30])
def test_every_draw_sums_to_the_number_of_heads_that_are_kept(variant: str, keep: int) -> None:
    model = model_with(keep, variant=variant).train()
    for update in (0, 5_000, 15_000, 40_000):
        set_update(model.gates().values(), update)
        for _ in range(3):
            drawn = draw(model).detach()
            assert float(drawn.sum()) == pytest.approx(min(keep, 24), rel=1e-5)
            assert keep < 24 or torch.equal(drawn, torch.ones(24))
    model.eval()
    assert sorted(draw(model).tolist(), reverse=True) == [1.0] * min(keep, 24) + [0.0] * max(0, 24 - keep)
    assert sum(map(len, model.open_heads().values())) == keep_rule_mask(model).num_kept == min(keep, 24)


@pytest.mark.parametrize("variant", ["gumbel", "straight_through"])
def test_noise_ends_with_the_annealing(variant: str) -> None:
    """From then on weights train with the heads that are kept, and gradients still reach all that is trained."""
    model = model_with(7, variant=variant, init_std=0.01, anneal_updates=30).train()
    model.eval()
    choice = draw(model).detach()
    model.train()
    set_update(model.gates().values(), 29)
    assert variant == "straight_through" or not all(torch.equal(draw(model).detach(), choice) for _ in range(5))
    for update in (30, 31, 500):
        set_update(model.gates().values(), update)
        drawn = draw(model)
        assert torch.equal(drawn.detach(), choice)
    drawn.sum().backward()
    for gate in model.gates().values():
        assert gate.scores.grad is not None and torch.isfinite(gate.scores.grad).all()


def test_the_overlap_is_that_of_draws_with_the_choice_and_draws_nothing_itself() -> None:
    model = model_with(7, init_std=2.0, anneal_updates=30, end_temperature=1e-8, noise_to_end=True).train()
    gates = list(model.gates().values())
    set_update(gates, 30)
    state = torch.get_rng_state()
    found = gates[0].overlap(num_draws=2_000)
    assert torch.equal(state, torch.get_rng_state()) and draw_overlap(gates) == gates[3].overlap()
    chosen = torch.cat([gate.keep_rule() for gate in gates])
    drawn = [float(draw(model).detach()[chosen].sum()) for _ in range(2_000)]
    assert 3 < found < 6.5 and found == pytest.approx(sum(drawn) / 2_000, abs=0.15)
    for options in ({"variant": "straight_through"}, {"anneal_updates": 0}):
        assert draw_overlap(model_with(7, **options).gates().values()) == 7, "no noise"
    assert draw_overlap([build_gate("hard_concrete", num_heads=4, options={})]) is None


def test_noise_may_last_to_the_end_as_in_the_paper() -> None:
    model = model_with(7, init_std=0.01, anneal_updates=30, noise_to_end=True).train()
    set_update(model.gates().values(), 500)
    draws = {tuple(draw(model).detach().round().tolist()) for _ in range(20)}
    assert len(draws) > 10


def test_evaluation_is_the_hard_choice_of_the_scores_and_draws_nothing() -> None:
    model = model_with(9).eval()
    state = torch.get_rng_state()
    first = draw(model)
    assert torch.equal(first, draw(model)) and torch.equal(state, torch.get_rng_state())
    best = scores(model).topk(9).indices
    assert set(first.nonzero()[:, 0].tolist()) == set(best.tolist())


def test_without_noise_equal_scores_are_open_in_their_order_at_the_lowest_temperature() -> None:
    model = model_with(7, init_std=0.0)
    set_update(model.gates().values(), 15_000)
    relaxed = torch.cat([gate.p_open() for gate in model.gates().values()])
    assert relaxed.tolist() == [1.0] * 7 + [0.0] * 17 == draw(model.eval()).tolist()


def test_the_temperature_falls_log_linearly_to_its_end() -> None:
    gate = build_gate("subset", num_heads=4, options={"keep": 2, "anneal_updates": 100})
    found = []
    for update in (0, 25, 50, 100, 900):
        set_update([gate], update)
        found.append(gate.temperature)
    assert found == pytest.approx([1e-1, 10**-2.75, 10**-4.5, 1e-8, 1e-8], rel=1e-9)
    at_once = build_gate("subset", num_heads=4, options={"keep": 2, "anneal_updates": 0})
    assert at_once.temperature == pytest.approx(1e-8)


def test_each_pass_has_one_draw_and_the_next_another() -> None:
    model = model_with(8).train()
    for number, gate in enumerate(model.gates().values()):
        gate.generator = torch.Generator().manual_seed(number)
    first, second = draw(model), draw(model)
    assert not torch.equal(first, second)
    assert float(first.detach().sum()) == pytest.approx(8, rel=1e-5)
    ids = torch.tensor([[5, 6, 2]])
    model.encode(ids)  # takes a part of a draw alone
    assert float(draw(model).detach().sum()) == pytest.approx(8, rel=1e-5)
    copied = copy.deepcopy(model)
    copied.encode(ids)
    assert float(draw(copied).detach().sum()) == pytest.approx(8, rel=1e-5)
    with torch.no_grad():
        next(iter(copied.gates().values())).scores.fill_(50.0)
    assert next(iter(model.gates().values())).scores.max() < 50, "a copy has scores of its own"
    assert copied.eval().open_heads()["encoder.0.self"] == [0, 1, 2, 3]


@pytest.mark.parametrize("variant", ["gumbel", "straight_through"])
def test_scores_of_all_sites_get_gradients_and_training_finds_the_heads_that_matter(variant: str) -> None:
    model = model_with(6, variant=variant, init_std=0.01, start_temperature=1.0, anneal_updates=400).train()
    gates = list(model.gates().values())
    parameters = [gate.scores for gate in gates]
    optimizer = torch.optim.Adam(parameters, lr=0.2)
    worth = torch.zeros(24)
    wanted = [0, 5, 10, 11, 17, 23]
    worth[wanted] = 1.0
    for update in range(400):
        set_update(gates, update)
        loss = -(draw(model) * worth).sum()
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None and torch.isfinite(parameter.grad).all() for parameter in parameters)
        optimizer.step()
    assert draw(model.eval()).nonzero()[:, 0].tolist() == wanted


@pytest.mark.parametrize(("rate", "temperatures", "least"), [(0.1, (1.0, 0.3), 0.9), (0.2, (3.0, 0.3), 0.9)])
def test_short_noisy_trainings_find_good_heads_while_draws_are_soft(
    rate: float, temperatures: tuple[float, float], least: float
) -> None:
    """In 300 updates, from losses whose noise is as large as what a good head is worth.

    With the temperatures of the paper, 0.1 to 1e-8, made for thousands, the choice has 0.5 to 0.7 of the worth.
    """
    start, end = temperatures
    shares = []
    for seed in range(3):
        model = model_with(6, init_std=0.01, start_temperature=start, end_temperature=end, anneal_updates=300).train()
        gates = list(model.gates().values())
        torch.manual_seed(seed)
        worth = 0.3 * torch.linspace(1, 0, 24)[torch.randperm(24)] ** 3
        optimizer = torch.optim.Adam([gate.scores for gate in gates], lr=rate, betas=(0.9, 0.98))
        for update in range(300):
            set_update(gates, update)
            loss = -(draw(model) * (worth + 0.1 * torch.randn(24))).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        set_update(gates, 300)
        shares.append(float((draw(model) * worth).sum().detach() / worth.topk(6).values.sum()))
    assert sum(shares) / len(shares) > least


def test_held_gates_are_one_draw_with_one_graph() -> None:
    model = model_with(5).train()
    with held_gates(model) as (drawn, leaves):
        assert len(drawn) == len(leaves) == 6
        assert sum(float(leaf.detach().sum()) for leaf in leaves) == pytest.approx(5, rel=1e-5)
        torch.autograd.backward(drawn, [torch.randn_like(part) for part in drawn])
    assert all(gate.scores.grad is not None for gate in model.gates().values())


def test_masked_and_removed_heads_are_never_chosen() -> None:
    model = model_with(10)
    gone = {"encoder.0.self": [0, 1, 2, 3], "decoder.1.cross": [2]}
    masked, pruned = (make(model, HeadMask.removing(gone, model)) for make in (mask_heads, prune_heads))
    for smaller in (masked, pruned):
        for _ in range(5):
            gates = draw(smaller.train())
            assert float(gates.detach().sum()) == pytest.approx(10, rel=1e-5)
        assert sum(map(len, smaller.eval().open_heads().values())) == 10
    assert masked.open_heads() == pruned.open_heads()
    few = mask_heads(model, HeadMask.keeping({site: [1] for site in model.sites()}, model))
    assert float(draw(few.train()).detach().sum()) == pytest.approx(6), "fewer than are to be kept"
    nothing = prune_heads(model, HeadMask.keeping({site: [] for site in model.sites()}, model))
    assert draw(nothing.train()).tolist() == []


def test_an_export_chooses_the_same_heads(tmp_path: Path) -> None:
    model = model_with(7, variant="straight_through", anneal_updates=10).eval()
    model.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path).eval()
    assert loaded.open_heads() == model.open_heads() and torch.equal(scores(loaded), scores(model))
    assert float(draw(loaded.train()).detach().sum()) == pytest.approx(7)
    mask = keep_rule_mask(model)
    ids = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        torch.testing.assert_close(prune_heads(model, mask, keep_gates=False)(*ids), model(*ids))


def test_p_open_is_near_the_choice_where_scores_are_apart() -> None:
    model = model_with(6)
    set_update(model.gates().values(), 15_000)
    assert torch.equal(torch.cat([gate.p_open() for gate in model.gates().values()]).detach(), draw(model.eval()))
    gate = SubsetGate(num_heads=5, keep=2, init_std=1.0)
    assert float(gate.p_open().detach().sum()) == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": -1}, "gates.keep: -1; allowed are whole numbers from 0"),
        ({"keep": 1.5}, "gates.keep: 1.5; allowed are whole numbers from 0"),
        ({"keep": 2, "variant": "hard"}, "gates.variant: 'hard'; allowed are gumbel, straight_through"),
        ({"keep": 2, "end_temperature": 0}, "gates.end_temperature: 0; allowed are numbers above 0"),
        ({"keep": 2, "start_temperature": math.inf}, "gates.start_temperature: inf; allowed are numbers above 0"),
        ({"keep": 2, "noise_to_end": 1}, "gates.noise_to_end: 1; allowed are true and false"),
        ({"keep": 2, "anneal_updates": -1}, "gates.anneal_updates: -1; allowed are whole numbers from 0"),
        ({"keep": 2, "init_std": -1}, "gates.init_std: -1; allowed are numbers from 0"),
        ({"keep": 2, "start_temperature": 1e-9}, "gates.end_temperature: 1e-08; allowed are numbers above 0, up to"),
        ({"keep": 2, "init_std": "a"}, "gates.init_std: 'a'; allowed are numbers from 0"),
        ({"keep": 2, "init_std": 1e300}, "gates.init_std: 1e+300; allowed are numbers from 0, of a size from"),
        ({"keep": 2, "scale": 1}, "gates.options.scale: unknown for subset; allowed are keep, variant, start_tem"),
        ({}, "gates.options.keep: not set; subset gates need it"),
    ],
)
def test_wrong_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        build_gate("subset", num_heads=4, options=options)
    assert str(caught.value).startswith(message)
