"""Labeled counters, gauges and histograms that cost one dict access per event and are rendered on scrape.

prometheus_client's own children take a lock and several calls per event, which slows the decision path. Call all
methods on the event loop's thread. Callers bound the label values (pool ids, engine ids, codes), which never contain
request text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

_Example = tuple[str, float, float]
"""(Decision id, value, unix seconds)."""


class _Family(Collector):
    """A metric's name, help text and labels. Values are keyed by label values in the order of the labels."""

    def __init__(self, registry: CollectorRegistry, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._help = help_text
        self._labels = tuple(labels)
        # Registering calls collect(): subclasses set up their values before they come here.
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Yield the metrics without values, for the registry."""
        return self.collect()


class CounterFamily(_Family):
    """Counters that only increase."""

    def __init__(self, registry: CollectorRegistry, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._values: dict[tuple[str, ...], float] = {}
        super().__init__(registry, name, help_text, labels)

    def inc(self, *values: str, amount: float = 1.0) -> None:
        """Add `amount` to the counter of these label values."""
        self._values[values] = self._values.get(values, 0.0) + amount

    def add(self, values: tuple[str, ...], amount: float) -> None:
        """Add `amount`, as `inc` does, with one call less."""
        counts = self._values
        counts[values] = counts[values] + amount if values in counts else amount

    def count(self, values: tuple[str, ...]) -> None:
        """Add one. It needs one call less than `inc`, for counts of every request."""
        counts = self._values
        counts[values] = counts[values] + 1.0 if values in counts else 1.0

    def value(self, *values: str) -> float:
        """Return the counter of these label values, 0 if nothing was counted."""
        return self._values.get(values, 0.0)

    @override
    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, count in sorted(self._values.items()):
            family.add_metric(values, count)
        yield family


class GaugeFamily(_Family):
    """Gauges set to a value."""

    def __init__(self, registry: CollectorRegistry, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._values: dict[tuple[str, ...], float] = {}
        super().__init__(registry, name, help_text, labels)

    def set(self, *values: str, value: float) -> None:
        """Set the gauge of these label values."""
        self._values[values] = value

    def remove(self, *values: str) -> None:
        """Remove the gauge of these label values; unknown values are ignored."""
        self._values.pop(values, None)

    @override
    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._help, labels=self._labels)
        for values, value in sorted(self._values.items()):
            family.add_metric(values, value)
        yield family


OTHER = "other"
"""Label value of names beyond a limit."""
MAX_NAMES = 200
"""Limit of pairs that a BoundedLabels keeps."""


class BoundedLabels:
    """Turns pairs of an outer and an inner name into label values. Mutable: the pairs so far.

    Beyond the limit, a new inner name becomes `other`. Names such as those of adapters come and go while a gateway
    runs, and a series is never removed.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def of(self, outer: str, inner: str) -> tuple[str, str]:
        """Return the label values of this pair."""
        pair = outer, inner
        known = self._known
        if pair in known:
            return known[pair]
        if len(known) >= self._limit:
            return outer, OTHER
        known[pair] = pair
        return pair


class HistogramFamily(_Family):
    """Histograms of seconds over fixed upper bounds. Each bucket keeps its latest exemplar."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        help_text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
    ) -> None:
        self._bounds = tuple(bounds)
        self._rows: dict[tuple[str, ...], list[float]] = {}
        """Observations per bucket, followed by the sum of their values."""
        self._exemplars: dict[tuple[str, ...], list[_Example | None]] = {}
        """Per bucket."""
        super().__init__(registry, name, help_text, labels)

    def observe(self, *values: str, value: float) -> None:
        """Count one observation under these label values."""
        self.note(values, value)

    def note(self, values: tuple[str, ...], value: float) -> None:
        """Count one observation. It needs one call less than `observe`, for timings of every request."""
        rows = self._rows
        row = rows[values] if values in rows else self._opened(values)
        # bisect_left, because a value equal to a bound belongs to that bucket (`le`).
        row[bisect_left(self._bounds, value)] += 1
        row[-1] += value

    def note_example(self, values: tuple[str, ...], value: float, decision_id: str, unix_s: float) -> None:
        """Count one observation, and keep its decision as the exemplar of its bucket."""
        rows = self._rows
        row = rows[values] if values in rows else self._opened(values)
        bucket = bisect_left(self._bounds, value)
        row[bucket] += 1
        row[-1] += value
        self._exemplars[values][bucket] = decision_id, value, unix_s

    def _opened(self, values: tuple[str, ...]) -> list[float]:
        row = self._rows[values] = [0.0] * (len(self._bounds) + 2)
        self._exemplars[values] = [None] * (len(self._bounds) + 1)
        return row

    def count(self, *values: str) -> int:
        """Return the number of observations under these label values."""
        return int(sum(self._rows.get(values, ())[:-1]))

    @override
    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        bounds = [*map(str, self._bounds), "+Inf"]
        for values, row in sorted(self._rows.items()):
            exemplars = map(_exemplar, self._exemplars[values])
            # The older text format leaves exemplars out.
            buckets: list[Any] = list(zip(bounds, accumulate(row[:-1]), exemplars, strict=True))
            family.add_metric(values, buckets, row[-1])
        yield family


def _exemplar(kept: _Example | None) -> Exemplar | None:
    return None if kept is None else Exemplar({"decision_id": kept[0]}, kept[1], kept[2])
