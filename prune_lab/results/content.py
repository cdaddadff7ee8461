"""What `results.json` says of a panel: its curves, and what was found of each method."""

from __future__ import annotations

from typing import Any

from prune_lab.results.area import ranking_of, rankings
from prune_lab.results.curves import Panel
from prune_lab.results.intervals import interval
from prune_lab.results.margins import MARGINS, sure_answers
from prune_lab.results.significance import PointTests, fewest_heads
from prune_lab.results.summary import TOLERANCE, Answer, answers


def panel_content(panel: Panel) -> dict[str, Any]:
    """A panel as plain values.

    Returns:
        `Panel.to_dict`, with `significance` (what was corrected for), `area` (the range and the ranking) and
        `area_of_some_kinds` (those of methods that prune only some kinds of site); each point with its `significance`;
        each method with `surely_less_than` (an answer for each margin), `no_significant_loss`, `within_tolerance` and
        `area`. All of these are None, or empty, where there is nothing to say.
    """
    content = panel.to_dict()
    tests, ranked = PointTests(panel), rankings(panel)
    fewest = {answer.line: answer for answer in fewest_heads(panel, tests)}
    tolerated = {answer.line: answer for answer in answers(panel)}
    for method, line in zip(content["methods"], panel.lines, strict=True):
        for entry, point in zip(method["points"], line.points, strict=True):
            test = tests.of(point)
            entry["significance"] = None if test is None else test.to_dict()
        area = ranking_of(ranked, line.name)
        method["surely_less_than"] = [
            answer.to_dict() for margin in MARGINS for answer in sure_answers(panel, margin) if answer.line == line.name
        ]
        method["no_significant_loss"] = fewest[line.name].to_dict() if line.name in fewest else None
        method["within_tolerance"] = _tolerated(tolerated[line.name]) if line.name in tolerated else None
        method["area"] = None if area is None else area.to_dict()
    content["significance"] = tests.to_dict() if len(tests) else None
    of_kinds = {each.is_whole: each.to_dict() for each in ranked}
    content["area"], content["area_of_some_kinds"] = of_kinds.get(True), of_kinds.get(False)
    return content


def _tolerated(answer: Answer) -> dict[str, Any]:
    point = answer.point
    return {
        "tolerance": TOLERANCE,
        "reached": answer.reached,
        "point": point.key,
        "remaining_heads": point.heads,
        "num_runs": len(point.records),
        "difference": answer.difference,
        "difference_interval": interval(point.records),
    }
