"""The stages of a study: the base, the base that goes on, and the points of its methods.

Every stage works in a directory of its own and leaves a record and an export there; a stage whose record is complete is
not done again. What is evaluated is always the model loaded back from its export.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.evaluation.evaluate import record_export
from prune_lab.gates.penalty import Penalty
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.families import UNPRUNED
from prune_lab.results.record import Record
from prune_lab.results.single_heads import questions_of
from prune_lab.study.control_points import ControlPoints
from prune_lab.study.criterion_points import CriterionPoints
from prune_lab.study.gated_points import GATED, GatedPoints
from prune_lab.study.outcome import (
    EXPORT,
    Made,
    compared_again,
    complete_record,
    result_line,
    training_facts,
    translations_of,
    updates_in_all,
    with_comet,
)
from prune_lab.study.plan import Point
from prune_lab.study.progress import Progress, updates_by_stage
from prune_lab.study.setup import StudySetup
from prune_lab.study.single_heads import STAGE as SINGLE_HEADS
from prune_lab.training.callbacks.progress import Announcement
from prune_lab.training.distillation import Distillation
from prune_lab.training.files import DamagedFileError
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback

_NOTHING_SPENT = {"training": 0.0, "choosing": 0.0}


class Stages:
    """Does the stages of a study in its directory.

    Args:
        setup: what they share.
        directory: of the study.
    """

    def __init__(self, setup: StudySetup, directory: Path) -> None:
        self.setup = setup
        self.directory = directory
        self._makers: dict[str, Callable[[Point], Made]] = {
            "gates": GatedPoints(self).make,
            "criterion": CriterionPoints(self).make,
            "control": ControlPoints(self).make,
        }
        from_scratch = int(setup.base.trainer["max_steps"])
        base_updates = 0 if setup.trained_base is not None else from_scratch
        updates = updates_by_stage(setup.plan, base_updates, from_scratch)
        models = {}
        if setup.plan.single_heads:
            updates[SINGLE_HEADS] = 0
            models[SINGLE_HEADS] = len(questions_of(setup.model.original_heads(), setup.plan.single_heads))
        self.progress = Progress(updates, setup.in_words(), models)
        self._spent = dict(_NOTHING_SPENT)
        self._translated: dict[Path, list[str]] = {}

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

    def score_what_is_done(self) -> None:
        """Give the records of earlier runs a COMET score, where one is wanted.

        Raises:
            ValueError: the COMET model cannot be loaded.
            DamagedFileError: a stage has not left as many translations as there are sentences.
        """
        setup = self.setup
        if setup.comet is None:
            return
        for place in (self.directory / "base", self.directory / "continued", *map(self.place_of, setup.plan.points())):
            record = None
            with suppress(DamagedFileError):  # told when it is the turn of its stage
                record = complete_record(place)
            if record is not None:
                with_comet(record, place, setup.splits, "test", setup.comet)

    def base(self) -> Record:
        """Train the base model, or take the one that is given."""
        place, seeds, given = self.directory / "base", self.setup.base_seeds, self.setup.trained_base

        def make() -> Made:
            if given is not None:
                return Made(model=given, result=None, settings=updates_in_all(self.setup.trained_updates))
            result = self.fit(self.setup.build_model(seeds.model), self.setup.base, place, seeds, "base")
            return Made(model=result.model, result=result, settings={"updates": result.num_updates})

        return self._stage("base", place, seeds, make, method="base", label="base, before further training")

    def continued(self) -> Record:
        """Train the base on without pruning, for as long as methods may; those that train are compared with it."""
        place, tuning = self.directory / "continued", self.setup.plan.tuning
        seeds = self.setup.seeds_of(self.setup.plan.seeds[0])

        def make() -> Made:
            total, decay = tuning.total_updates, tuning.recovery_updates
            model, result = self.recover(self.base_model(), place, total, decay, seeds, UNPRUNED)
            settings = {**updates_in_all(self.base_updates, total), "recovery_updates": total}
            return Made(model=model, result=result, settings=settings)

        return self._stage(UNPRUNED, place, seeds, make, method=UNPRUNED, label=f"{UNPRUNED}, trained on")

    def point(self, point: Point) -> Record:
        """Make and measure one point of the curve.

        A point that trains is compared with the base trained on for as many updates, one that trains nothing with the
        base that it prunes.
        """
        method = point.method
        return self._stage(
            point.name,
            self.place_of(point),
            self.setup.seeds_of(point.seed),
            lambda: self._makers[method.source](point),
            self.directory / ("continued" if method.trains else "base"),
            method=method.name,
            label=point.label,
            gate_evaluation=method.gate_evaluation,
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
        result = self.fit(model, settings, place, seeds, label, teacher=teacher)
        return result.model, result

    def fit(
        self,
        model: Transformer,
        settings: FitSettings,
        place: Path,
        seeds: Seeds,
        label: str,
        penalty: Penalty | None = None,
        callbacks: Sequence[Callback] = (),
        teacher: Transformer | None = None,
    ) -> FitResult:
        """Train a model; see `prune_lab.training.fit.fit`."""
        result = fit(
            model,
            self.data,
            settings,
            directory=place,
            seeds=seeds,
            penalty=penalty,
            callbacks=[Announcement(self.progress.take_heading()), *callbacks, *self.setup.callbacks()],
            teacher=teacher,
            loggers=self.setup.loggers(place),
            label=label,
        )
        self.spend(training=result.seconds)
        return result

    def spend(self, *, training: float = 0.0, choosing: float = 0.0) -> None:
        """Count seconds for the stage that is being made, whichever process they passed in; see `Record.seconds`."""
        self._spent["training"] += training
        self._spent["choosing"] += choosing

    def _stage(
        self,
        name: str,
        place: Path,
        seeds: Seeds,
        make: Callable[[], Made],
        reference: Path | None = None,
        **facts: Any,
    ) -> Record:
        """Make a model unless its record is complete, export it, and measure the export.

        With the directory of an unpruned model, `reference`, it is compared with that.
        """
        baseline = None if reference is None else Record.load(reference)
        translations = None if reference is None else self._translations(reference)
        finished = complete_record(place)
        if finished is not None:
            if baseline is not None and translations is not None:
                finished = compared_again(finished, place, self.setup.splits, baseline, translations)
            self.progress.done_before(name, result_line(finished))
            return finished
        start, self._spent = time.monotonic(), dict(_NOTHING_SPENT)
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
            seeds=asdict(made.seeds or seeds),
            seconds=self._spent,
            **training_facts(made.result),
            base_hash=self.base_hash,
            device=setup.device,
            comet=setup.comet,
            speed=setup.plan.speed,
            config=setup.config,
            baseline=translations,
            baseline_name=None if baseline is None else baseline.method,
            unpruned=None if reference is None else reference / EXPORT,
            **facts,
        )
        for checkpoint in place.glob("**/*.ckpt"):
            checkpoint.unlink()
        shutil.rmtree(place / GATED, ignore_errors=True)
        self.progress.made(name, result_line(record), seconds, time.monotonic() - start - seconds)
        return record

    def _translations(self, reference: Path) -> list[str]:
        """Translations of an unpruned model that points are compared with."""
        if reference not in self._translated:
            self._translated[reference] = translations_of(reference, len(self.setup.splits.test.pairs))
        return self._translated[reference]
