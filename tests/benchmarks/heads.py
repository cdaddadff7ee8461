"""What gates, a teacher and gradient importance cost beside plain training of prune_lab, in turn, in one process.

    python tests/benchmarks/heads.py --data DIR [--size tiny] [--batches 4] [--rounds 7] [--threads 2]

DIR holds Multi30k. Ratios are times: 1.02 is 2 % slower than what it is compared with.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from functools import partial

import torch
from sizes import DROPOUT, LABEL_SMOOTHING, SIZES, parser_of, tokenizer_of, training_batches

from prune_lab.evaluation.timing import speed_ratio, time_in_turn
from prune_lab.gates.penalty import L0Penalty
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.training.distillation import Distillation
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parts import BatchParts
from prune_lab.training.schedules import constant
from prune_lab.training.settings import FitSettings
from prune_lab.training.training_pass import TrainingPass


def main() -> None:
    """Prints ratios and writes them as JSON."""
    parser = parser_of(__doc__, rounds=7, output="heads_speed.json")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    tokenizer = tokenizer_of(given.data, given.vocabulary)
    batches = training_batches(given.data, tokenizer, given.batches)
    torch.manual_seed(0)
    model = Transformer(SIZES[given.size].config(tokenizer.source_vocab_size, DROPOUT))
    settings = FitSettings(
        optimizer=partial(torch.optim.Adam, lr=1e-4, fused=True),
        schedule=constant,
        trainer={},
        label_smoothing=LABEL_SMOOTHING,
        parts=given.threads,
    )
    gated = model.copy()
    gated.add_gates("hard_concrete")
    trained = model.copy().train()
    whole = BatchLoss(trained, label_smoothing=LABEL_SMOOTHING)
    loss = BatchParts(trained, whole, given.threads) if given.threads > 1 else whole

    def without_optimiser() -> None:
        for batch in batches:
            trained.zero_grad()
            loss(batch)[0].backward()

    taught = replace(settings, distillation=Distillation(weight=0.5))
    calls = {
        "training": TrainingPass(model, batches, settings),
        "training with gates": TrainingPass(gated, batches, replace(settings), penalty=L0Penalty(weight=0.01)),
        "training with a teacher": TrainingPass(model, batches, taught, teacher=model),
        "training pass without the optimiser": without_optimiser,
        "gradient importance": lambda: score_heads(model, batches, criterion="gradient"),
    }
    seconds = dict(zip(calls, time_in_turn(list(calls.values()), warm_up=1, repeats=given.rounds), strict=True))
    pairs = {
        "gates": ("training", "training with gates"),
        "teacher": ("training", "training with a teacher"),
        "importance": ("training pass without the optimiser", "gradient importance"),
    }
    ratios = {name: speed_ratio(seconds[base], seconds[other]) for name, (base, other) in pairs.items()}
    for name, taken in seconds.items():
        print(f"{name:36} {statistics.median(taken):.3f} s ({min(taken):.3f} to {max(taken):.3f})")
    for name, (base, other) in pairs.items():
        ratio = ratios[name]
        print(f"{other} takes x{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}) of {base}")
    given.output.write_text(json.dumps({"seconds": seconds, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
