"""How tokens choose among heads while a model trains, for variants in which they do."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class RoutingStatistics:
    """Sums over the tokens of several passes, by site and head; passes in several threads may add at once."""

    def __init__(self) -> None:
        self._passes: list[Mapping[str, Mapping[str, Tensor]]] = []

    def add(self, statistics: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Add those of a pass: site -> `chosen`, `probability` and `tokens`, each a sum over tokens [total heads]."""
        self._passes.append(statistics)

    def take(self) -> dict[str, float]:
        """The figures since this was last called, of each head that is routed.

        They are the share of tokens that chose it and its mean probability, as `routing/SITE.HEAD/chosen` and
        `routing/SITE.HEAD/probability`.
        """
        passes, self._passes = self._passes, []
        sums: dict[str, dict[str, Tensor]] = {}
        for each in passes:
            for site, statistics in each.items():
                known = sums.setdefault(site, {})
                for name, values in statistics.items():
                    known[name] = known[name] + values if name in known else values
        figures = {}
        for site, known in sums.items():
            rows = zip(known["chosen"].tolist(), known["probability"].tolist(), known["tokens"].tolist(), strict=True)
            for head, (chosen, probability, tokens) in enumerate(rows):
                if tokens and probability:
                    figures[f"routing/{site}.{head}/chosen"] = chosen / tokens
                    figures[f"routing/{site}.{head}/probability"] = probability / tokens
        return figures
