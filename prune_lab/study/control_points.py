"""Points of a study that nothing prunes: models trained from scratch with the heads that a method kept.

They tell whether a pruned model owes its quality to its heads, to the weights that it inherits, or to neither: Voita
2019 (arXiv 1905.09418, table 2), Liu 2019 (arXiv 1810.05270), and the lottery ticket (Frankle 2019, arXiv
1803.03635).
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from prune_lab.heads import HeadMask, HeadScores
from prune_lab.pruning.selection import Selection
from prune_lab.pruning.surgery import prune_heads
from prune_lab.study.outcome import Made, complete_record, updates_in_all
from prune_lab.study.plan import Point
from prune_lab.training.fit import Seeds

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer
    from prune_lab.study.stages import Stages

log = logging.getLogger(__name__)


class ControlPoints:
    """Trains models from scratch.

    Args:
        stages: of the study.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def make(self, point: Point) -> Made:
        """Train like the base, then like the base trained on, with fewer heads from the start.

        Raises:
            ValueError: the point whose heads it has is not there.
        """
        stages, setup = self._stages, self._stages.setup
        place, tuning, seeds = stages.place_of(point), setup.plan.tuning, self._seeds(point)
        model, settings = setup.build_model(seeds.model), setup.base
        pruned = prune_heads(model, self._mask(point, model))
        num_updates = int(settings.trainer["max_steps"])
        if stages.base_updates is not None and stages.base_updates != num_updates:
            log.warning(
                f"{point.name}: trains for trainer.max_steps={num_updates}, but the base was trained for "
                f"{stages.base_updates} updates"
            )
        for key, (there, here) in setup.trained_like.items():
            log.warning(f"{point.name}: trains with {key}={here}, but the base was trained with {there}")
        trained = stages.fit(pruned, settings, place / "training", seeds, point.name)
        total, decay = tuning.total_updates, tuning.recovery_updates
        model, result = stages.recover(trained.model, place / "on", total, decay, seeds, f"{point.name} on")
        facts = {
            "point": point.key,
            **({"penalty_weight": point.weight} if point.budget is None else {"budget": point.budget}),
            "control": point.method.control,
            "heads_of": point.method.heads_of,
            **updates_in_all(trained.num_updates, total),
            "recovery_updates": total,
        }
        return Made(model=model, result=result or trained, settings=facts, seeds=seeds)

    def _seeds(self, point: Point) -> Seeds:
        """The seeds of a control: those of its run, with initial weights of the base, or others than the base had."""
        setup = self._stages.setup
        seeds, initial = setup.seeds_of(point.seed), setup.initial_seed
        if point.method.control == "original":
            assert initial is not None  # the setup knows it
            return dataclasses.replace(seeds, model=initial)
        other = point.seed if initial is None or point.seed < initial else point.seed + 1
        return dataclasses.replace(seeds, model=other)

    def _mask(self, point: Point, model: Transformer) -> HeadMask:
        """The heads of the point that this is the control of, or as many, spread evenly."""
        stages = self._stages
        source = stages.setup.plan.source_of(point)
        record = complete_record(stages.place_of(source))
        if record is None:
            raise ValueError(f"{point.name}: needs the heads of {source.name}, which is not done")
        if point.method.control != "dense":
            return HeadMask({site: tuple(heads) for site, heads in record.heads.items()})
        alike = HeadScores({site: dict.fromkeys(heads, 0.0) for site, heads in model.heads().items()}, "dense")
        return Selection(scope="per_site")(alike, record.remaining_heads or 0)
