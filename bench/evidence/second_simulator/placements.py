"""The placements of the second simulator: scheduling study §8, and DualMap as described there."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from bench.evidence.second_simulator.station import SLO_S, Job, Station, prefill_s

_BETA = 8.0
_NODES, _WINDOW, _LEAST_SEEN = 100, 1000, 50


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """An interpretation of what the study's text leaves open."""

    infeasible_wait: bool = True
    """Whether requests that are served last count in the wait of new requests, which overtake them."""
    infeasible_coming: bool = True
    """Whether the blocks of requests that are served last count as on their way to the engine."""
    estimates: Literal["bound", "asked"] = "bound"
    """When an order's estimates are made: once at binding, or each time that an engine asks for work."""
    ties: Literal["request", "first"] = "request"
    """Tie-break: by a hash of request and engine, or always the first engine."""
    sent: Literal["new", "all"] = "new"
    """Which sent blocks `sglang_cache_aware` counts: those not held by the engine, or all."""
    rings: int = 0
    """Seed of the positions on DualMap's hash rings."""


Placement = Callable[[Job, Sequence[Station], float], int]


def placement(name: str, reading: Reading, engines: int) -> Placement:
    """Return the rule with this name."""
    if name == "dual_map":
        return _DualMap(reading, engines)
    return {"least_cost": _least_cost, "sglang_cache_aware": _cache_aware}[name](reading)


def _tie(reading: Reading, job: Job, engine: int) -> int:
    return engine if reading.ties == "first" else _hash(f"tie {job.number} {engine}")


def _least_cost(reading: Reading) -> Placement:
    def place(job: Job, stations: Sequence[Station], now: float) -> int:
        def cost(engine: int) -> tuple[float, int]:
            station = stations[engine]
            compute_s = prefill_s(job.tokens, job.hit(station.match(job.blocks)))
            wait_s = station.wait_s(now, with_infeasible=reading.infeasible_wait)
            return wait_s + _BETA * compute_s, _tie(reading, job, engine)

        return min(range(len(stations)), key=cost)

    return place


def _cache_aware(reading: Reading) -> Placement:
    def place(job: Job, stations: Sequence[Station], now: float) -> int:
        requests = [station.in_flight for station in stations]
        # SGLang's default thresholds of an unbalanced fleet.
        if max(requests) - min(requests) > 32 and max(requests) > 1.0001 * min(requests):
            costs = requests
        else:
            held = [station.match(job.blocks) for station in stations]
            sent = [station.sent_new if reading.sent == "new" else station.sent_all for station in stations]
            costs = [-item for item in held] if job.hit(max(held)) > 0.5 * job.tokens else sent
        return min(range(len(stations)), key=lambda engine: (costs[engine], _tie(reading, job, engine)))

    return place


class _DualMap:
    """Two rings, adaptive keys, and the SLO switch. Migration, which moves only a few requests, is omitted.

    Mutable: the window of requests for counting a prefix's share.
    """

    def __init__(self, reading: Reading, engines: int) -> None:
        self._reading, self._engines = reading, engines
        self._rings = [self._ring(ring) for ring in range(2)]
        self._window: deque[tuple[int, ...]] = deque()
        self._seen: Counter[int] = Counter()

    def __call__(self, job: Job, stations: Sequence[Station], now: float) -> int:
        pair = self._pair(self._key(job))
        held = [stations[engine].match(job.blocks) for engine in pair]
        best = held.index(max(held))
        station = stations[pair[best]]
        ttft_s = station.wait_s(now, with_infeasible=True) + prefill_s(job.tokens, job.hit(held[best]))
        # Equal matches decide nothing, and past the SLO the load decides.
        if held[0] != held[1] and ttft_s <= SLO_S:
            return pair[best]
        return min(pair, key=lambda engine: (stations[engine].load(now), _tie(self._reading, job, engine)))

    def _key(self, job: Job) -> int:
        """Return the last block of the request's key, longer while its prefix has more than 2/n of the window."""
        length = 2
        enough = len(self._window) >= _LEAST_SEEN
        while enough and length < len(job.blocks) and self._share(job.blocks[length - 1]) > 2 / self._engines:
            length += 1
        self._window.append(job.blocks)
        self._seen.update(job.blocks)
        if len(self._window) > _WINDOW:
            self._seen.subtract(self._window.popleft())
        return job.blocks[min(length, len(job.blocks)) - 1]

    def _share(self, block: int) -> float:
        return self._seen[block] / len(self._window)

    def _ring(self, ring: int) -> list[tuple[int, int]]:
        seed = f"{self._reading.rings} {ring}"
        return sorted(
            (_hash(f"node {seed} {engine} {node}"), engine) for engine in range(self._engines) for node in range(_NODES)
        )

    def _pair(self, key: int) -> list[int]:
        pair: list[int] = []
        for number, ring in enumerate(self._rings):
            at = bisect_right(ring, (_hash(f"key {self._reading.rings} {number} {key}"), -1))
            walk = (ring[(at + step) % len(ring)][1] for step in range(len(ring)))
            pair.append(next(engine for engine in walk if engine not in pair))
        return pair


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
