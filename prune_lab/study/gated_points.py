"""Points of a study that gates prune: gates trained on the base, the cut, and the training after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prune_lab.gates.penalty import L0Penalty, Penalty, expected_open
from prune_lab.gates.target import TargetPenalty
from prune_lab.heads import KINDS, HeadScores
from prune_lab.model.storage import CONFIG, load_export
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO
from prune_lab.pruning.criteria.gate import Gate
from prune_lab.pruning.schedule import PrunedPoint, prune_to
from prune_lab.pruning.selection import Selection, keep_rule_mask
from prune_lab.pruning.surgery import fold_fractions
from prune_lab.study.method import EXACT
from prune_lab.study.outcome import Made, updates_in_all
from prune_lab.study.plan import Point
from prune_lab.training.parameters import PARTS, freeze
from prune_lab.training.resuming import seconds_so_far

if TYPE_CHECKING:
    from prune_lab.study.stages import Stages

GATED = "gated"


class GatedPoints:
    """Trains gates on the base of a study, and prunes by them.

    Args:
        stages: of the study.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def make(self, point: Point) -> Made:
        """Train gates at one penalty weight or budget, prune by them, and let the pruned model recover."""
        stages, method = self._stages, point.method
        place, tuning = stages.place_of(point), stages.setup.plan.tuning
        gated = self._trained(point)
        pruned, facts = self._cut(gated, point)
        updates = tuning.recovery_updates
        freeze(pruned.model, (method.gates or {}).get("freeze") or ())
        seeds, label = stages.setup.seeds_of(point.seed), f"{point.name} recovery"
        model, recovered = stages.recover(
            pruned.model, place / "recovery", updates, updates, seeds, label, method.distillation
        )
        settings = {
            **pruned.settings,
            "point": point.key,
            **({"budget": point.budget} if method.is_exact else {"penalty_weight": point.weight}),
            "penalty_warmup_updates": method.penalty_warmup_updates,
            "gates": method.gates,
            **facts,
            **updates_in_all(stages.base_updates, tuning.total_updates),
            "gate_updates": tuning.updates,
            "recovery_updates": updates,
            **(method.distillation.facts() if method.distillation else {}),
        }
        return Made(model=model, result=recovered, settings=settings)

    def _cut(self, gated: Transformer, point: Point) -> tuple[PrunedPoint, dict[str, Any]]:
        """The pruned model without gates, and what records say of the gates besides."""
        if point.method.penalty != "target":
            as_fractions = point.method.gate_evaluation == "fraction"
            (pruned,) = prune_to(gated, AUTO, score=_no_scores, keep_gates=as_fractions)
            return (replace(pruned, model=fold_fractions(pruned.model)) if as_fractions else pruned), {}
        assert point.budget is not None
        by_log_a = Gate(value="log_a")
        (pruned,) = prune_to(
            gated,
            [point.budget],
            score=lambda model: by_log_a(model, ()),
            selection=point.method.selection(Selection(**self._stages.setup.plan.selection)),
            keep_gates=False,
        )
        # The penalty led an expectation to the budget, which is not how many heads the gates would keep themselves.
        expected = round(float(expected_open(gated).detach()), 2)
        facts = {
            "penalty": "target",
            "penalty_learning_rate": point.method.penalty_learning_rate or TargetPenalty(heads=0).learning_rate,
            "expected_open": expected,
            "keep_rule_heads": keep_rule_mask(gated).num_kept,
        }
        return pruned, facts

    def _trained(self, point: Point) -> Transformer:
        """The base with trained gates, of which an export is kept while the point is not done."""
        stages, method = self._stages, point.method
        place, tuning = stages.place_of(point), stages.setup.plan.tuning
        export = place / GATED
        if (export / CONFIG).exists():
            try:
                gated = load_export(export)
            except (FileNotFoundError, ValueError) as error:
                # Its training left a checkpoint, from which it is made again at once.
                print(f"{point.name}: {error}; making it again", flush=True)
            else:
                stages.spend(training=seconds_so_far(place / "training"))
                return gated
        assert method.gates is not None
        model, options = stages.base_model(), dict(method.gates.get("options") or {})
        if method.gates.get("name") == EXACT:  # the last quarter is for the weights, with the choice made
            options = {"anneal_updates": tuning.updates * 3 // 4, **options, "keep": point.budget}
        model.add_gates(method.gates.get("name", "hard_concrete"), method.gates.get("kinds") or KINDS, options)
        freeze(model, PARTS if method.gates.get("alone") else method.gates.get("freeze") or ())
        settings = stages.setup.tuned(updates=tuning.updates, decay_updates=0, keep="last")
        if method.gates.get("learning_rate") is not None:
            settings = replace(settings, gate_learning_rate=method.gates["learning_rate"])
        seeds, penalty = stages.setup.seeds_of(point.seed), _penalty(point)
        result = stages.fit(model, settings, place / "training", seeds, point.name, penalty)
        result.model.save_pretrained(export)
        return load_export(export)


def _penalty(point: Point) -> Penalty | None:
    """What closes the gates of a point; gates that keep an exact number themselves need nothing."""
    warmup_updates = point.method.penalty_warmup_updates
    if point.weight is not None:
        return L0Penalty(weight=point.weight, warmup_updates=warmup_updates)
    if point.method.penalty == "target":
        assert point.budget is not None
        rate = point.method.penalty_learning_rate
        return TargetPenalty(
            heads=point.budget, warmup_updates=warmup_updates, **({} if rate is None else {"learning_rate": rate})
        )
    return None


def _no_scores(model: Transformer) -> HeadScores:
    raise RuntimeError("the keep rule needs no scores")
