"""What a comparison of sizes of heads says of the claim, in sentences, with what it cannot say."""

from __future__ import annotations

from prune_lab.results.head_sizes import NUMBER, OWN, HeadSize, SizesCompared, SizeTrend
from prune_lab.results.p_values import p_text
from prune_lab.results.rank_trend import RankTrend
from prune_lab.results.significance import LEVEL

NAMES = {"encoder.self": "encoder self-attention", "decoder.self": "decoder self-attention"}
MINUS = "\N{MINUS SIGN}"


def answer(compared: SizesCompared) -> str:
    """Whether the data speak for it, in one sentence."""
    found = {kind: _stance(each) for kind, each in compared.trends.items()}
    parts = [
        f"{words} in {_listed([NAMES[kind] for kind, stance in found.items() if stance == words])}"
        for words in dict.fromkeys(found.values())
    ]
    return f"These models speak {', '.join(parts)}."


def sentences(compared: SizesCompared) -> list[str]:
    """What was compared, and what was found at each kind of site."""
    sizes, text = compared.sizes, compared.text
    split = f" {text['split']}" if text.get("split") else ""
    num_models = len(compared.models)
    found = [
        f"{num_models} unpruned models with {compared.attention} attention and {len(sizes)} sizes of heads "
        f"({sizes[0].label} to {sizes[-1].label}), on {text.get('name', 'a text')}{split}."
    ]
    return found + [_of_kind(compared, kind, each) for kind, each in compared.trends.items()]


def cautions(compared: SizesCompared) -> list[str]:
    """What so few models, trained so, cannot tell."""
    found = [_together(compared)] if _together(compared) else []
    known = [each.trend for each in compared.trends.values() if each.trend is not None]
    if known:
        least = len(known) * min(trend.least_p_value for trend in known)
        sizes, tests = f"{known[0].num_cases} sizes", f"{len(known)} kinds of site" if len(known) > 1 else "one test"
        found.append(
            f"p: two-sided, the share of the orders of the sizes with a correlation as far from 0; with {sizes} no p, "
            f"corrected after Holm for {tests}, can be below {p_text(min(1.0, least))}"
            + (", so that these models could show nothing, whatever they do." if least >= LEVEL else ".")
        )
    if any(len(size.models) > 1 for size in compared.sizes):
        found.append("The models of one size are averaged first: more seeds make a mean surer, and no more sizes.")
    else:
        found.append("One model of each size does not say how far trainings lie apart.")
    found.append(
        "Heads are weighted alike, and the more there are, the further the least and the largest lie apart by chance "
        "alone. Where a head looks says nothing of what its site does with it."
    )
    return found


def percent(share: float) -> str:
    """A share in percent, with one digit: `12.3 %`."""
    return f"{100 * share:.1f} %"


def decimal(number: float, num_digits: int = 2) -> str:
    """With a true minus sign, and never minus zero."""
    return f"{round(number, num_digits) + 0.0:.{num_digits}f}".replace("-", MINUS)


def _stance(each: SizeTrend) -> str:
    if each.trend is None or each.over != NUMBER or each.adjusted >= LEVEL:
        return "neither for nor against it"
    return "for it" if each.trend.rho < 0 else "against it"


def _of_kind(compared: SizesCompared, kind: str, each: SizeTrend) -> str:
    even = compared.even(kind, OWN)
    ends = [_mean(compared, kind, size) for size in _by_place(compared, kind, each.over)]
    text = (
        f"{NAMES[kind].capitalize()}: the mean weight on the own position is {ends[0]} and {ends[-1]}"
        + (f" ({percent(even)} with even weights)" if even is not None else "")
        + "; "
    )
    if each.trend is None:
        places = {size.num_heads(kind) if each.over == NUMBER else size.width(kind) for size in compared.sizes}
        few = len(compared.sizes) < 3 or len(places) < 2
        return f"{text}{'fewer than three sizes have no correlation' if few else 'all sizes have the same mean'}."
    num_tests = sum(other.trend is not None for other in compared.trends.values())
    return f"{text}{_correlation(each.trend, each, num_tests)}."


def _correlation(trend: RankTrend, each: SizeTrend, num_tests: int) -> str:
    text = (
        f"Spearman's correlation with the {each.over} over {trend.num_cases} sizes is {decimal(trend.rho)} "
        f"(p {p_text(trend.p_value)}"
    )
    return text + (f", corrected {p_text(each.adjusted)})" if num_tests > 1 else ")")


def _by_place(compared: SizesCompared, kind: str, over: str) -> list[HeadSize]:
    return sorted(
        compared.sizes, key=lambda size: size.num_heads(kind) if over == NUMBER else float(size.width(kind) or 0)
    )


def _mean(compared: SizesCompared, kind: str, size: HeadSize) -> str:
    found = size.mean(kind, OWN)
    assert found is not None
    spread = "" if found.std is None else f" ± {100 * found.std:.1f}"
    return f"{100 * found.mean:.1f}{spread} % with {size.label}"


def _together(compared: SizesCompared) -> str:
    """How numbers of heads and widths go together; empty where widths are not known, or do not differ."""
    totals: dict[str, set[float]] = {}
    for kind, each in compared.trends.items():
        widths = [size.width(kind) for size in compared.sizes]
        if None in widths or each.over != NUMBER or len(set(widths)) < 2:
            continue
        totals[kind] = {size.num_heads(kind) * (size.width(kind) or 0) for size in compared.sizes}
    if not totals:
        return ""
    if all(len(found) == 1 for found in totals.values()):
        return (
            "Fewer heads are wider heads here, so that there are as many parameters: which of the two makes the "
            "difference, these models cannot tell."
        )
    return (
        "Numbers of heads and their widths both differ here, and so does the number of parameters of attention: what "
        "of these makes a difference, a correlation with one of them cannot tell."
    )


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
