"""What the operations of a model cost: FLOPs and bytes, for the source, for a given target, and for a decoding step.

Everything is by formula, and nothing is run. FLOPs are those of matrix products, multiplications and additions counted
as two, masked positions among them, as `prune_lab.evaluation.flops` counts them. Bytes are the least that these
products need: each operand is read once, each result written once, and weights once a batch; more of that is said in
`prune_lab.attention.cost`. Norms, softmax, residual sums and the embedding of tokens are left out.

Shapes: B sentences, E hypotheses a sentence, S source positions, T target positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from prune_lab.analysis.cost_grid import BYTES_PER_NUMBER
from prune_lab.attention.contract import Attention
from prune_lab.attention.cost import NOTHING, PartCost, linear_cost
from prune_lab.heads import HeadSite
from prune_lab.model.feed_forward import FeedForward
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import is_whole

PHASES = ("prefill", "forced", "step")
GROUPS = ("projections", "attention", "feed-forward", "vocabulary")


@dataclass(frozen=True, kw_only=True)
class OperationCost:
    """What one kind of operation does at one place of a model in one phase, for a batch.

    Attributes:
        phase: `prefill`, what the source needs before the first token (the encoder, and keys and values of cross
            sites); `forced`, the decoder over T given target positions at once; `step`, the decoder at the last of T
            positions with the ones before in its caches. Prefill and forced pass together are one pass of the model.
        group: `projections` (linear maps of attention blocks), `attention` (scores, weighted sums, mixing of heads),
            `feed-forward` or `vocabulary`.
        place: the site, the layer of a feed-forward block (`decoder.1`), or `output`.
        flops: of matrix products.
        weight_bytes: of parameters that are read.
        read_bytes: of hidden states, queries and the like that are read.
        written_bytes: the same, written.
        cache_read_bytes: of keys, values and what else a cache holds.
        cache_written_bytes: the same, written.
    """

    phase: str
    group: str
    place: str
    flops: int
    weight_bytes: int
    read_bytes: int
    written_bytes: int
    cache_read_bytes: int
    cache_written_bytes: int

    @property
    def bytes(self) -> int:
        """All that is read and written."""
        traffic = self.weight_bytes + self.read_bytes + self.written_bytes
        return traffic + self.cache_read_bytes + self.cache_written_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP per byte; 0 where nothing is computed."""
        return self.flops / self.bytes if self.flops else 0.0


