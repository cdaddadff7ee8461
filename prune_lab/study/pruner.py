"""One model that is pruned to several budgets: how it is scored, trained, exported and measured at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.gate_evaluation import settled
from prune_lab.pruning.rescale import Factors, Rescaled
from prune_lab.pruning.schedule import Choose, Gradual, PrunedPoint
from prune_lab.study.derived import DerivedModels
from prune_lab.study.on_text import rescale_on_text, score_on_text
from prune_lab.study.outcome import EXPORT, complete_record, updates_in_all
from prune_lab.study.prune_settings import PruneSettings
from prune_lab.study.scoring_text import ScoringText
from prune_lab.training.callbacks.gradual_masks import GradualMasks
from prune_lab.training.fit import FitResult
from prune_lab.training.schedules import later


class Pruner:
    """Scores, recovers and exports the points of one model.

    Attributes:
        scores_gates_again: whether the criterion looks at gates after each cut, so that they stay until the export.
    """

    def __init__(self, model: Transformer, settings: PruneSettings, directory: Path, *, by_keep_rule: bool) -> None:
        self._model, self._settings, self._directory = model, settings, directory
        self._models = DerivedModels(model, settings, directory)
        self.scores_gates_again = settings.criterion.needs_gates and settings.schedule.rescores and not by_keep_rule
        learn = any(isinstance(gate, HardConcreteGate) for gate in model.gates().values())
        self._evaluation = settings.gate_evaluation if learn and settings.gate_evaluation != "keep" else None
        gates = None if model.config.gates is None else str(model.config.gates["name"])
        # What the keep rule leaves is of the same method as the gated model itself.
        self._name = gates if by_keep_rule and gates is not None else settings.criterion.name
        self._recovered, self._seconds = 0, 0.0
        self._choosing: dict[str, float] = {}
        self._text = ScoringText(
            splits=settings.splits,
            encoded=lambda: self._models.training_text,
            num_sentences=settings.scoring_sentences,
            max_tokens=settings.max_tokens,
            seed=settings.seeds.data,
            device=settings.device,
        )
        self._result: FitResult | None = None
        self._masked: FitResult | None = None

    def score(self, model: Transformer) -> HeadScores:
        """Score on training text and keep the scores as a file, or take those that it holds."""
        settings = self._settings
        num_heads = sum(map(len, model.heads().values()))
        scores, seconds = score_on_text(
            model,
            settings.criterion.with_scoring(
                tokenize=settings.splits.score_tokenize, lowercase=settings.splits.lowercase
            ),
            self._text,
            file=lambda _: self._directory / f"scores-{num_heads}-heads.json",
            label=settings.criterion.name,
        )
        if not settings.schedule.during_training:  # whose time they are part of
            self._spend("scores", seconds)
        return scores

    def rescale(self, model: Transformer, before: Factors) -> Rescaled:
        """Bring the sites of a cut model closest to those of the model that is pruned."""
        found, seconds = rescale_on_text(model, before, self._model, self._text)
        self._spend("factors", seconds)
        return found

    def _spend(self, what: str, seconds: float) -> None:
        """Count what choosing heads took for the next point, also for those before it where it goes on from them."""
        before = self._choosing.get(what, 0.0) if self._settings.schedule.rescores else 0.0
        self._choosing[what] = before + seconds

    def train_masking(self, model: Transformer, budgets: Sequence[int], choose: Choose) -> Transformer:
        """Train the model while heads go, at the learning rates of the beginning of the recovery."""
        recovery, place = self._settings.recovery, self.place_of(budgets[-1])
        assert recovery is not None
        num_updates = self._masking_updates
        masks = GradualMasks(budgets=budgets, choose=choose, num_updates=num_updates, label=place.name)
        trainer = {**recovery.trainer, "max_steps": num_updates}
        settings = replace(recovery, trainer=trainer, keep="last", patience=None, distillation=None)
        self._masked = self._models.fit(model, settings, place / "masking", [masks])
        return self._masked.model

    def recover(self, model: Transformer) -> Transformer:
        """Train a cut model."""
        settings, recovery = self._settings, self._settings.recovery
        assert recovery is not None
        place, masked = self.place_of(sum(map(len, model.heads().values()))), self._masked
        if masked is not None:
            trainer = {**recovery.trainer, "max_steps": recovery.trainer["max_steps"] - masked.num_updates}
            recovery = replace(recovery, trainer=trainer, schedule=later(recovery.schedule, masked.num_updates))
        model = model if self.scores_gates_again else settled(model, settings.gate_evaluation)
        self._result = self._models.fit(model, recovery, place)
        before = (self._recovered, self._seconds) if settings.schedule.rescores else (0, 0.0)
        self._recovered, self._seconds = before[0] + self._result.num_updates, before[1] + self._result.seconds
        if masked is not None:
            self._seconds += masked.seconds
        return self._result.model

    @property
    def _masking_updates(self) -> int:
        """Updates over which heads are masked."""
        recovery, schedule = self._settings.recovery, self._settings.schedule
        assert recovery is not None and isinstance(schedule, Gradual)
        return max(1, round(schedule.share * recovery.trainer["max_steps"]))

    def export(self, point: PrunedPoint) -> None:
        """Write the export and the record of a point."""
        settings, place = self._settings, self.place_of(point.budget)
        if complete_record(place) is not None:
            return
        model = settled(point.model, settings.gate_evaluation)
        export = place / EXPORT
        model.save_pretrained(export)
        if settings.report_split is None:
            print(f"{point.budget} heads: {export}", flush=True)
        else:
            masking = self._masked.num_updates if self._masked else 0
            distillation = None if settings.recovery is None else settings.recovery.distillation
            trained = {
                **updates_in_all(settings.updates, masking + self._recovered),
                **({"masking_updates": masking} if masking else {}),
                "recovery_updates": self._recovered,
                **({} if distillation is None else distillation.facts()),
            }
            self._models.record(
                place,
                self._result,
                method=f"{self._name}+recovery" if self._result else self._name,
                label=f"{self._name}{'+recovery' if self._result else ''}, {point.budget} heads{self._as_fractions()}",
                settings={**self._criterion(), **point.settings, **trained, "budget": point.budget},
                seconds={
                    **({"training": self._seconds} if self._result else {}),
                    **({"choosing": sum(self._choosing.values())} if self._choosing else {}),
                },
                gate_evaluation=self._evaluation,
            )
            self.show(point.budget)

    def _criterion(self) -> dict[str, Any]:
        """What a point with masked training says of its criterion where that had ended before, and scored nothing."""
        return {} if self._masked is None else {"criterion": {"name": self._settings.criterion.name}}

    def score_what_is_done(self, budgets: Sequence[int]) -> None:
        """Give the records of earlier runs a COMET score, where one is wanted."""
        self._models.score_what_is_done(map(self.place_of, budgets))

    def show(self, num_heads: int) -> None:
        """Print a line about a point that is done."""
        place = self.place_of(num_heads)
        record = complete_record(place)
        if record is not None:
            print(f"{num_heads} heads: {place / EXPORT}  {record.test_set['name']} BLEU {record.bleu:.2f}", flush=True)

    def _as_fractions(self) -> str:
        return " (fractions)" if self._evaluation == "fraction" else ""

    def place_of(self, num_heads: int) -> Path:
        """The directory of a point."""
        return self._directory / f"{num_heads}-heads"
