"""Training updates of prune_lab and of other toolkits, in turn: target tokens per second, and their ratios.

    python tests/benchmarks/training.py --data DIR [--size tiny] [--rounds 5] [--threads 2]

DIR holds Multi30k. The same batches, sizes and vocabulary for all; see `peers.py`. In bfloat16 the others run under
torch.autocast, and prune_lab with `training.products=bfloat16`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import peers
import torch
from in_turn import time_processes
from sizes import DROPOUT, LABEL_SMOOTHING, SIZES, parser_of, tokenizer_of, training_batches

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.evaluation.flops import count_flops
from prune_lab.evaluation.timing import speed_ratio
from prune_lab.model.transformer import Transformer
from prune_lab.training.schedules import constant
from prune_lab.training.settings import FitSettings
from prune_lab.training.training_pass import TrainingPass

# Rows of the square matrices whose products say what the machine can do; each round takes the fastest.
PRODUCTS = {"products of 1024": (1024, 60), "products of 2048": (2048, 8), "products of 4096": (4096, 1)}
UPDATES = {"joeynmt": peers.joeynmt_update, "marian": peers.marian_update, "nn.Transformer": peers.torch_update}


def build_peer(
    name: str, size: str, data: str, tokenizer: str, number: int, threads: int, autocast: bool
) -> Callable[[], Any]:
    """The updates of a toolkit, in its process."""
    torch.set_num_threads(threads)
    words = Tokenizer.load(tokenizer)
    batches = training_batches(Path(data), words, number)
    return peers.passes(UPDATES[name](SIZES[size], words.source_vocab_size), batches, autocast)


def build_products(rows: int, number: int, threads: int) -> Callable[[], Any]:
    """So many products of float32 matrices."""
    torch.set_num_threads(threads)
    matrix = torch.randn(rows, rows)

    def multiply() -> None:
        for _ in range(number):
            matrix @ matrix

    return multiply


def peaks(seconds: dict[str, list[float]]) -> list[float]:
    """GFLOP/s of matrix products in each round; takes their seconds out of those of the toolkits."""
    rates = []
    for name, (rows, number) in PRODUCTS.items():
        rates.append([number * 2 * rows**3 / taken / 1e9 for taken in seconds.pop(name)])
    return [max(of_round) for of_round in zip(*rates, strict=True)]


def build_own(
    size: str, data: str, tokenizer: str, number: int, threads: int, products: str, parts: int
) -> Callable[[], Any]:
    """Updates as `prune-lab-train` makes them."""
    torch.set_num_threads(threads)
    words = Tokenizer.load(tokenizer)
    model = Transformer(SIZES[size].config(words.source_vocab_size, DROPOUT))
    return TrainingPass(
        model,
        training_batches(Path(data), words, number),
        FitSettings(
            optimizer=partial(torch.optim.Adam, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True),
            schedule=constant,
            trainer={},
            label_smoothing=LABEL_SMOOTHING,
            products=products,
            parts=parts,
        ),
    )


def main() -> None:
    """Prints a table and writes it as JSON."""
    parser = parser_of(__doc__, rounds=5, output="training_speed.json")
    parser.add_argument("--only", nargs="*", default=None)
    given = parser.parse_args()
    words = tokenizer_of(given.data, given.vocabulary)
    stored = given.output.with_suffix(".tokenizer.json")
    words.save(stored)
    shared = {
        "size": given.size,
        "data": str(given.data),
        "tokenizer": str(stored),
        "number": given.batches,
        "threads": given.threads,
    }
    builders: dict[str, Any] = {}
    for autocast in (False, True):
        for name in UPDATES:
            kind = f"{name} bfloat16" if autocast else name
            builders[kind] = (build_peer, {"name": name, "autocast": autocast, **shared})
    for name, products in (("prune_lab", "float32"), ("prune_lab bfloat16", "bfloat16")):
        builders[name] = (build_own, {**shared, "products": products, "parts": given.threads})
    builders = {name: builder for name, builder in builders.items() if given.only is None or name in given.only}
    for name, (rows, number) in PRODUCTS.items():
        builders[name] = (build_products, {"rows": rows, "number": number, "threads": given.threads})
    seconds = time_processes(builders, warm_up=1, repeats=given.rounds)
    peak = peaks(seconds)

    batches = training_batches(given.data, words, given.batches)
    num_tokens = sum(batch.num_target_tokens for batch in batches)
    model = Transformer(SIZES[given.size].config(words.source_vocab_size, dropout=0.0)).train()

    def update() -> None:
        for batch in batches:
            model(batch.source_ids, batch.target_ids[:, :-1]).sum().backward()

    flops = count_flops(model, update).total
    print(
        f"{given.size}: {given.batches} batches, {num_tokens} target tokens, {given.threads} threads, "
        f"matrix products {statistics.median(peak):.0f} GFLOP/s ({min(peak):.0f} to {max(peak):.0f})"
    )
    results = {}
    for name, taken in seconds.items():
        median = statistics.median(taken)
        results[name] = {
            "seconds": taken,
            "tokens_per_second": num_tokens / median,
            "flops_share": statistics.median(
                flops / second / rate / 1e9 for second, rate in zip(taken, peak, strict=True)
            ),
        }
        ratios = {other: speed_ratio(taken, seconds[other]) for other in seconds if other != name}
        results[name]["ratios"] = ratios
        shown = "  ".join(f"x{ratio['median']:.2f} {other}" for other, ratio in ratios.items())
        spread = f"{num_tokens / max(taken):,.0f} to {num_tokens / min(taken):,.0f}"
        print(f"{name:20} {num_tokens / median:8,.0f} ({spread})  {100 * results[name]['flops_share']:.0f} %  {shown}")
    given.output.write_text(json.dumps({"num_tokens": num_tokens, "peak": peak, "results": results}, indent=1))


if __name__ == "__main__":
    main()