_COUNTED = tuple(field.name for field in fields(OperationCost) if field.name not in ("phase", "group", "place"))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a model is asked to do.

    Attributes:
        batch: sentences at once, B.
        source_length: positions of each source, S; no sentence is padded. On the CPU decoding pads shorter ones to 16.
        target_length: T, begin mark included: positions of the forced pass, and where the step is.
        beam: hypotheses a sentence in a step, E. As searches here do, these share the keys of their sentence's source,
            and attend to the entries of all hypotheses, of which a mask picks their own; the first step has one.
        bytes_per_number: 1, 2 (16 bits), 4 or 8; of weights, hidden states and caches alike.

    Raises:
        ValueError: no whole number from 1, or another size of numbers.
    """

    batch: int = 1
    source_length: int = 25
    target_length: int = 25
    beam: int = 1
    bytes_per_number: int = 4

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_whole(value) or value < 1:
                raise ValueError(f"{field.name}: {value!r}; allowed are whole numbers from 1")
        if self.bytes_per_number not in BYTES_PER_NUMBER:
            allowed = ", ".join(map(str, BYTES_PER_NUMBER))
            raise ValueError(f"bytes_per_number: {self.bytes_per_number}; allowed are {allowed}")

    @property
    def num_hypotheses(self) -> int:
        """Hypotheses of a sentence in the step: all start from one."""
        return self.beam if self.target_length > 1 else 1

    @property
    def num_entries(self) -> int:
        """Entries in the cache of a self site once the step has added its own."""
        return 1 + self.beam * (self.target_length - 1)


def operations(model: Transformer, workload: Workload) -> list[OperationCost]:
    """The operations of all phases, in the order in which data passes them; masked heads count, as they are computed.

    A site that has lost its heads is there with no FLOPs, as it still adds its bias.

    Args:
        model: may be without numbers, see `prune_lab.model.fitting.hollow_model`.
        workload: see there.
    """
    return [
        _operation(phase, group, place, cost, workload)
        for phase in PHASES
        for group, place, cost in _costs(model, phase, workload)
        if cost != NOTHING
    ]


def total_cost(costs: Iterable[OperationCost], place: str = "all") -> OperationCost:
    """The sum of costs, with the phase and the group that they have in common, else `all`.

    Raises:
        ValueError: no costs.
    """
    costs = list(costs)
    if not costs:
        raise ValueError("costs: none; allowed are one or more")
    sums = {name: sum(getattr(each, name) for each in costs) for name in _COUNTED}
    phase, group = (
        values.pop() if len(values) == 1 else "all"
        for values in ({each.phase for each in costs}, {each.group for each in costs})
    )
    return OperationCost(phase=phase, group=group, place=place, **sums)


def cost_by_group(costs: Sequence[OperationCost]) -> list[OperationCost]:
    """The sums over all places, for each phase and group that there is."""
    return [
        total_cost(members)
        for phase in PHASES
        for group in GROUPS
        if (members := [each for each in costs if (each.phase, each.group) == (phase, group)])
    ]


def cache_bytes(model: Transformer, workload: Workload) -> int:
    """Size of the caches of a batch when T positions were decoded, the room that they keep for more left out."""
    numbers = 0
    for name, site in model.attention_sites().items():
        place = HeadSite.parse(name)
        if place.stack == "decoder":
            num_keys = workload.source_length if place.attention == "cross" else workload.num_entries
            numbers += site.attention.cost(1, num_keys, 0).cache_elements
    return workload.batch * workload.bytes_per_number * numbers


def _costs(model: Transformer, phase: str, workload: Workload) -> Iterator[tuple[str, str, PartCost]]:
    """Group, place and cost for one sentence."""
    source, target = workload.source_length, workload.target_length
    num_rows = {"prefill": source, "forced": target, "step": workload.num_hypotheses}[phase]
    stack = "encoder" if phase == "prefill" else "decoder"
    # Queries, keys and new keys; those of the source were made when it was read.
    passes = {
        "prefill": {"self": (source, source, source)},
        "forced": {"self": (target, target, target), "cross": (target, source, 0)},
        "step": {"self": (num_rows, workload.num_entries, num_rows), "cross": (num_rows, source, 0)},
    }[phase]
    sites = model.attention_sites()
    for number, layer in enumerate(getattr(model, stack).layers):
        for attention, sizes in passes.items():
            place = f"{stack}.{number}.{attention}"
            cost = sites[place].attention.cost(*sizes)
            yield "projections", place, cost.projections
            yield "attention", place, cost.products
        yield "feed-forward", f"{stack}.{number}", _feed_forward(layer.feed_forward, num_rows)
    if phase != "prefill":
        yield "vocabulary", "output", linear_cost(num_rows, model.output_weight)
        return
    for number in range(len(model.decoder.layers)):
        place = f"decoder.{number}.cross"
        yield "projections", place, _of_new_keys(sites[place].attention, source)


def _of_new_keys(block: Attention, num_keys: int) -> PartCost:
    """What making the entries of a cross site costs: what a pass does that finds none, beyond one that finds all."""
    without, found = block.cost(1, num_keys, num_keys), block.cost(1, num_keys, 0)
    return without.projections - found.projections


def _feed_forward(block: FeedForward, num_rows: int) -> PartCost:
    maps = (each for each in (block.inner, block.gate, block.outer) if each is not None)
    return sum((linear_cost(num_rows, each) for each in maps), NOTHING)


def _operation(phase: str, group: str, place: str, cost: PartCost, workload: Workload) -> OperationCost:
    number = workload.bytes_per_number
    of_batch = workload.batch * number
    # Entries of self sites are no cache where all positions are read at once.
    is_cached = phase == "step" or place.endswith("cross")
    read, written = of_batch * cost.entries_read, of_batch * cost.entries_written
    return OperationCost(
        phase=phase,
        group=group,
        place=place,
        flops=workload.batch * cost.flops,
        weight_bytes=number * cost.weights,
        read_bytes=of_batch * cost.read + (0 if is_cached else read),
        written_bytes=of_batch * cost.written + (0 if is_cached else written),
        cache_read_bytes=read if is_cached else 0,
        cache_written_bytes=written if is_cached else 0,
    )
