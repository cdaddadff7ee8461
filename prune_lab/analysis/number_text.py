"""Numbers as text, in one manner for the whole page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

MINUS = "\N{MINUS SIGN}"
_SPACE = "\N{NO-BREAK SPACE}"


def percent(share: float | None) -> str:
    """`83.2 %`; empty for None."""
    return "" if share is None else f"{100 * share:.1f}{_SPACE}%"


def limit(share: float) -> str:
    """A threshold as it was set: `90 %`."""
    return f"{100 * share:g}{_SPACE}%"


def points(difference: float | None) -> str:
    """A difference of shares in percentage points, always with a sign: `+38.0`; empty for None."""
    return "" if difference is None else signed(100 * difference, 1)


def mean_and_range(shares: Sequence[float]) -> str:
    """In percent, without the sign: `62.0 (21.3 to 95.0)`; the mean alone for one share, empty for none."""
    if not shares:
        return ""
    text = f"{100 * fmean(shares):.1f}"
    return text if len(shares) == 1 else f"{text} ({100 * min(shares):.1f} to {100 * max(shares):.1f})"


def signed(number: float, num_digits: int) -> str:
    """With a sign, and never minus zero."""
    return f"{round(number, num_digits) + 0.0:+.{num_digits}f}".replace("-", MINUS)


def decimal(number: float | None, num_digits: int = 2) -> str:
    """With a true minus sign; empty for None."""
    if number is None:
        return ""
    return f"{round(number, num_digits) + 0.0:.{num_digits}f}".replace("-", MINUS)


def p_equals(value: float) -> str:
    """`p = 0.083`, or `p < 0.001`, since none is zero."""
    return "p < 0.001" if value < 0.0005 else f"p = {value:.3f}"


def offset(number: int) -> str:
    """A number of positions or words, with a sign: `+1`."""
    return f"{number:+d}".replace("-", MINUS) if number else "0"


def count(number: int, noun: str) -> str:
    """`1 head`, `2,000 heads`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(parts: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
