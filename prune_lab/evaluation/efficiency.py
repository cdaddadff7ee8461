"""What models cost: speed of training, encoding and decoding, time in attention blocks, memory, FLOPs and size.

Models are measured in turn, so that what else the machine does is in all of them; the first of several is what the
others are compared with. Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from prune_lab.data.batching import Batch
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.evaluation.attention_time import attention_clock
from prune_lab.evaluation.batch_search import searched_at_once, source_batches
from prune_lab.evaluation.benchmark_kinds import KINDS
from prune_lab.evaluation.environment import device_name
from prune_lab.evaluation.flops import count_flops
from prune_lab.evaluation.generate import Translations, translate_lines, within_positions
from prune_lab.evaluation.memory import peak_memory
from prune_lab.evaluation.timing import MIN_PAIRS, speed_ratio, time_in_turn
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class EfficiencySettings:
    """What is measured, and how often.

    Attributes:
        kinds: what is timed, of `KINDS`.
        decoding: how to search; its beam size is replaced by each of `beam_sizes`.
        beam_sizes: of decoding, 1 for greedy search.
        batch_sizes: most sentences of a batch, for encoding and decoding.
        training: makes a pass of training updates from a model and batches, see `prune_lab.training.training_pass`;
            the keyword `parts` says over how many threads.
        about_training: how those updates are made, for the conditions.
        warm_up: rounds that are not timed.
        repeats: rounds that are.
    """

    training: Callable[..., Any]
    about_training: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = KINDS
    decoding: DecodingOptions = DEFAULT_DECODING
    beam_sizes: Sequence[int] = (1, 5)
    batch_sizes: Sequence[int] = (1, 16, 64)
    warm_up: int = 1
    repeats: int = 5


@dataclass(frozen=True, kw_only=True)
class Series:
    """One kind of speed, of all models.

    Attributes:
        what: `training`, `attention`, `encoding` or `decoding`.
        setting: batch size and beam size, where there are such.
        unit: of the speeds.
        models: for each model `median`, `low` and `high` (slowest and fastest round), and `ratio` to the first model
            (see `speed_ratio`) where there are enough rounds; for decoding also `tokens_per_second` and
            `target_length`.
    """

    what: str
    setting: dict[str, int]
    unit: str
    models: list[dict[str, Any]]


def measure_efficiency(
    models: Sequence[Transformer],
    lines: Sequence[str],
    batches: Sequence[Batch],
    settings: EfficiencySettings,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures models on one device.

    Args:
        models: of one tokenizer; left as they are.
        lines: source text to encode and decode.
        batches: for training, and for time and FLOPs of teacher-forced passes.
        settings: what and how often.
        say: is told what is measured next.

    Returns:
        `conditions` (device, type, threads, rounds, amounts), `models` (parameters, FLOPs and memory of each) and
        `series` (see `Series`).
    """
    meter = _Meter(models, lines, batches, settings)
    device, weight = meter.device, models[0].output_weight
    say("FLOPs and memory")
    costs = [meter.cost(model) for model in models]
    series = []
    for what, measure in meter.plan():
        say(what)
        series.append(dataclasses.asdict(measure()))
    conditions = {
        "device": str(device),
        "device_name": device_name(device),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "warm_up": settings.warm_up,
        "repeats": settings.repeats,
        "repeats_for_ratios": MIN_PAIRS,
        "num_lines": len(lines),
        "num_batches": len(batches),
        "num_sentences": sum(batch.num_sentences for batch in batches),
        "num_target_tokens": sum(batch.num_target_tokens for batch in batches),
        "source_length": statistics.fmean(len(ids) - 1 for ids in meter.sources),
        "searched_at_once": searched_at_once(models[0], len(lines)),
        "decoding": settings.decoding.to_record(),
        "training": dict(settings.about_training),
    }
    return {"conditions": conditions, "models": costs, "series": series}


