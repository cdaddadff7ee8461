"""What choices of heads add to a training run: the balance loss, once an update, and figures of each head."""

from functools import partial

import pytest
import torch
from test_module import example, run, window_of

from prune_lab.data.batching import collate
from prune_lab.model.observation import Observation
from prune_lab.training.routing import RoutingStatistics

BATCH = collate([example(length, length) for length in (5, 11, 20)])
SITE = "encoder.1.self"


def mixture(small_model, **options):
    options = {"num_shared": 1, "k": 2, **options}
    return small_model(attention={"name": "mixture_of_head", "options": options}).double()


def gradient_of(model, window, **settings):
    (seen,) = run(model, [window], optimizer=partial(torch.optim.SGD, lr=0.0), **settings).seen
    return seen["encoder.layers.1.self_attention.attention.routed_router.weight"]


def test_the_balance_loss_counts_with_its_weight_once_an_update(small_model):
    whole, none = (mixture(small_model, balance_weight=weight) for weight in (0.5, 0.0))
    twice = collate([example(length, length) for length in (5, 11, 20)])
    added = gradient_of(whole, window_of(BATCH)) - gradient_of(none, window_of(BATCH))
    assert added.abs().max() > 1e-4
    halves = gradient_of(whole, window_of(BATCH, twice)) - gradient_of(none, window_of(BATCH, twice))
    torch.testing.assert_close(halves, added, rtol=0, atol=1e-12)
    model, seen = mixture(small_model, balance_weight=0.5).train(), Observation()
    model.hidden(BATCH.source_ids, BATCH.target_ids[:, :-1], seen=seen)
    router = model.attention_sites()[SITE].attention.routed_router.weight
    (expected,) = torch.autograd.grad(sum(seen.auxiliary_losses.values()), router)
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-12)


def test_an_encoder_that_nobody_reads_is_not_balanced(small_model):
    model = mixture(small_model)
    for name, site in model.attention_sites().items():
        if name.endswith("cross"):
            site.mask_heads([])
    (seen,) = run(model, [window_of(BATCH)]).seen
    encoder = [gradient for name, gradient in seen.items() if name.startswith("encoder")]
    assert all((gradient == 0).all() for gradient in encoder)


def test_evaluation_adds_nothing(small_model):
    seen = Observation()
    mixture(small_model).eval().hidden(BATCH.source_ids, BATCH.target_ids[:, :-1], seen=seen)
    assert not seen.auxiliary_losses and not seen.statistics


def test_figures_are_shares_of_the_tokens_of_all_passes():
    statistics = RoutingStatistics()
    for chosen, probability, tokens in (([0, 3, 1], [0, 2.5, 1.5], 4), ([0, 1, 5], [0, 0.5, 5.5], 6)):
        rows = {"chosen": chosen, "probability": probability, "tokens": [tokens] * 3}
        statistics.add({SITE: {name: torch.tensor(values) for name, values in rows.items()}})
    assert statistics.take() == pytest.approx(
        {
            f"routing/{SITE}.1/chosen": 0.4,
            f"routing/{SITE}.1/probability": 0.3,
            f"routing/{SITE}.2/chosen": 0.6,
            f"routing/{SITE}.2/probability": 0.7,
        }
    )
    assert statistics.take() == {}


@pytest.mark.parametrize("parts", [1, 2])
def test_a_run_logs_how_often_each_head_was_chosen(small_model, task, train, tmp_path, parts):
    model = task.model(attention={"name": "mixture_of_head", "options": {"num_shared": 1, "k": 2}})
    train(model, tmp_path, max_steps=4, log_every=2, parts=parts)
    rows = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    shares = {(row[0], row[1]): float(row[2]) for row in rows if row[1].endswith("/chosen")}
    assert {update for update, _ in shares} == {"2", "4"}
    for update in ("2", "4"):
        for site in model.sites():
            of_site = [share for (at, name), share in shares.items() if at == update and f"{site}." in name]
            assert len(of_site) == 3 and sum(of_site) == pytest.approx(2, abs=1e-5)
