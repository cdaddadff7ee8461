"""The stages of a study: the base, the base that goes on, gated models, and models cut by a criterion.

Every stage works in a directory of its own and leaves a record and an export there; a stage whose record is complete is not done again. What is
evaluated is always the model loaded back from its export.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from prune_lab.evaluation.evaluate import HYPOTHESES, record_export
from prune_lab.gates.penalty import L0Penalty
from prune_lab.heads import HeadScores
from prune_lab.model.storage import CONFIG, load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import build_criterion, score_heads
from prune_lab.pruning.schedule import Iterative, OneShot, prune_to
from prune_lab.pruning.selection import Selection
from prune_lab.results.files import write_atomically
from prune_lab.results.record import FILE_NAME, Record
from prune_lab.study.plan import Method, Point
from prune_lab.study.setup import StudySetup
from prune_lab.training.fit import FitResult, FitSettings, Seeds, fit

UNPRUNED = "unpruned"

Make = Callable[[], tuple[Transformer, FitResult | None]]


class Stages:
    """Does the stages of a study in its directory.

    Args:
        setup: what they share.
        directory: of the study.
    """

    def __init__(self, setup: StudySetup, directory: Path) -> None:
        self.setup = setup
        self.directory = directory

    @cached_property
    def data(self) -> Any:
        """Encoded training text; read when something is trained or scored."""
        return self.setup.training_data()

    @cached_property
    def base_hash(self) -> str:
        """Hash of the weights of the base model."""
        return weights_hash(self.base_model())

    def base(self) -> Record:
        """Train the base model."""
        place = self.directory / "base"

        def make() -> tuple[Transformer, FitResult | None]:
            result = self._fit(self.setup.build_model(), self.setup.base, place, self.setup.base_seeds, "base")
            return result.model, result

        settings = {"updates": self.setup.base.trainer["max_steps"]}
        return self._stage(place, self.setup.base_seeds, settings, make, method="base", label="base, not trained on")

    def continued(self) -> Record:
        """Train the base on without pruning, for as long as the methods may; it is what they are compared with."""
        place = self.directory / "continued"
        tuning, seeds = self.setup.plan.tuning, Seeds.all(self.setup.plan.seeds[0])

        def make() -> tuple[Transformer, FitResult | None]:
            return self._recover(self.base_model(), place, tuning.total_updates, tuning.recovery_updates, seeds, "unpruned")

        settings = {"updates": self.setup.base.trainer["max_steps"] + tuning.total_updates, "recovery_updates": tuning.total_updates}
        return self._stage(place, seeds, settings, make, method=UNPRUNED)

    def gated(self, point: Point) -> Record:
        """Train gates at one penalty weight, prune by the keep rule, and let the pruned model recover."""
        place, method, tuning = self.place_of(point), point.method, self.setup.plan.tuning
        assert method.gates is not None and point.weight is not None
        penalty = L0Penalty(weight=point.weight, warmup_updates=method.penalty_warmup_updates)
        seeds, gates = Seeds.all(point.seed), method.gates

        def make() -> tuple[Transformer, FitResult | None]:
            gated = place / "gated"
            if not (gated / CONFIG).exists():
                model = self.base_model()
                model.add_gates(gates.get("name", "hard_concrete"), **{key: gates[key] for key in ("kinds", "options") if key in gates})
                settings = self.setup.tuned(updates=tuning.updates, decay_updates=0, keep="last")
                self._fit(model, settings, place / "training", seeds, point.name, penalty)
                model.save_pretrained(gated)
            (pruned,) = prune_to(load_export(gated), "auto", score=_no_scores, keep_gates=False)
            return self._recover(
                pruned.model, place / "recovery", tuning.recovery_updates, tuning.recovery_updates, seeds, f"{point.name} recovery"
            )

        settings = {
            "point": point.key,
            "penalty_weight": point.weight,
            "gates": gates,
            "updates": tuning.updates,
            "recovery_updates": tuning.recovery_updates,
        }
        return self._stage(
            place, seeds, settings, make, method=method.name, gate_evaluation="round", baseline=self._reference()
        )

    def criterion(self, method: Method, seed: int) -> Iterator[tuple[Point, Record]]:
        """Score, cut at every budget, and recover where the method asks for it."""
        points = [Point(method=method, seed=seed, budget=budget) for budget in self.setup.plan.budgets_of(method)]
        missing = [point for point in points if self.done(self.place_of(point)) is None]
        if missing and method.schedule == "iterative":
            missing = points
        cuts = self._cuts(method, seed, [point.budget for point in missing if point.budget is not None]) if missing else iter(())
        for point in points:
            place = self.place_of(point)
            if point not in missing:
                record = self.done(place)
                assert record is not None  # or it would be missing
                yield point, record
                continue
            model, settings, result = next(cuts)
            settings = {**settings, "point": point.key, "budget": point.budget}
            made = (model, result)
            yield point, self._stage(
                place, Seeds.all(seed), settings, lambda made=made: made, method=method.name, baseline=self._reference()
            )

    def _cuts(self, method: Method, seed: int, budgets: list[int]) -> Iterator[tuple[Transformer, dict[str, Any], FitResult | None]]:
        tuning, seeds = self.setup.plan.tuning, Seeds.all(seed)
        options = {"seed": seed, **method.options} if method.criterion == "random" else method.options
        criterion = build_criterion(method.criterion or "", **options)
        batches = self.setup.scoring_batches(self.data.train) if criterion.needs_batches else []
        results: list[FitResult | None] = []

        def score(model: Transformer) -> HeadScores:
            start = time.monotonic()
            scores = score_heads(model, batches, criterion)
            print(f"{method.name}: scored {scores.num_heads} heads in {time.monotonic() - start:.1f} s", flush=True)
            content = {"criterion": scores.criterion, "settings": dict(scores.settings), "scores": scores.to_dict()}
            name = f"scores-{method.name}-seed{seed}-{scores.num_heads}heads.json"
            write_atomically(self.directory / "scores" / name, json.dumps(content, indent=1))
            return scores

        def recover(model: Transformer) -> Transformer:
            count = sum(map(len, model.heads().values()))
            point = Point(method=method, seed=seed, budget=count)
            place = self.place_of(point) / "recovery"
            recovered, result = self._recover(
                model, place, tuning.total_updates, tuning.recovery_updates, seeds, f"{point.name} recovery"
            )
            results.append(result)
            return recovered

        pruned = prune_to(
            self.base_model(),
            budgets,
            score=score,
            schedule=Iterative() if method.schedule == "iterative" else OneShot(),
            selection=Selection(**self.setup.plan.selection),
            recover=recover if method.recovery else None,
        )
        recovery_updates = tuning.total_updates if method.recovery else 0
        for point in pruned:
            yield point.model, {**point.settings, "recovery_updates": recovery_updates}, results[-1] if results else None

    def base_model(self) -> Transformer:
        """The base model, loaded from its export."""
        return load_export(self.directory / "base" / "export")

    def place_of(self, point: Point) -> Path:
        """The directory of a point."""
        return self.directory / "points" / point.name

    def done(self, place: Path) -> Record | None:
        """The complete record of a stage, or None when it is still to do."""
        if not (place / FILE_NAME).exists():
            return None
        record = Record.load(place)
        return record if record.complete else None

    def _recover(
        self, model: Transformer, place: Path, updates: int, decay_updates: int, seeds: Seeds, label: str
    ) -> tuple[Transformer, FitResult | None]:
        """Train on for so many updates (0 changes nothing)."""
        if updates == 0:
            return model, None
        settings = self.setup.tuned(updates=updates, decay_updates=decay_updates, keep="best")
        result = self._fit(model, settings, place, seeds, label)
        return result.model, result

    def _fit(
        self, model: Transformer, settings: FitSettings, place: Path, seeds: Seeds, label: str, penalty: L0Penalty | None = None
    ) -> FitResult:
        return fit(
            model,
            self.data,
            settings,
            directory=place,
            seeds=seeds,
            penalty=penalty,
            callbacks=self.setup.callbacks(),
            loggers=self.setup.loggers(place),
            label=label,
        )

    def _stage(self, place: Path, seeds: Seeds, settings: dict[str, Any], make: Make, **facts: Any) -> Record:
        """Make a model unless its record is complete, export it, and measure the export."""
        finished = self.done(place)
        if finished is not None:
            return finished
        start = time.monotonic()
        model, result = make()
        export = place / "export"
        model.save_pretrained(export)
        setup = self.setup
        record = record_export(
            export,
            place,
            corpus=setup.splits.test,
            splits=setup.splits,
            options=setup.decoding,
            seed=facts.pop("seed", seeds.data),
            settings=settings,
            seeds=asdict(seeds),
            seconds={"training": time.monotonic() - start},
            validation_bleu=None if result is None else result.validation_bleu,
            base_hash=self.base_hash,
            speed=setup.plan.speed,
            config=setup.config,
            **facts,
        )
        for checkpoint in place.glob("**/*.ckpt"):
            checkpoint.unlink()
        print(f"{place.name}: {record.remaining_heads} heads, {record.test_set['name']} BLEU {record.bleu:.2f}", flush=True)
        return record

    def _reference(self) -> list[str]:
        """Translations of the unpruned model that trained as long as the points."""
        text = (self.directory / "continued" / HYPOTHESES).read_text(encoding="utf-8")
        return text.removesuffix("\n").split("\n")


def _no_scores(model: Transformer) -> HeadScores:
    raise RuntimeError("the keep rule needs no scores")
