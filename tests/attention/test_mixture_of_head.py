"""Mixture-of-head attention against loops, its scalings, its load-balance loss, and what goes with a head.

Shapes: see `attention_loops`; F shared and R routed heads.
"""

import copy
import math

import pytest
import torch
from attention_loops import (
    KINDS,
    B,
    D,
    H,
    K,
    T,
    affine,
    assert_equals_loops,
    assert_refused,
    attended,
    close,
    gradients,
    make,
    sides,
    softmax_where,
)

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.mixture_of_head import MixtureOfHeadAttention
from prune_lab.attention.site import AttentionSite
from prune_lab.gates.fixed import FixedGate

OPTIONS = [
    {},
    {"num_shared": 0, "k": 1},
    {"num_shared": 2, "k": 1},
    {"num_shared": 2, "k": 2, "scaling": "paper"},
    {"num_shared": 1, "k": 2, "scaling": "paper", "value_head_dim": 5},
]


def softmax(logits):
    return softmax_where(logits, [True] * len(logits))


@torch.no_grad()
def zero_routers(block):
    for router in (block.shared_router, block.routed_router, block.group_router):
        router.weight.zero_()


def routing(block, options, heads, x):
    """The factor of each head that is there, for one token x, and the probabilities of the routed ones.

    [a1, a2] = softmax(W_h x); shared: a1 softmax(W_s x); routed: a2 softmax(W_r x) for the top k, 0 for the others.
    With `code`, routed factors are renormalised over the top k and times k, shared ones times their number, a times 2.
    """
    num_shared = options.get("num_shared", H // 4)
    shared = [head for head in heads if head < num_shared]
    routed = [head for head in heads if head >= num_shared]
    k = min(options.get("k", math.ceil((H - num_shared) / 2)), len(routed))
    is_code = options.get("scaling", "code") == "code"
    a1, a2 = torch.ones(2, dtype=x.dtype)
    if shared and routed:
        a1, a2 = softmax(list(block.group_router.weight @ x)) * (2 if is_code else 1)
    factors, probabilities = {}, {}
    if shared:
        of_shared = softmax([block.shared_router.weight[head] @ x for head in shared])
        for head, each in zip(shared, of_shared, strict=True):
            factors[head] = a1 * each * (len(shared) if is_code else 1)
    if routed:
        logits = {head: block.routed_router.weight[head - num_shared] @ x for head in routed}
        probabilities = dict(zip(routed, softmax(list(logits.values())), strict=True))
        top = sorted(routed, key=lambda head: -logits[head].item())[:k]
        total = sum(probabilities[head] for head in top)
        for head in routed:
            if head not in top:
                factors[head] = torch.zeros((), dtype=x.dtype)
            elif is_code:
                factors[head] = a2 * probabilities[head] / total * k
            else:
                factors[head] = a2 * probabilities[head]
    return factors, probabilities


def reference(options):
    """out = sum_h g_h head_h W_O^h with heads of multi-head attention; their weights are those of the softmax."""

    def heads_of(block, heads, queries, memory, allowed):
        width, found = len(block.value.weight) // H, {}
        factors = [routing(block, options, heads, x)[0] for x in queries]
        for head in heads:
            rows = range(head * K, (head + 1) * K)
            keys = [affine(block.key, rows, y) for y in memory]
            values = [affine(block.value, range(head * width, (head + 1) * width), y) for y in memory]
            given, weights = attended([affine(block.query, rows, x) for x in queries], keys, values, allowed)
            found[head] = [f[head] * each for f, each in zip(factors, given, strict=True)], weights
        return found

    return heads_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_loops(options, kind):
    assert_equals_loops(reference(options), "mixture_of_head", kind, options=options)


@pytest.mark.parametrize("num_shared", range(H))
def test_routers_of_zeros_with_all_heads_chosen(num_shared):
    """Every factor is 1 with `code`, whatever was removed: multi-head attention. With `paper` they sum to 1."""
    query, _, mask, _ = sides("encoder.self")
    for kept in ((0, 1, 2, 3), (1, 3), (0,), (3,)):
        multi_head = make("multi_head", "encoder.self")
        multi_head.keep_heads(kept)
        for scaling in ("code", "paper"):
            options = {"num_shared": num_shared, "k": H - num_shared, "scaling": scaling}
            block = make("mixture_of_head", "encoder.self", options=options)
            with torch.no_grad():
                for router in (block.shared_router, block.routed_router, block.group_router):
                    router.weight.zero_()
            block.keep_heads(kept)
            gates = block.route(query).gates
            shared = [head < num_shared for head in kept]
            if scaling == "code":
                close(gates, torch.ones_like(gates), f"{kept}")
                for name in ("query", "key", "value", "output"):
                    getattr(block, name).load_state_dict(getattr(multi_head, name).state_dict())
                close(block(query, query, mask).output, multi_head(query, query, mask).output, f"{kept}")
            else:
                num = {True: sum(shared), False: len(kept) - sum(shared)}
                share = 0.5 if all(num.values()) else 1.0
                expected = torch.tensor([share / num[each] for each in shared], dtype=torch.float64)
                close(gates, expected[None, :, None].expand_as(gates), f"{kept}")


def test_scaling_by_hand():
    """Two shared and two routed heads, one of these chosen, with logits whose softmax is known."""
    for scaling, shared, chosen in (("paper", 1, 0.8), ("code", 4, 2)):
        block = make("mixture_of_head", "encoder.self", options={"num_shared": 2, "k": 1, "scaling": scaling})
        with torch.no_grad():
            for router, odds in (("shared", (3, 1)), ("routed", (1, 4)), ("group", (1, 1))):
                logits = torch.tensor(odds, dtype=torch.float64).log()
                getattr(block, f"{router}_router").weight.zero_()[:, 0] = logits
        x = torch.zeros(1, 1, D, dtype=torch.float64)
        x[..., 0] = 1
        expected = [0.5 * 0.75 * shared, 0.5 * 0.25 * shared, 0, 0.5 * chosen]
        close(block.route(x).gates[0, :, 0], torch.tensor(expected, dtype=torch.float64), scaling)


# Heads that are masked or gone


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_masked_heads_leave_softmax_choice_and_multipliers(options):
    """Factors of the live heads are those of a block without the others; those of masked heads are 0."""
    whole = make("mixture_of_head", "encoder.self", options=options)
    query = sides("encoder.self")[0]
    for kept in ((0, 1, 3), (1, 2), (0, 3), (2, 3), (0,), (3,)):
        live = torch.tensor([head in kept for head in range(H)])
        found = whole.route(query, live)
        assert (found.gates[:, ~live] == 0).all()
        for row in range(B):
            for position in range(T):
                factors, probabilities = routing(whole, options, kept, query[row, position])
                for head, factor in factors.items():
                    close(found.gates[row, head, position], factor, f"{kept}, head {head}")
                num_shared = options.get("num_shared", 1)
                for head in range(num_shared, H):
                    probability = found.probabilities[row, position, head - num_shared]
                    close(probability, probabilities.get(head, torch.zeros_like(probability)), f"{kept}, head {head}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"num_shared": 0, "k": 1}, {"num_shared": 0, "k": 2}], ids=str)
@pytest.mark.parametrize("num_heads", [4, 8, 16])
def test_of_equal_heads_the_first_are_chosen_whether_others_are_masked_or_gone(num_heads, options, dtype):
    """Routers of zeros, every head taken in turn; in bfloat16 the choice alone."""
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(B, T, D, generator=generator, dtype=torch.float64).to(dtype)
    sizes = {"numbers": range(num_heads), "total_heads": num_heads}
    for is_zero in (True, False):
        whole = make("mixture_of_head", "encoder.self", options=options, **sizes).to(dtype)
        if is_zero:
            zero_routers(whole)
        num_shared, num_routed = whole.num_shared, num_heads - whole.num_shared
        k = options.get("k", (num_routed + 1) // 2)
        if is_zero:
            assert (whole.route(query).chosen == (torch.arange(num_routed) < k)).all()
        for gone in range(num_heads):
            kept = [head for head in range(num_heads) if head != gone]
            live, cut = torch.tensor([head in kept for head in range(num_heads)]), copy.deepcopy(whole)
            cut.keep_heads(kept)
            routed = torch.tensor([head - num_shared for head in kept if head >= num_shared])
            masked, removed = whole.route(query, live), cut.route(query)
            assert masked.chosen[..., routed].equal(removed.chosen), f"without {gone}"
            if dtype == torch.float64:
                output = whole(query, query, AttentionMask(), gates=live.to(dtype), live=live).output
                close(output, cut(query, query, AttentionMask()).output, f"without {gone}")


@pytest.mark.parametrize("scaling", ["code", "paper"])
@pytest.mark.parametrize(("num_shared", "k"), [(1, 3), (0, 4), (1, 2)])
def test_k_stays_valid_as_routed_heads_go(num_shared, k, scaling):
    """A token chooses k of the routed heads, or all where fewer remain."""
    options = {"num_shared": num_shared, "k": k, "scaling": scaling}
    query = sides("encoder.self")[0]
    block = make("mixture_of_head", "encoder.self", options=options)
    for kept in ((0, 1, 2, 3), (0, 1, 3), (0, 3), (0,)):
        block.keep_heads([block.numbers.index(head) for head in kept])
        found, num_routed = block.route(query), len(kept) - num_shared
        num_chosen = min(k, num_routed)
        assert found.chosen.shape == (B, T, num_routed) and (found.chosen.sum(-1) == num_chosen).all()
        assert found.gates.isfinite().all() and (found.gates[:, num_shared:].transpose(1, 2) > 0).equal(found.chosen)
        output = block.train()(query, query, AttentionMask(queries=torch.ones(B, T, dtype=torch.bool)))
        assert output.output.isfinite().all() and (output.auxiliary_loss is None) == (num_chosen == 0)


def test_a_trained_gate_multiplies_and_changes_no_choice():
    """A gate of 0 closes a head and leaves the factors of the others as they were."""
    block = make("mixture_of_head", "encoder.self")
    query, _, mask, _ = sides("encoder.self")
    gates = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    closed = block(query, query, mask, gates=gates).output
    with torch.no_grad():
        block.output.weight[:, K : 2 * K] = 0
    close(closed, block(query, query, mask).output, "gate of 0")


def test_a_site_takes_closed_heads_out_of_routing_in_evaluation_alone():
    site = AttentionSite("encoder.0.self", make("mixture_of_head", "encoder.self")).eval()
    query, _, mask, _ = sides("encoder.self")
    site.gate, factors = FixedGate(num_heads=H), torch.tensor([1.0, 0.0, 1.0, 1.0])
    site.gate.factors = factors
    block, live = site.attention, factors != 0
    removed = block(query, query, mask, gates=factors.double(), live=live).output
    assert torch.equal(site(query, query, mask).output, removed)
    multiplied = block.train()(query, query, mask, gates=factors.double()).output
    assert torch.equal(site.train()(query, query, mask).output, multiplied)
    assert (multiplied - removed).abs().max() > 1e-3


# How it starts


@pytest.mark.parametrize(("d_model", "num_heads"), [(128, 4), (512, 8), (512, 16)])
def test_factors_of_heads_that_are_on_begin_within_a_tenth_of_their_mean(d_model, num_heads):
    """On inputs of unit variance: as their standard deviation, over heads and tokens."""
    torch.manual_seed(1)
    sizes = AttentionSizes(d_model=d_model, numbers=range(num_heads), total_heads=num_heads, head_dim=8)
    gates = MixtureOfHeadAttention(sizes).route(torch.randn(1, 4000, d_model)).gates.detach()
    gates = gates[gates != 0]
    assert gates.std() < 0.1 * gates.mean() and gates.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"k": 3}, None),
        ({"k": 1}, (2 / 4) ** 0.5),
        ({"num_shared": 0, "k": 1, "scaling": "paper"}, ((0.75**2 + 3) / 4) ** 0.5),
        ({"num_shared": 2, "k": 2, "scaling": "paper"}, 0.75),
    ],
    ids=str,
)
def test_a_conversion_spreads_the_choice_over_heads_where_there_is_one(options, error):
    """Small routers then, the same each time and in each head whatever others are there; zeros where all are chosen."""
    source = make("multi_head", "encoder.self")
    block = make("mixture_of_head", "encoder.self", options=options)
    assert block.take_weights(source) == ({} if error is None else {"factor_error": pytest.approx(error, rel=1e-12)})
    assert (block.shared_router.weight == 0).all() and (block.group_router.weight == 0).all()
    rows = block.routed_router.weight
    if options["k"] == len(rows):
        assert (rows == 0).all()
        return
    tokens = torch.randn(1, 3000, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    shares = block.route(tokens).chosen.double().mean((0, 1))
    expected = options["k"] / len(rows)
    assert (shares > expected / 2).all() and (shares < 2 * expected).all()
    kept = (0, 1, 3)
    cut = make("mixture_of_head", "encoder.self", options=options, numbers=kept)
    source.keep_heads(kept)
    cut.take_weights(source)
    assert torch.equal(cut.routed_router.weight, rows[[head - block.num_shared for head in kept[block.num_shared :]]])


# Parameters


@pytest.mark.parametrize(("num_shared", "num_groups"), [(0, 0), (1, 2), (3, 2)])
def test_router_rows_by_formula(num_shared, num_groups):
    """W_s and W_r have a row for each head, also for one shared head, W_h two; a head takes its row, the last W_h."""
    options = {"num_shared": num_shared, "k": 1}
    for kept in ((0, 1, 2, 3), (0, 2, 3), (0, 3), (3,), (0,), ()):
        blocks = [make("mixture_of_head", "encoder.self", options=options), make("multi_head", "encoder.self")]
        for block in blocks:
            block.keep_heads(kept)
        shared = sum(head < num_shared for head in kept)
        rows = len(kept) + (num_groups if 0 < shared < len(kept) else 0)
        counts = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
        assert counts[0] - counts[1] == rows * D


# The load-balance loss


def balance_by_loops(block, options, heads, query, real):
    """L_b = sum_i P_i f_i over routed heads, with means over real tokens; also the sums of each head."""
    tokens = [query[row, t] for row in range(len(query)) for t in range(query.shape[1]) if real[row][t]]
    found = [routing(block, options, heads, x) for x in tokens]
    loss, chosen, probability = torch.zeros((), dtype=query.dtype), torch.zeros(H), torch.zeros(H, dtype=query.dtype)
    for head in heads:
        if head >= options.get("num_shared", 1):
            p = sum(probabilities[head] for _, probabilities in found)
            f = sum(factors[head].item() != 0 for factors, _ in found)
            loss = loss + p / len(tokens) * f / len(tokens)
            chosen[head], probability[head] = f, p
    return loss, chosen.double(), probability, len(tokens)


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (0, 2, 3), (1, 3), (2,)], ids=str)
@pytest.mark.parametrize("options", [*OPTIONS[:2], OPTIONS[3]], ids=str)
def test_load_balance_over_real_tokens(options, heads):
    whole, cut = (make("mixture_of_head", "encoder.self", options=options).train() for _ in range(2))
    cut.keep_heads(heads)
    query = sides("encoder.self")[0]
    real = [[True, True, True], [True, False, False]]
    result = cut(query, query, AttentionMask(queries=torch.tensor(real)))
    if all(head < options.get("num_shared", 1) for head in heads):
        assert result.auxiliary_loss is None
        return
    loss, chosen, probability, num_tokens = balance_by_loops(whole, options, heads, query, real)
    close(result.auxiliary_loss, 0.01 * loss, "loss")
    close(result.statistics["chosen"], chosen, "chosen")
    close(result.statistics["probability"], probability, "probability")
    close(result.statistics["tokens"], torch.full((H,), float(num_tokens), dtype=torch.float64), "tokens")
    ours = torch.autograd.grad(result.auxiliary_loss, [query, cut.routed_router.weight])
    of_query, of_router = torch.autograd.grad(0.01 * loss, [query, whole.routed_router.weight])
    close(ours[0], of_query, "gradient of the queries")
    num_shared = options.get("num_shared", 1)
    close(ours[1], of_router[[head - num_shared for head in heads if head >= num_shared]], "gradient of the router")
    assert (of_query[1, 1:] == 0).all() and (ours[0][1, 1:] == 0).all(), "padding has no part in it"


