"""What the clock says of models that are measured in turn: the series of a benchmark."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.evaluation.attention_time import attention_clock
from prune_lab.evaluation.batch_search import searched_at_once, source_batches
from prune_lab.evaluation.benchmark_batches import EncodedPairs, learned_limit, tightest
from prune_lab.evaluation.benchmark_kinds import KINDS
from prune_lab.evaluation.flops import count_flops
from prune_lab.evaluation.generate import MAX_SOURCE_TOKENS, Translations, translate_lines
from prune_lab.evaluation.memory import peak_memory
from prune_lab.evaluation.savings import realised_saving
from prune_lab.evaluation.timing import MIN_PAIRS, speed_ratio, time_in_turn
from prune_lab.model.transformer import Transformer

if TYPE_CHECKING:
    from prune_lab.evaluation.efficiency import EfficiencySettings


@dataclass(frozen=True, kw_only=True)
class Series:
    """One kind of speed, of all models.

    Attributes:
        what: `training`, `attention`, `encoding` or `decoding`.
        setting: batch size and beam size, where there are such.
        unit: of the speeds.
        models: for each model `median`, `low` and `high` (slowest and fastest round), and `ratio` to the first model
            (see `speed_ratio`) where there are enough rounds; `pass_flops`, the operations of one round (for attention
            those inside the blocks), but for training, and `saving` (see `realised_saving`) where there are fewer than
            in the first; for decoding also `tokens_per_second` and `target_length`; for training `parts` and
            `products`, as they were in force.
        at_once: most batches that are searched at the same time, a thread each; None where one comes after the other.
    """

    what: str
    setting: dict[str, int]
    unit: str
    models: list[dict[str, Any]]
    at_once: int | None = None


class Meter:
    """Measures models in turn.

    Args:
        models: of one tokenizer, on one device.
        pairs: text with references; the text is encoded and decoded, teacher-forced passes read both.
        batches: of the training text.
        settings: what and how often.

    Attributes:
        text: the sentences as all models read them.
        limit: most tokens on a side that all models can read, marks included; None without a limit.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        pairs: Sequence[tuple[str, str]],
        batches: Sequence[Batch],
        settings: EfficiencySettings,
    ) -> None:
        self.device = models[0].output_weight.device
        self._models, self._settings = models, settings
        self._lines = [source for source, _ in pairs]
        self.text, self.limit = EncodedPairs(tightest(models), pairs), learned_limit(tightest(models))
        self._batches = [batch.to(self.device) for batch in batches]

    def plan(self) -> list[tuple[str, Callable[[], Series]]]:
        """What there is to measure, each with its name for people."""
        settings = self._settings
        sizes = settings.batch_sizes
        plan: dict[str, list[tuple[str, Callable[[], Series]]]] = {
            "training": [("training", self._training)],
            "attention": [(f"attention blocks, batch {size}", partial(self._attention, size)) for size in sizes],
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
        flops = count_flops(model, lambda: self._logits(model))
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
        speeds = self._speeds(passes[0].num_target_tokens, self._timed(passes))
        for speed, each in zip(speeds, passes, strict=True):
            speed |= {"parts": each.parts, "products": each.products}
        return Series(what="training", setting={}, unit="target tokens/s", models=speeds)

    def _attention(self, batch_size: int) -> Series:
        """The time inside attention blocks alone, of teacher-forced passes."""
        batches = [batch.to(self.device) for batch in self.text.batches(batch_size)]

        @torch.inference_mode()
        def forward(model: Transformer) -> None:
            for batch in batches:
                model.hidden(batch.source_ids, batch.target_ids[:, :-1])

        flops = [count_flops(model, partial(forward, model)).attention for model in self._models]
        seconds: list[list[float]] = [[] for _ in self._models]
        with ExitStack() as stack:
            clocks = [stack.enter_context(attention_clock(model, self._wait)) for model in self._models]

            def timed(index: int) -> None:
                forward(self._models[index])
                seconds[index].append(clocks[index]())

            self._timed(self._each(timed))
        inside = [each[self._settings.warm_up :] for each in seconds]
        speeds = self._speeds(sum(batch.num_sentences for batch in batches), inside, flops)
        return Series(what="attention", setting={"batch_size": batch_size}, unit="sentences/s", models=speeds)

    def _encoding(self, batch_size: int) -> Series:
        @torch.inference_mode()
        def encode(index: int) -> None:
            for source_ids in self._sources(index, batch_size):
                self._models[index].encode(source_ids)

        flops = [count_flops(model, partial(encode, index)).total for index, model in enumerate(self._models)]
        speeds = self._speeds(len(self._lines), self._timed(self._each(encode)), flops)
        return Series(what="encoding", setting={"batch_size": batch_size}, unit="sentences/s", models=speeds)

    def _decoding(self, beam_size: int, batch_size: int) -> Series:
        options = dataclasses.replace(self._settings.decoding, beam_size=beam_size)
        most = MAX_SOURCE_TOKENS if self.limit is None else min(self.limit - 1, MAX_SOURCE_TOKENS)
        found: dict[int, Translations] = {}

        def translate(index: int) -> None:
            found[index] = translate_lines(
                self._models[index], self._lines, options, max_sentences=batch_size, max_source_tokens=most
            )

        def search(index: int) -> None:
            """The same searches in this thread, where operations are counted."""
            for source_ids in self._sources(index, batch_size):
                self._models[index].search(source_ids, options)

        flops = [count_flops(model, partial(search, index)).total for index, model in enumerate(self._models)]
        speeds = self._speeds(len(self._lines), self._timed(self._each(translate)), flops)
        for index, speed in enumerate(speeds):
            speed["target_length"] = sum(found[index].target_lengths) / len(self._lines)
            speed["tokens_per_second"] = speed["median"] * speed["target_length"]
        return Series(
            what="decoding",
            setting={"beam_size": beam_size, "batch_size": batch_size},
            unit="sentences/s",
            models=speeds,
            at_once=searched_at_once(self._models[0], len(self._sources(0, batch_size))),
        )

    def _sources(self, index: int, batch_size: int) -> list[Tensor]:
        """Source ids [B, S] of the batches that a model encodes and decodes."""
        return [ids for _, ids in source_batches(self._models[index], self.text.sources, batch_size)]

    def _logits(self, model: Transformer) -> None:
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

    def _speeds(
        self, amount: int, seconds: Sequence[Sequence[float]], flops: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Speeds from the seconds that an amount took each model, by round, and the operations of a round."""
        speeds: list[dict[str, Any]] = []
        for index, taken in enumerate(seconds):
            speed: dict[str, Any] = {
                "median": amount / statistics.median(taken),
                "low": amount / max(taken),
                "high": amount / min(taken),
            }
            if flops is not None:
                speed["pass_flops"] = flops[index]
            if len(taken) >= MIN_PAIRS and speeds:
                speed["ratio"] = speed_ratio(taken, seconds[0])
                saving = None if flops is None else realised_saving(flops[index], flops[0], speed["ratio"])
                if saving is not None:
                    speed["saving"] = saving
            speeds.append(speed)
        return speeds
