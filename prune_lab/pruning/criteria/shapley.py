"""Shapley values of heads by truncated Monte Carlo (Held and Yang 2023, arXiv 2210.05709; Ghorbani and Zou 2019).

Shapes: H heads at a site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from threading import Event
from typing import Any, ClassVar

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import check_seed
from prune_lab.pruning.criteria.by_batch import measure_each
from prune_lab.pruning.criteria.contract import Criterion, adds_something, evaluating, live_scores
from prune_lab.pruning.criteria.gradient import summed_loss
from prune_lab.pruning.criteria.shapley_values import (
    Coalition,
    Found,
    Game,
    Order,
    Sampling,
    ShapleyEstimate,
    estimate_shapley_values,
)

_Head = tuple[str, int]
_DEFAULTS = Sampling()


class Shapley(Criterion):
    """The Shapley value of each head in the game v(S) = minus the loss of the model with the heads S alone.

    The loss is the negative log-likelihood per real target token, without label smoothing; sites without a head add
    their output bias. Heads that add nothing, since their output weights are zero or their gate is closed, are worth 0.
    The values of all heads sum to v(all) - v(none), within the tolerance. It costs one evaluation for each head and
    permutation: the gold standard for small models. The encoder runs again only when one of its heads leaves; its
    outputs for the whole text, and the text, stay in memory.

    Args:
        max_permutations: see `Sampling`, as for all options.
        check_every: permutations between two checks; even numbers with `antithetic`, as `max_permutations`.
        stable_correlation: Spearman correlation that is enough.
        stable_share: share of the top half in common that is enough.
        stable_checks: checks in a row that must agree.
        tolerance: of the truncation; 0 for none.
        antithetic: each permutation is followed by its reverse.
        seed: a whole number from 0, below 2^64.

    Raises:
        ValueError: an option that is not allowed.
    """

    name: ClassVar[str] = "shapley"

    def __init__(
        self,
        *,
        max_permutations: int = _DEFAULTS.max_permutations,
        check_every: int = _DEFAULTS.check_every,
        stable_correlation: float = _DEFAULTS.stable_correlation,
        stable_share: float = _DEFAULTS.stable_share,
        stable_checks: int = _DEFAULTS.stable_checks,
        tolerance: float = _DEFAULTS.tolerance,
        antithetic: bool = _DEFAULTS.antithetic,
        seed: int = _DEFAULTS.seed,
    ) -> None:
        if not isinstance(antithetic, bool):
            raise ValueError(f"criterion.antithetic: {antithetic!r}; allowed are true and false")
        self.antithetic = antithetic
        step = 2 if antithetic else 1
        self.max_permutations = _whole("max_permutations", max_permutations, step)
        self.check_every = _whole("check_every", check_every, step)
        self.stable_checks = _whole("stable_checks", stable_checks, 1)
        self.stable_correlation = _share("stable_correlation", stable_correlation, least=-1)
        self.stable_share = _share("stable_share", stable_share)
        self.tolerance = _share("tolerance", tolerance)
        check_seed("criterion.seed", seed)
        self.seed = seed

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`; the text is read once and stays in memory.

        Returns:
            the scores. Their settings hold the options, and as `estimate` what was found beside the scores:
            permutations, stable (whether the rule was met before the cap), correlation and share_in_common (at the
            last check), evaluations (different sets of heads that were measured), truncated_share, standard_errors
            (site -> head; None with a single permutation or pair), and the losses with all heads and with none.

        Raises:
            ValueError: no sentences, or a loss that is not finite.
        """
        device = model.output_weight.device
        stored = [batch.to(device) for batch in batches]
        if not sum(batch.num_sentences for batch in stored):
            raise ValueError("batches: no sentences; Shapley values are measured on at least one")
        sites = model.attention_sites()
        players = _players(sites)
        losses = _Losses(model, stored, players)
        text = {"num_sentences": sum(batch.num_sentences for batch in stored), "num_tokens": losses.num_tokens}
        options = {key: getattr(self, key) for key in vars(_DEFAULTS)}
        if not players:
            return HeadScores(_by_site(sites, [], []), self.name, {**options, **text})
        with evaluating(model):
            found = estimate_shapley_values(
                len(players),
                losses.new_game,
                Sampling(**options),
                losses.map_orders,
            )
        values = _by_site(sites, players, found.values)
        estimate = _facts(found, losses.num_measured, _by_site(sites, players, found.standard_errors))
        for name, site in sites.items():  # which names a head where the numbers overflow
            live_scores(site, [values[name].get(number, 0.0) for number in site.numbers])
        return HeadScores(values, self.name, {**options, **text, "estimate": estimate})