def test_padding_changes_no_load_balance():
    block = make("mixture_of_head", "encoder.self").train()
    query = sides("encoder.self")[0]
    real = torch.tensor([[True, True, True], [True, True, False]])
    expected = block(query, query, AttentionMask(queries=real))
    junk = torch.randn(B, 4, D, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) * 9
    longer = torch.cat((query, junk), dim=1)
    padding = torch.cat((real, torch.zeros(B, 4, dtype=torch.bool)), dim=1)
    found = block(longer, longer, AttentionMask(padding[:, None, None], queries=padding))
    close(found.auxiliary_loss, expected.auxiliary_loss, "loss")
    for name, values in expected.statistics.items():
        close(found.statistics[name], values, name)


def test_masked_heads_have_no_part_in_the_load_balance():
    whole, cut = (make("mixture_of_head", "encoder.self", options={"k": 3}).train() for _ in range(2))
    cut.keep_heads([0, 1, 3])
    query = sides("encoder.self")[0]
    mask = AttentionMask(queries=torch.ones(B, T, dtype=torch.bool))
    live = torch.tensor([True, True, False, True])
    masked, removed = whole(query, query, mask, gates=live.double(), live=live), cut(query, query, mask)
    close(masked.auxiliary_loss, removed.auxiliary_loss, "loss")
    for name, values in removed.statistics.items():
        close(masked.statistics[name], values, name)


