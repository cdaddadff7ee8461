"""Factors on the heads that stay, so that each site gives what it gave with all of them (Kwon 2022, arXiv 2204.09656).

Nothing is trained: a least-squares problem with a number for each head is solved site by site (section 4.3).

Shapes: B sentences, T query positions, N real tokens of the query side, D model width, H heads that stay at a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.model.observation import Observation, Stream
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer

# Beyond these the solution is not trusted, as in the paper.
LARGEST_FACTOR = 10.0


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """A rescaled model.

    Attributes:
        model: the factors are in its output weights.
        factors: site -> original head number -> factor; sites that were left as they are have none.
    """

    model: Transformer
    factors: dict[str, dict[int, float]]


def rescale_heads(pruned: Transformer, unpruned: Transformer, batches: Iterable[Batch]) -> Rescaled:
    """A copy of `pruned` whose heads have the factors that bring each site closest to the unpruned model.

    In the order of the data, each site minimises over m_h the sum over real tokens of
    ||x + site(x) - (x' + b_O + sum_h m_h head_h(x') W_O^h)||^2, with x the residual stream of the unpruned model there,
    and x' that of the pruned one, whose earlier sites are rescaled already. Where that has many solutions, the one
    nearest to 1 is taken. The first site whose solution has a factor beyond 10 is left as it is, with all after it.

    Args:
        pruned: without gates; stays as it is.
        unpruned: with the same sites and width; stays as it is.
        batches: training text, kept in memory; read once for each site.

    Raises:
        ValueError: a model with gates, models that do not belong together, or no sentences.
    """
    stored = [batch for batch in batches if batch.num_sentences]
    _check(pruned, unpruned, stored)
    model, factors = pruned.copy(), {}
    with evaluation_mode(model), evaluation_mode(unpruned), torch.no_grad():
        for name, site in model.attention_sites().items():
            if not site.heads():
                continue
            found = _solve(model, unpruned, name, stored)
            if not bool((found.abs() <= LARGEST_FACTOR).all()):
                break
            weight = site.attention.head_matrices()[1]
            site.attention.fold_gates(found.to(device=weight.device, dtype=weight.dtype))
            by_number = dict(zip(site.numbers, found.tolist(), strict=True))
            factors[name] = {number: by_number[number] for number in site.heads()}
    return Rescaled(model=model, factors=factors)


def _solve(model: Transformer, unpruned: Transformer, name: str, batches: Sequence[Batch]) -> Tensor:
    """The factors of a site [H], float64, on the CPU."""
    num_heads = len(model.attention_sites()[name].numbers)
    gram = torch.zeros(num_heads, num_heads, dtype=torch.float64)
    wanted = torch.zeros(num_heads, dtype=torch.float64)
    device = model.output_weight.device
    for batch in batches:
        batch = batch.to(device)
        heads, missing = _sides(model, unpruned, name, batch)
        gram += (heads @ heads.T).cpu()
        wanted += (heads @ missing).cpu()
    # What is missing is measured with all factors at 1: the solution of smallest norm is the one nearest to 1.
    return 1 + torch.linalg.pinv(gram, hermitian=True) @ wanted


def _sides(model: Transformer, unpruned: Transformer, name: str, batch: Batch) -> tuple[Tensor, Tensor]:
    """Outputs of the heads of a site [H, N*D], and what they lack in all [N*D], float64."""
    inputs: dict[str, Any] = {}

    def note(site: AttentionSite, given: tuple[Any, ...]) -> None:
        inputs["query"], inputs["key_value"], inputs["mask"] = given[:3]

    site = model.attention_sites()[name]
    handle = site.register_forward_pre_hook(note)
    try:
        own = _stream(model, batch, name)
    finally:
        handle.remove()
    whole = _stream(unpruned, batch, name)
    ids = batch.source_ids if name.startswith("encoder") else batch.target_ids[:, 1:]
    real = ids != model.config.pad_id
    missing = (whole.around.double() + whole.added.double() - own.around.double() - own.added.double())[real]
    live = site.gates(inputs["query"].dtype)
    ones = inputs["query"].new_ones(len(site.numbers)) if live is None else live

    def output(gates: Tensor) -> Tensor:
        return site.attention(inputs["query"], inputs["key_value"], inputs["mask"], gates=gates).output.double()[real]

    nothing = output(torch.zeros_like(ones))
    heads = [output(gates) - nothing for gates in torch.diag(ones)]
    return torch.stack(heads).flatten(1), missing.flatten()


def _stream(model: Transformer, batch: Batch, name: str) -> Stream:
    seen = Observation(need_streams=True)
    model.hidden(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
    return seen.streams[name]


def _check(pruned: Transformer, unpruned: Transformer, batches: Sequence[Batch]) -> None:
    for which, model in (("pruned", pruned), ("unpruned", unpruned)):
        if model.gates():
            raise ValueError(f"{which}: a model with gates; allowed are models without, as fold_gates gives")
    if pruned.sites() != unpruned.sites() or pruned.config.d_model != unpruned.config.d_model:
        raise ValueError("pruned: has other sites or another width than the unpruned model; allowed is one cut from it")
    if not batches:
        raise ValueError("batches: no sentences; factors are found on at least one")