class _Losses:
    """The game of the heads of a model: minus the loss per token of every set of heads.

    Args:
        model: as `evaluating` makes it, when games are played.
        batches: on its device.
        heads: the players.
    """

    def __init__(self, model: Transformer, batches: list[Batch], heads: list[_Head]) -> None:
        self._model, self._batches, self._heads = model, batches, heads
        self._known: dict[Coalition, float] = {}
        self._abandoned = Event()
        self._sites = {name: site.numbers for name, site in model.attention_sites().items() if site.numbers}
        pad_id = model.config.pad_id
        self.num_tokens = sum(int((batch.target_ids[:, 1:] != pad_id).sum()) for batch in batches)

    @property
    def num_measured(self) -> int:
        """How many different sets of heads were measured."""
        return len(self._known)

    def map_orders(self, walk: Callable[[Order], Found], orders: Iterable[Order]) -> list[Found]:
        """What `walk` says of each order, two at a time on the CPU; an error in one ends the other soon."""
        each = measure_each(self._model, orders, walk, gradients=False, abandoned=self._abandoned)
        return [found for _, found in each]

    def new_game(self) -> Game:
        """v, with a place to keep the encoder's outputs while its heads stay the same."""
        memories: list[Tensor] = []
        encoded: Coalition | None = None

        def value(live: Coalition) -> float:
            nonlocal memories, encoded
            if live in self._known:
                return self._known[live]
            if self._abandoned.is_set():
                raise CancelledError
            gates = self._gates(live)
            in_encoder = tuple(
                is_live for is_live, (site, _) in zip(live, self._heads, strict=True) if site.startswith("encoder")
            )
            if in_encoder != encoded:
                memories = [self._model.encode(batch.source_ids, gates) for batch in self._batches]
                encoded = in_encoder
            pairs = zip(self._batches, memories, strict=True)
            total = sum(float(summed_loss(self._model, batch, gates, memory)) for batch, memory in pairs)
            self._known[live] = -total / self.num_tokens
            return self._known[live]

        return value

    def _gates(self, live: Coalition) -> dict[str, Tensor]:
        """Which heads are there: site -> [H]. All sites have some, so that every pass rounds in the same way."""
        device = self._model.output_weight.device
        removed = {head for head, is_live in zip(self._heads, live, strict=True) if not is_live}
        return {
            site: torch.tensor([(site, number) not in removed for number in numbers], device=device)
            for site, numbers in self._sites.items()
        }


def _players(sites: dict[str, AttentionSite]) -> list[_Head]:
    """The live heads that add something. The others are worth exactly 0, and kernels that round are not asked."""
    players = []
    for name, site in sites.items():
        live = set(site.heads())
        adds = adds_something(site).tolist()
        players += [(name, number) for number, each in zip(site.numbers, adds, strict=True) if each and number in live]
    return players


def _by_site(sites: dict[str, AttentionSite], players: list[_Head], values: list[Any]) -> dict[str, dict[int, Any]]:
    """Values in the order of the players -> site -> live head -> value; 0 for heads that do not play."""
    by_player = dict(zip(players, values, strict=True))
    return {name: {head: by_player.get((name, head), 0.0) for head in site.heads()} for name, site in sites.items()}


def _facts(found: ShapleyEstimate, num_measured: int, errors: dict[str, dict[int, Any]]) -> dict[str, Any]:
    return {
        "permutations": found.num_permutations,
        "stable": found.stable,
        "correlation": found.correlation,
        "share_in_common": found.share_in_common,
        "evaluations": num_measured,
        "truncated_share": found.truncated_share,
        "loss_of_all": -found.value_of_all,
        "loss_of_none": -found.value_of_none,
        "standard_errors": errors,
    }


def _whole(key: str, value: Any, step: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < step or value % step:
        what = "whole numbers from 1" if step == 1 else "even numbers from 2 (with antithetic: true)"
        raise ValueError(f"criterion.{key}: {value!r}; allowed are {what}")
    return value


def _share(key: str, value: Any, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise ValueError(f"criterion.{key}: {value!r}; allowed are numbers from {least} to 1")
    return value
