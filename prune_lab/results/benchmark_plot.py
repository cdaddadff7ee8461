"""The chart of a benchmark: speed against remaining heads, the first model being 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from prune_lab.results.benchmark_names import number, title_of
from prune_lab.results.canvas import frame, legend, new_figure, plain_text, settings, title
from prune_lab.results.style import LIGHT, Theme

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def speed_by_heads(found: Mapping[str, Any], theme: Theme = LIGHT) -> Figure | None:
    """A line for each kind of speed, with the interval of each ratio.

    Args:
        found: see `prune_lab.results.benchmark`.
        theme: of the figure.

    Returns:
        None where no model was measured in turn with a first one of other heads.
    """
    models = found["models"]
    series = [each for each in found["series"] if any("ratio" in speed for speed in each["models"])]
    if not series or len({model["remaining_heads"] for model in models}) < 2:
        return None
    total = max(model["total_heads"] for model in models)
    with settings():
        figure = new_figure(theme, 8.0, 5.0)
        axis = figure.subplots()
        frame(axis, total, theme)
        axis.axhline(1, color=theme.text, linewidth=0.9, zorder=2)
        axis.plot(models[0]["remaining_heads"], 1, marker="*", markersize=14, color=theme.text, zorder=6)
        handles = [Line2D([], [], linestyle="none", marker="*", markersize=13, color=theme.text, label="first model")]
        for index, each in enumerate(series):
            colour = theme.methods[index % len(theme.methods)]
            points = sorted(zip(models, each["models"], strict=True), key=lambda pair: pair[0]["remaining_heads"])
            heads = [model["remaining_heads"] for model, _ in points]
            ratios = [speed.get("ratio") or {"median": 1, "low": 1, "high": 1} for _, speed in points]
            style = {"color": colour, "marker": _MARKERS[index % len(_MARKERS)], "markersize": 6}
            axis.errorbar(
                heads,
                [ratio["median"] for ratio in ratios],
                yerr=[
                    [max(0.0, ratio["median"] - ratio["low"]) for ratio in ratios],
                    [max(0.0, ratio["high"] - ratio["median"]) for ratio in ratios],
                ],
                elinewidth=1.0,
                capsize=3,
                alpha=0.85,
                **style,  # type: ignore[arg-type]
            )
            handles.append(Line2D([], [], label=plain_text(title_of(each)), **style))  # type: ignore[arg-type]
        axis.set_xlabel("remaining heads")
        axis.set_ylabel("speed, first model = 1")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x{value:.3g}"))
        conditions = found["conditions"]
        title(
            axis,
            f"{conditions['device_name']}, {conditions['dtype']}, {number(conditions['threads'], 'thread')}, "
            f"{number(conditions['repeats'], 'round')} in turn",
            theme,
            quiet=True,
        )
        legend(figure, handles, theme)
    return figure
