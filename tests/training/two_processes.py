"""A run that Lightning spreads over processes by starting this file again: ``two_processes.py DIRECTORY OPTIONS``."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from conftest import build_settings, build_task
from pytorch_lightning import Callback
from torch.utils.data import DataLoader, IterableDataset

from prune_lab.data.datamodule import TranslationData, UpdateStream, Window
from prune_lab.gates.penalty import L0Penalty
from prune_lab.training.callbacks.validation import Validation
from prune_lab.training.fit import Seeds, fit
from prune_lab.training.stopping import Stopped


class Dropout(Callback):
    """Notes where the random numbers of this process stand."""

    def on_train_batch_end(self, *_) -> None:
        self.state = torch.get_rng_state()


class Terminated(Callback):
    """Sends TERM to this process alone, before the end of an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_train_batch_start(self, trainer, *_) -> None:
        if trainer.global_step + 1 == self.update:
            os.kill(os.getpid(), signal.SIGTERM)


class BothRanks(IterableDataset):
    """Windows of the batches that two processes would have in one update."""

    def __init__(self, data: TranslationData) -> None:
        self.data = data

    def __iter__(self):
        for pair in zip(*(UpdateStream(self.data.batches(rank, 2)) for rank in range(2)), strict=True):
            batches = [batch for window in pair for batch in window.batches]
            yield Window(batches=batches, num_target_tokens=sum(window.num_target_tokens for window in pair))


def main(directory: Path, options: dict) -> None:
    task, rank = build_task(), int(os.environ.get("LOCAL_RANK", 0))
    if rank:
        # Only the first process may decode; another that tried would find something else.
        Validation._measure = lambda self, module: ({"bleu": -1.0, "chrf": 0.0, "nll": 0.0, "remaining_heads": 0}, [])
    elif options.pop("falling", False):
        Validation._measure = lambda self, module: (
            {"bleu": 50.0 - module.trainer.global_step, "chrf": 0.0, "nll": 1.0, "remaining_heads": 24},
            ["a"],
        )
    options.pop("falling", None)
    if options.pop("both_ranks", False):
        TranslationData.train_dataloader = lambda self: DataLoader(BothRanks(self), batch_size=None)
    terminated = options.pop("terminated", {}).get(str(rank))
    dropout, gated, seen = options.pop("dropout", 0.0), options.pop("gated", True), Dropout()
    result = fit(
        task.model(gated=gated, dropout=dropout),
        task.data,
        build_settings(**options),
        directory=directory,
        seeds=Seeds.all(1),
        penalty=L0Penalty(weight=0.05) if gated else None,
        callbacks=[seen, *([Terminated(terminated)] if terminated else [])],
    )
    content = {"weights": result.model.state_dict(), "updates": result.num_updates, "dropout": seen.state}
    torch.save(content, directory / f"end-{rank}.pt")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except Stopped as error:
        sys.exit(error.exit_status)
