"""How sure a head is where it looks (Voita 2019, arXiv 1905.09418, section 4.1).

Shapes: B sentences of a batch, S source length, T target positions that predict a token, H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores, kind_of_site
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.by_batch import measure_batches
from prune_lab.pruning.criteria.contract import Criterion, adds_something, evaluating, live_scores


class Confidence(Criterion):
    """The mean over tokens of a head's largest attention weight, the end mark left out on both sides.

    Tokens are the source tokens at encoder sites, and the target positions that predict a token at decoder sites (the
    begin mark among them). A head that adds nothing, since its output weights are zero or its gate is closed, scores 0.
    """

    name: ClassVar[str] = "confidence"

    def __init__(self) -> None:
        """No options."""

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`.

        Raises:
            ValueError: no token to measure on.
        """
        sites = model.attention_sites()
        sums = {name: torch.zeros(len(site.numbers), dtype=torch.float64) for name, site in sites.items()}
        num_tokens = {"encoder": 0, "decoder": 0}
        num_sentences = 0
        with evaluating(model):
            measured = measure_batches(model, batches, lambda batch: _largest_weights(model, batch), gradients=False)
            for batch, (of_sites, numbers) in measured:
                for name, largest in of_sites.items():
                    sums[name] += largest
                num_sentences += batch.num_sentences
                num_tokens = {side: num_tokens[side] + number for side, number in numbers.items()}
        if not all(num_tokens.values()):
            raise ValueError("batches: no tokens beside end marks; confidence is measured on at least one on each side")
        values = {}
        for name, site in sites.items():
            means = sums[name] / num_tokens[name.partition(".")[0]]
            values[name] = live_scores(site, (means * adds_something(site)).tolist())
        text = {"num_sentences": num_sentences, **{f"num_{side}_tokens": num for side, num in num_tokens.items()}}
        return HeadScores(values, self.name, text)


def _largest_weights(model: Transformer, batch: Batch) -> tuple[dict[str, Tensor], dict[str, int]]:
    """The largest weights of each head, summed over tokens (site -> [H], float64, on the CPU), and how many tokens."""
    config, seen = model.config, Observation(need_weights=True)
    source_ids, inputs = batch.source_ids, batch.target_ids[:, :-1]
    model.hidden(source_ids, inputs, seen=seen)
    source = (source_ids != config.pad_id) & (source_ids != config.eos_id)
    # Where the next token is padding, this one is padding or the end mark.
    target = batch.target_ids[:, 1:] != config.pad_id
    sums = {}
    for name, weights in seen.weights.items():
        queries = source if name.startswith("encoder") else target
        keys = target if kind_of_site(name) == "decoder.self" else source
        largest = weights.double().masked_fill(~keys[:, None, None], 0).amax(3)
        sums[name] = (largest * queries[:, None]).sum((0, 2)).cpu()
    return sums, {"encoder": int(source.sum()), "decoder": int(target.sum())}
