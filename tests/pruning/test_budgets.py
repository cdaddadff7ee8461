"""Budgets as a user writes them: whole numbers, shares, and the gates' own choice."""

import pytest
from omegaconf import OmegaConf

from prune_lab.heads import HeadMask, budget_from_share
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO, parse_budgets
from prune_lab.pruning.surgery import prune_heads


def small_model() -> Transformer:
    sizes = {"source_vocab_size": 10, "target_vocab_size": 10, "d_model": 8, "d_feed_forward": 8}
    return Transformer(ModelConfig(**sizes, encoder_layers=2, decoder_layers=2, encoder_heads=4, decoder_heads=4))


@pytest.mark.parametrize(
    ("share", "num_heads", "budget"),
    [(0.5, 24, 12), (0, 24, 0), (1, 24, 24), (1.0, 7, 7), (0.5, 7, 4), (0.35, 10, 4), (0.3, 48, 14), (0.1, 3, 0)],
)
def test_a_share_is_the_nearest_whole_number_of_heads(share, num_heads, budget):
    assert budget_from_share(share, num_heads) == budget


@pytest.mark.parametrize("share", [1.5, -0.1, "0.5", True, None, float("nan")])
def test_other_shares_are_errors(share):
    with pytest.raises(ValueError, match="shares: .*; allowed are numbers from 0 to 1"):
        budget_from_share(share, 24)


def test_budgets_and_shares_become_descending_whole_numbers():
    model = small_model()
    assert parse_budgets([5, 24, 12, 12], model=model) == [24, 12, 5]
    assert parse_budgets(0, model=model) == [0]
    assert parse_budgets(shares=[0.25, 0.5, 0.26], model=model) == [12, 6]
    assert parse_budgets(shares=0.5, model=model) == [12]
    pruned = prune_heads(model, HeadMask.removing({"encoder.0.self": [0, 1, 2, 3]}, model))
    assert parse_budgets(shares=[0.5], model=pruned) == [10]
    with pytest.raises(ValueError, match="budgets: 24; allowed are whole numbers from 0 to 20"):
        parse_budgets([24], model=pruned)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "budgets, shares: neither is given; allowed"),
        ({"budgets": [3], "shares": [0.5]}, "budgets, shares: both are given; allowed"),
        ({"budgets": []}, "budgets: []; allowed are lists with at least one number"),
        ({"shares": []}, "shares: []; allowed are lists with at least one number"),
        ({"budgets": [12, 25]}, "budgets: 25; allowed are whole numbers from 0 to 24"),
        ({"budgets": "50"}, "budgets: '50'; allowed are whole numbers from 0 to 24"),
        ({"budgets": ["12"]}, "budgets: '12'; allowed are whole numbers from 0 to 24"),
        ({"budgets": [1.5]}, "budgets: 1.5; allowed are whole numbers from 0 to 24"),
        ({"shares": [0.5, 1.5]}, "shares: 1.5; allowed are numbers from 0 to 1"),
        ({"budgets": "auto"}, "budgets: auto needs a model with gates, this one has none; allowed are lists"),
    ],
)
def test_wrong_budgets_are_one_line_that_says_what_is_allowed(given, message):
    with pytest.raises(ValueError) as caught:
        parse_budgets(**given, model=small_model())
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_auto_stays_auto_for_a_model_with_gates():
    model = small_model()
    model.add_gates("hard_concrete")
    assert parse_budgets("auto", model=model) == AUTO


def test_lists_of_a_configuration_are_lists():
    config = OmegaConf.create({"budgets": [12, 24], "shares": [0.5]})
    assert parse_budgets(config.budgets, model=small_model()) == [24, 12]
    assert parse_budgets(shares=config.shares, model=small_model()) == [12]
