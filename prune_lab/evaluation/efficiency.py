"""What models cost: speed of training, encoding and decoding, time in attention blocks, memory, FLOPs and size.

Models are measured in turn, so that what else the machine does is in all of them; the first of several is what the
others are compared with. Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from prune_lab.data.batching import Batch
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.evaluation.benchmark_kinds import KINDS
from prune_lab.evaluation.environment import device_name, number_type
from prune_lab.evaluation.meter import Meter
from prune_lab.evaluation.timing import MIN_PAIRS
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class EfficiencySettings:
    """What is measured, and how often.

    Attributes:
        kinds: what is timed, of `KINDS`.
        decoding: how to search; its beam size is replaced by each of `beam_sizes`.
        beam_sizes: of decoding, 1 for greedy search.
        batch_sizes: most sentences of a batch, for attention blocks, encoding and decoding.
        training: makes a pass of training updates from a model and batches, see `prune_lab.training.training_pass`;
            the keyword `parts` says over how many threads.
        about_training: how those updates are made, for the conditions, as far as the pass itself does not say it.
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


def measure_efficiency(
    models: Sequence[Transformer],
    pairs: Sequence[tuple[str, str]],
    batches: Sequence[Batch],
    settings: EfficiencySettings,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures models on one device.

    Args:
        models: of one tokenizer and one type of numbers; left as they are.
        pairs: source text to encode and decode, and its references, which teacher-forced passes through attention
            blocks read as well. What is too long for the learned positions of any of the models is cut for all.
        batches: of the training text, for training and the FLOPs of a teacher-forced pass.
        settings: what and how often.
        say: is told what is measured next.

    Returns:
        `conditions` (device, type, threads, rounds, amounts; `training` is empty where that is not measured), `models`
        (parameters, FLOPs and memory of each) and `series` (see `prune_lab.evaluation.meter.Series`).

    Raises:
        ValueError: models without a tokenizer, or of several types of numbers.
    """
    types = list(dict.fromkeys(map(number_type, models)))
    if len(types) > 1:
        raise ValueError(f"the models are {' and '.join(types)}; allowed is one type for all that are compared")
    meter = Meter(models, pairs, batches, settings)
    say("FLOPs and memory")
    costs = [meter.cost(model) for model in models]
    series = []
    for what, measure in meter.plan():
        say(what)
        series.append(measure())
    # Parts and products are those that the passes had, the first of them where they differ.
    training = [
        {**settings.about_training, **{key: each.models[0][key] for key in ("products", "parts")}}
        for each in series
        if each.what == "training"
    ]
    text = meter.text
    conditions = {
        "device": str(meter.device),
        "device_name": device_name(meter.device),
        "dtype": types[0],
        "threads": torch.get_num_threads(),
        "warm_up": settings.warm_up,
        "repeats": settings.repeats,
        "repeats_for_ratios": MIN_PAIRS,
        "num_lines": len(pairs),
        "num_batches": len(batches),
        "num_sentences": sum(batch.num_sentences for batch in batches),
        "num_target_tokens": sum(batch.num_target_tokens for batch in batches),
        "source_length": statistics.fmean(len(ids) - 1 for ids in text.sources),
        "reference_length": statistics.fmean(len(ids) - 2 for ids in text.targets),
        "max_positions": meter.limit,
        "decoding": settings.decoding.to_record(),
        "training": training[0] if training else {},
    }
    return {"conditions": conditions, "models": costs, "series": [dataclasses.asdict(each) for each in series]}
