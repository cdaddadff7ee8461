"""The stages of a study: the base, the base that goes on, gated models, and models that a criterion prunes.

Every stage works in a directory of its own and leaves a record and an export there; a stage whose record is complete is
not done again. What is evaluated is always the model loaded back from its export.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from prune_lab.evaluation.evaluate import record_export
from prune_lab.gates.penalty import L0Penalty
from prune_lab.heads import KINDS, HeadScores
from prune_lab.model.storage import CONFIG, load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.schedule import prune_to
from prune_lab.pruning.surgery import fold_fractions
from prune_lab.results.families import UNPRUNED
from prune_lab.results.record import Record
from prune_lab.study.criterion_points import CriterionPoints
from prune_lab.study.outcome import (
    EXPORT,
    Made,
    complete_record,
    result_line,
    training_facts,
    translations_of,
    updates_in_all,
)
from prune_lab.study.plan import Point
from prune_lab.study.progress import Progress, updates_by_stage
from prune_lab.study.setup import StudySetup
from prune_lab.training.callbacks.progress import Announcement
from prune_lab.training.distillation import Distillation
from prune_lab.training.files import DamagedFileError
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit
from prune_lab.training.parameters import PARTS, freeze

GATED = "gated"


class Stages:
    """Does the stages of a study in its directory.

    Args:
        setup: what they share.
        directory: of the study.
    """

    def __init__(self, setup: StudySetup, directory: Path) -> None:
        self.setup = setup
        self.directory = directory
        self._criterion_points = CriterionPoints(self)
        base_updates = 0 if setup.trained_base is not None else int(setup.base.trainer["max_steps"])
        self.progress = Progress(updates_by_stage(setup.plan, base_updates), setup.in_words())

    @cached_property
    def data(self) -> TrainingData:
        """Encoded training text; read when something is trained or scored."""
        return self.setup.training_data()

    @cached_property
    def base_hash(self) -> str:
        """Hash of the weights of the base model."""
        return weights_hash(self.base_model())

    @cached_property
    def base_updates(self) -> int | None:
        """Updates of the base model; None where that is not known."""
        return Record.load(self.directory / "base").settings.get("updates")

    def base_model(self) -> Transformer:
        """The base model, loaded from its export."""
        try:
            return load_export(self.directory / "base" / EXPORT)
        except (FileNotFoundError, ValueError) as error:
            raise DamagedFileError(f"{error}; bring it back, or choose another output=") from error

    def place_of(self, point: Point) -> Path:
        """The directory of a point."""
        return self.directory / "points" / point.name

    def base(self) -> Record:
        """Train the base model, or take the one that is given."""
        place, seeds, given = self.directory / "base", self.setup.base_seeds, self.setup.trained_base

        def make() -> Made:
            if given is not None:
                return Made(model=given, result=None, settings=updates_in_all(self.setup.trained_updates))
            result = self._fit(self.setup.build_model(), self.setup.base, place, seeds, "base")
            return Made(model=result.model, result=result, settings={"updates": result.num_updates})

        return self._stage("base", place, seeds, make, method="base", label="base, before further training")

    def continued(self) -> Record:
        """Train the base on without pruning, for as long as the methods may; it is what they are compared with."""
        place, tuning = self.directory / "continued", self.setup.plan.tuning
        seeds = self.setup.seeds_of(self.setup.plan.seeds[0])

        def make() -> Made:
            total, decay = tuning.total_updates, tuning.recovery_updates
            model, result = self.recover(self.base_model(), place, total, decay, seeds, UNPRUNED)
            settings = {**updates_in_all(self.base_updates, total), "recovery_updates": total}
            return Made(model=model, result=result, settings=settings)

        return self._stage(UNPRUNED, place, seeds, make, method=UNPRUNED, label=f"{UNPRUNED}, trained on")

    def point(self, point: Point) -> Record:
        """Make and measure one point of the curve."""
        make = self._criterion_points.make if point.method.gates is None else self._gated
        return self._stage(
            point.name,
            self.place_of(point),
            self.setup.seeds_of(point.seed),
            lambda: make(point),
            method=point.method.name,
            label=point.label,
            gate_evaluation=point.method.gate_evaluation,
            baseline=self._reference,
            unpruned=self.directory / "continued" / EXPORT,
        )

    def recover(
        self,
        model: Transformer,
        place: Path,
        updates: int,
        decay_updates: int,
        seeds: Seeds,
        label: str,
        distillation: Distillation | None = None,
    ) -> tuple[Transformer, FitResult | None]:
        """Train on for so many updates (0 changes nothing), with `distillation` from the base."""
        if updates == 0:
            return model, None
        settings = self.setup.tuned(updates=updates, decay_updates=decay_updates, keep="best")
        settings = replace(settings, distillation=distillation)
        teacher = None if distillation is None else self.base_model()
        result = self._fit(model, settings, place, seeds, label, teacher=teacher)
        return result.model, result

    def _gated(self, point: Point) -> Made:
        """Train gates at one penalty weight or budget, prune by the keep rule, and let the pruned model recover."""
        place, method, tuning = self.place_of(point), point.method, self.setup.plan.tuning
        seeds, as_fractions = self.setup.seeds_of(point.seed), method.gate_evaluation == "fraction"
        (pruned,) = prune_to(self._trained_gates(point), "auto", score=_no_scores, keep_gates=as_fractions)
        whole = fold_fractions(pruned.model) if as_fractions else pruned.model
        updates = tuning.recovery_updates
        model, recovered = self.recover(
            whole, place / "recovery", updates, updates, seeds, f"{point.name} recovery", method.distillation
        )
        facts = {
            "point": point.key,
            **({"budget": point.budget} if method.is_exact else {"penalty_weight": point.weight}),
            "penalty_warmup_updates": method.penalty_warmup_updates,
            "gates": method.gates,
            **updates_in_all(self.base_updates, tuning.total_updates),
            "gate_updates": tuning.updates,
            "recovery_updates": updates,
            **(method.distillation.facts() if method.distillation else {}),
        }
        return Made(model=model, result=recovered, settings={**pruned.settings, **facts})

    def _trained_gates(self, point: Point) -> Transformer:
        """The base with trained gates, of which an export is kept while the point is not done."""
        place, method, tuning = self.place_of(point), point.method, self.setup.plan.tuning
        export = place / GATED
        if (export / CONFIG).exists():
            try:
                return load_export(export)
            except (FileNotFoundError, ValueError) as error:
                # Its training left a checkpoint, from which it is made again at once.
                print(f"{point.name}: {error}; making it again", flush=True)
        assert method.gates is not None
        model, options = self.base_model(), dict(method.gates.get("options") or {})
        if method.is_exact:  # the last quarter is for the weights, with the choice made
            options = {"anneal_updates": tuning.updates * 3 // 4, **options, "keep": point.budget}
        model.add_gates(method.gates.get("name", "hard_concrete"), method.gates.get("kinds") or KINDS, options)
        if method.gates.get("alone"):
            freeze(model, PARTS)
        penalty = None
        if point.weight is not None:
            penalty = L0Penalty(weight=point.weight, warmup_updates=method.penalty_warmup_updates)
        settings = self.setup.tuned(updates=tuning.updates, decay_updates=0, keep="last")
        if method.gates.get("learning_rate") is not None:
            settings = replace(settings, gate_learning_rate=method.gates["learning_rate"])
        seeds = self.setup.seeds_of(point.seed)
        self._fit(model, settings, place / "training", seeds, point.name, penalty).model.save_pretrained(export)
        return load_export(export)

    def _fit(
        self,
        model: Transformer,
        settings: FitSettings,
        place: Path,
        seeds: Seeds,
        label: str,
        penalty: L0Penalty | None = None,
        teacher: Transformer | None = None,
    ) -> FitResult:
        return fit(
            model,
            self.data,
            settings,
            directory=place,
            seeds=seeds,
            penalty=penalty,
            teacher=teacher,
            callbacks=[Announcement(self.progress.take_heading()), *self.setup.callbacks()],
            loggers=self.setup.loggers(place),
            label=label,
        )

    def _stage(self, name: str, place: Path, seeds: Seeds, make: Callable[[], Made], **facts: Any) -> Record:
        """Make a model unless its record is complete, export it, and measure the export."""
        finished = complete_record(place)
        if finished is not None:
            self.progress.done_before(name, result_line(finished))
            return finished
        start = time.monotonic()
        made = make()
        seconds = time.monotonic() - start
        export = place / EXPORT
        made.model.save_pretrained(export)
        setup = self.setup
        record = record_export(
            export,
            place,
            corpus=setup.splits.test,
            splits=setup.splits,
            options=setup.decoding,
            seed=seeds.data,
            settings=made.settings,
            seeds=asdict(seeds),
            seconds={"training": seconds},
            **training_facts(made.result),
            base_hash=self.base_hash,
            device=setup.device,
            speed=setup.plan.speed,
            config=setup.config,
            **facts,
        )
        for checkpoint in place.glob("**/*.ckpt"):
            checkpoint.unlink()
        shutil.rmtree(place / GATED, ignore_errors=True)
        self.progress.made(name, result_line(record), seconds, time.monotonic() - start - seconds)
        return record

    @cached_property
    def _reference(self) -> list[str]:
        """Translations of the unpruned model that trained as long as the points."""
        return translations_of(self.directory / "continued", len(self.setup.splits.test.pairs))


def _no_scores(model: Transformer) -> HeadScores:
    raise RuntimeError("the keep rule needs no scores")
