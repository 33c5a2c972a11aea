"""Parts of each engine's time to first token: queue, transfer, prefill, over the last 1, 5 and 15 minutes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from math import log2

from gateway.contracts.cache_locality_sample import SplitMean, SplitSpan

SPANS_S = (60.0, 300.0, 900.0)
BUCKET_S = 30.0
MAX_ENGINES = 1024
"""Limit of followed engines. Further engines are not reported until one leaves."""
_PER_OCTAVE = 8
_LEAST_S = 0.001
_MAX_BINS = 200


Noted = tuple[str, float, float, float, float]
"""One request: its engine, seconds of queue, transfer and prefill, and the time of its first token (monotonic)."""
_Sums = list[float]
"""Requests, queue, transfer, prefill."""


class _Bucket:
    """Sums of half a minute by TTFT. Mutable."""

    __slots__ = ("began_s", "bins")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.bins: dict[int, _Sums] = {}


class TtftSplit:
    """Sums by engine, half minute and TTFT, so that memory does not grow with traffic.

    Mutable: the buckets.
    """

    def __init__(self) -> None:
        self._engines: dict[str, deque[_Bucket]] = {}

    def note(self, noted: Noted, weight: int = 1) -> None:
        """Count a request at its first token. It represents `weight` similar requests."""
        engine_id, queue_s, transfer_s, prefill_s, now = noted
        buckets = self._engines.get(engine_id)
        if buckets is None:
            if len(self._engines) >= MAX_ENGINES:
                return
            # One more, because the oldest bucket lies only partly within the span.
            buckets = self._engines[engine_id] = deque(maxlen=math.ceil(SPANS_S[-1] / BUCKET_S) + 1)
        if not buckets or now >= buckets[-1].began_s + BUCKET_S:
            buckets.append(_Bucket(now - now % BUCKET_S))
        bins = buckets[-1].bins
        ttft_s = queue_s + transfer_s + prefill_s
        number = 0 if ttft_s <= _LEAST_S else min(_MAX_BINS, int(log2(ttft_s / _LEAST_S) * _PER_OCTAVE))
        sums = bins.get(number)
        if sums is None:
            bins[number] = [weight, weight * queue_s, weight * transfer_s, weight * prefill_s]
            return
        sums[0] += weight
        sums[1] += weight * queue_s
        sums[2] += weight * transfer_s
        sums[3] += weight * prefill_s

    def keep_only(self, engine_ids: Iterable[str]) -> None:
        """Remove the engines that left."""
        for gone in self._engines.keys() - set(engine_ids):
            del self._engines[gone]

    def spans(self, engine_id: str, now: float) -> tuple[SplitSpan, ...]:
        """Return the engine's spans that have requests. A span can reach up to BUCKET_S further back."""
        spans = (self._span(engine_id, seconds, now - seconds) for seconds in SPANS_S)
        return tuple(span for span in spans if span is not None)

    def _span(self, engine_id: str, seconds: float, since_s: float) -> SplitSpan | None:
        bins: dict[int, _Sums] = {}
        for bucket in self._engines.get(engine_id, ()):
            if bucket.began_s + BUCKET_S > since_s:
                for number, sums in bucket.bins.items():
                    total = bins.setdefault(number, [0, 0.0, 0.0, 0.0])
                    for at, value in enumerate(sums):
                        total[at] += value
        if not bins:
            return None
        everything = [sum(sums[at] for sums in bins.values()) for at in range(4)]
        wanted, passed = 0.9 * everything[0], 0.0
        near = bins[max(bins)]
        for number in sorted(bins):
            passed += bins[number][0]
            if passed >= wanted:
                near = bins[number]
                break
        return SplitSpan(seconds, int(everything[0]), _mean(everything), _mean(near))


def _mean(sums: _Sums) -> SplitMean:
    requests, queue_s, transfer_s, prefill_s = sums
    return SplitMean(queue_s / requests, transfer_s / requests, prefill_s / requests)