def test_the_loss_is_there_in_training_alone_with_its_weight():
    query, _, mask, _ = sides("encoder.self")
    losses = {}
    for weight in (0.01, 0, 3.0):
        block = make("mixture_of_head", "encoder.self", options={"balance_weight": weight})
        assert block(query, query, mask).auxiliary_loss is None and block(query, query, mask).statistics is None
        losses[weight] = block.train()(query, query, mask).auxiliary_loss.item()
    assert losses[0] == 0 and losses[3.0] == pytest.approx(300 * losses[0.01], rel=1e-12)


def test_gradients_reach_all_routers():
    """From the output all three, every row of them; from the load balance that of the routed heads alone.

    Not so where the output cannot depend on them: on W_s of one shared head, and with `code` on W_r of one chosen head.
    """
    block = make("mixture_of_head", "encoder.self", options={"num_shared": 2, "k": 1, "scaling": "paper"}).train()
    query, _, mask, _ = sides("encoder.self")
    result = block(query, query, mask)
    routers = [block.shared_router.weight, block.routed_router.weight, block.group_router.weight]
    assert all((each.abs().amax(1) > 1e-6).all() for each in gradients(result.output, routers))
    found = torch.autograd.grad(result.auxiliary_loss, routers, allow_unused=True)
    assert found[0] is None and found[2] is None and (found[1] != 0).any()