class _Meter:
    """Measures models in turn."""

    def __init__(
        self,
        models: Sequence[Transformer],
        lines: Sequence[str],
        batches: Sequence[Batch],
        settings: EfficiencySettings,
    ) -> None:
        self.device = models[0].output_weight.device
        self._models, self._lines, self._settings = models, lines, settings
        tokenizer = models[0].tokenizer
        if tokenizer is None:
            raise ValueError("the models have no tokenizer; speed is measured on text")
        self.sources, _ = within_positions(models[0], tokenizer.encode_sources(lines))
        self._batches = [batch.to(self.device) for batch in batches]

    def plan(self) -> list[tuple[str, Callable[[], Series]]]:
        """What there is to measure, each with its name for people."""
        settings = self._settings
        sizes = settings.batch_sizes
        plan: dict[str, list[tuple[str, Callable[[], Series]]]] = {
            "training": [("training", self._training)],
            "attention": [("attention blocks", self._attention)],
            "encoding": [(f"encoding, batch {size}", partial(self._encoding, size)) for size in sizes],
            "decoding": [
                (f"decoding, beam {beam_size}, batch {size}", partial(self._decoding, beam_size, size))
                for beam_size in settings.beam_sizes
                for size in sizes
            ],
        }
        return [each for kind in KINDS if kind in settings.kinds for each in plan[kind]]

    def cost(self, model: Transformer) -> dict[str, Any]:
        """What needs no clock."""
        flops = count_flops(model, lambda: self._forward(model))
        cost: dict[str, Any] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "flops": flops.total,
            "attention_flops": flops.attention,
        }
        if "training" in self._settings.kinds:
            largest = max(self._batches, key=lambda batch: batch.source_ids.numel() + batch.target_ids.numel())
            # Parts of a batch that are computed at once take as much as the whole.
            update = self._settings.training(model, [largest], parts=1)
            update()  # the optimiser makes its state
            cost["training_memory"] = peak_memory(update, self.device)
        return cost

    def _training(self) -> Series:
        passes = [self._settings.training(model, self._batches) for model in self._models]
        seconds = self._timed(passes)
        speeds = self._speeds(passes[0].num_target_tokens, seconds)
        return Series(what="training", setting={}, unit="target tokens/s", models=speeds)

    def _attention(self) -> Series:
        """The time inside attention blocks alone, of teacher-forced passes over the batches."""
        seconds: list[list[float]] = [[] for _ in self._models]
        with ExitStack() as stack:
            clocks = [stack.enter_context(attention_clock(model, self._wait)) for model in self._models]

            def forward(index: int) -> None:
                self._forward(self._models[index])
                seconds[index].append(clocks[index]())

            self._timed(self._each(forward))
        timed = [each[self._settings.warm_up :] for each in seconds]
        return Series(what="attention", setting={}, unit="batches/s", models=self._speeds(len(self._batches), timed))

    def _encoding(self, batch_size: int) -> Series:
        @torch.inference_mode()
        def encode(index: int) -> None:
            model = self._models[index]
            for _, source_ids in source_batches(model, self.sources, batch_size):
                model.encode(source_ids)

        speeds = self._speeds(len(self._lines), self._timed(self._each(encode)))
        return Series(what="encoding", setting={"batch_size": batch_size}, unit="sentences/s", models=speeds)

    def _decoding(self, beam_size: int, batch_size: int) -> Series:
        options = dataclasses.replace(self._settings.decoding, beam_size=beam_size)
        found: dict[int, Translations] = {}

        def translate(index: int) -> None:
            found[index] = translate_lines(self._models[index], self._lines, options, max_sentences=batch_size)

        speeds = self._speeds(len(self._lines), self._timed(self._each(translate)))
        for index, speed in enumerate(speeds):
            speed["target_length"] = sum(found[index].target_lengths) / len(self._lines)
            speed["tokens_per_second"] = speed["median"] * speed["target_length"]
        setting = {"beam_size": beam_size, "batch_size": batch_size}
        return Series(what="decoding", setting=setting, unit="sentences/s", models=speeds)

    def _forward(self, model: Transformer) -> None:
        with torch.inference_mode():
            for batch in self._batches:
                model(batch.source_ids, batch.target_ids[:, :-1])

    def _each(self, function: Callable[[int], None]) -> list[Callable[[], None]]:
        return [partial(function, index) for index in range(len(self._models))]

    def _timed(self, functions: Sequence[Callable[[], Any]]) -> list[list[float]]:
        settings = self._settings
        return time_in_turn(functions, warm_up=settings.warm_up, repeats=settings.repeats, wait=self._wait)

    def _wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def _speeds(self, amount: int, seconds: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
        """Speeds from the seconds that an amount took each model, by round."""
        speeds: list[dict[str, Any]] = []
        for taken in seconds:
            speed: dict[str, Any] = {
                "median": amount / statistics.median(taken),
                "low": amount / max(taken),
                "high": amount / min(taken),
            }
            if len(taken) >= MIN_PAIRS and speeds:
                speed["ratio"] = speed_ratio(taken, seconds[0])
            speeds.append(speed)
        return speeds
