"""Factors on the heads that stay, so that each site gives what it gave with all of them (Kwon 2022, arXiv 2204.09656).

Nothing is trained: a least-squares problem with a number for each head is solved site by site (section 4.3).

Shapes: B sentences, T query positions, N real tokens of the query side, D model width, H heads that stay at a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.model.observation import Observation, Stream
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.batches import check_is_list, checked

# Beyond these the solution is not trusted, as in the paper.
LARGEST_FACTOR = 10.0


Factors = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """A rescaled model.

    Attributes:
        model: the factors are in its output weights.
        factors: site -> original head number -> product of this factor and those from before, for the heads that are
            there; sites without any have none.
        sites: those that were rescaled now.
    """

    model: Transformer
    factors: dict[str, dict[int, float]]
    sites: tuple[str, ...]


def rescale_heads(
    pruned: Transformer, unpruned: Transformer, batches: Iterable[Batch], before: Factors | None = None
) -> Rescaled:
    """A copy of `pruned` whose heads have the factors that bring each site closest to the unpruned model.

    In the order of the data, each site minimises over m_h the sum over real tokens of
    ||x + site(x) - (x' + b_O + sum_h m_h head_h(x') W_O^h)||^2, with x the residual stream of the unpruned model there,
    and x' that of the pruned one, whose earlier sites are rescaled already. Where that has many solutions, the one
    nearest to 1 is taken, heads that differ by rounding alone counting as alike. The first site whose solution has a
    factor beyond 10 is left as it is, with all after it. Of a model that was rescaled before, the product with the
    earlier factors counts: however many cuts there are, no head is taken further from its trained weights than by one.

    Args:
        pruned: without gates; stays as it is.
        unpruned: with the same sites and width; stays as it is.
        batches: training text, kept in memory; read once for each site.
        before: factors that earlier cuts left in the weights of `pruned`, as `Rescaled.factors`; None for none.

    Raises:
        ValueError: what is no model, or one with gates; models that do not belong together; ids that they do not have;
            or no sentences.
    """
    _check(pruned, unpruned)
    check_is_list(batches)
    stored = list(checked(batches, pruned))
    if not stored:
        raise ValueError("batches: no sentences; factors are found on at least one")
    model, heads = pruned.copy(), pruned.heads()
    factors: dict[str, dict[int, float]] = {}
    for name, earlier in (before or {}).items():
        kept = {number: earlier[number] for number in heads.get(name, ()) if number in earlier}
        factors.update({name: kept} if kept else {})
    sites: list[str] = []
    with evaluation_mode(model), evaluation_mode(unpruned), torch.no_grad():
        for name, site in model.attention_sites().items():
            if not site.heads():
                continue
            found = _solve(model, unpruned, name, stored)
            known = [factors.get(name, {}).get(number, 1.0) for number in site.numbers]
            products = found * torch.tensor(known, dtype=found.dtype)
            if not bool((products.abs() <= LARGEST_FACTOR).all()):
                break
            weight = site.attention.head_matrices()[1]
            site.attention.fold_gates(found.to(device=weight.device, dtype=weight.dtype))
            by_number = dict(zip(site.numbers, products.tolist(), strict=True))
            factors[name] = {number: by_number[number] for number in site.heads()}
            sites.append(name)
    in_order = {name: factors[name] for name in model.sites() if name in factors}
    return Rescaled(model=model, factors=in_order, sites=tuple(sites))


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
    return 1 + torch.linalg.pinv(gram, hermitian=True, rtol=_smallest_share(model.output_weight.dtype)) @ wanted


def _smallest_share(dtype: torch.dtype) -> float:
    """From which share of the largest on an eigenvalue is more than the rounding of the heads' outputs.

    They are sums of squares, so that a direction in which heads are alike keeps the square of what rounding left.
    """
    return min(1e-4, max(1e-14, (100 * torch.finfo(dtype).eps) ** 2))


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
        result = site.attention(inputs["query"], inputs["key_value"], inputs["mask"], gates=gates, live=site.head_mask)
        return result.output.double()[real]

    nothing = output(torch.zeros_like(ones))
    heads = [output(gates) - nothing for gates in torch.diag(ones)]
    return torch.stack(heads).flatten(1), missing.flatten()


def _stream(model: Transformer, batch: Batch, name: str) -> Stream:
    seen = Observation(need_streams=True)
    model.hidden(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
    return seen.streams[name]


def _check(pruned: Transformer, unpruned: Transformer) -> None:
    for which, model in (("pruned", pruned), ("unpruned", unpruned)):
        if not isinstance(getattr(model, "_orig_mod", model), Transformer):
            raise ValueError(f"{which}: a {type(model).__name__}; allowed is a Transformer of prune_lab")
        if model.gates():
            raise ValueError(f"{which}: a model with gates; allowed are models without, as fold_gates gives")
    if pruned.sites() != unpruned.sites() or pruned.config.d_model != unpruned.config.d_model:
        raise ValueError("pruned: has other sites or another width than the unpruned model; allowed is one cut from it")
    for key in ("source_vocab_size", "target_vocab_size", "pad_id"):
        ours, theirs = getattr(pruned.config, key), getattr(unpruned.config, key)
        if ours != theirs:
            raise ValueError(f"pruned: its {key} is {ours}; allowed is that of the unpruned model, {theirs}")