# Bad settings


@pytest.mark.parametrize("num_shared", [4, 5, -1, 1.0, True])
def test_one_head_is_routed_at_least(num_shared):
    message = f"num_shared: {num_shared!r}; allowed are whole numbers from 0 to 3: one of the 4 heads is routed"
    assert_refused("mixture_of_head", {"num_shared": num_shared}, message)


@pytest.mark.parametrize(("num_shared", "k"), [(0, 5), (1, 4), (3, 2), (1, 0), (1, 1.0)])
def test_no_more_heads_are_chosen_than_are_routed(num_shared, k):
    message = f"k: {k!r}; allowed are whole numbers from 1 to {H - num_shared}, the routed heads"
    assert_refused("mixture_of_head", {"num_shared": num_shared, "k": k}, message)


def test_unknown_scalings_and_other_weights_are_refused():
    assert_refused("mixture_of_head", {"scaling": "none"}, "scaling: 'none'; allowed are code, paper")
    for weight in (-0.1, "1", True, math.nan):
        message = f"balance_weight: {weight!r}; allowed are numbers from 0"
        assert_refused("mixture_of_head", {"balance_weight": weight}, message)


def test_half_precision_counts_the_tokens_of_a_large_batch():
    """Sums over 3200 tokens are beyond bfloat16, and their square beyond float16."""
    sizes = AttentionSizes(d_model=8, numbers=(0, 1, 2, 3), total_heads=4, head_dim=2)
    block = MixtureOfHeadAttention(sizes, num_shared=1, k=2)
    query = torch.randn(64, 50, 8, generator=torch.Generator().manual_seed(1))
    expected = block.train()(query, query, AttentionMask())
    for dtype in (torch.float16, torch.bfloat16):
        found = block.to(dtype)(query.to(dtype), query.to(dtype), AttentionMask())
        assert found.statistics["tokens"].tolist() == [3200.0] * 4
        assert float(found.statistics["chosen"].sum()) == 6400
        assert float(found.auxiliary_loss.detach()) == pytest.approx(float(expected.auxiliary_loss.detach()), rel=0.05)
