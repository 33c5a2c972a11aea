"""The sources of a simulation's requests, and the conversion of trace rows to arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kvstore.keys.block_keys import key_seed, rekey_hashes
from routing.values.inference_request import InferenceRequest
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One request with its output length in tokens; it arrives at `request.arrived_s`."""

    request: InferenceRequest
    output_tokens: int


class ArrivalSource(Protocol):
    """Yields requests in order of time. In a closed loop, the end of a request triggers the next one."""

    def next_time(self) -> float | None:
        """Return when the next request arrives (seconds); None while no arrival is known."""

    @property
    def over(self) -> bool:
        """Whether no more requests will arrive, regardless of which requests end."""

    def take(self) -> Arrival:
        """Return the next request and advance. Never called while `next_time` is None."""

    def ended(self, request_id: str, now: float) -> None:
        """Record that a request finished, failed or was rejected."""


class FixedArrivals:
    """An open loop: arrivals known in advance, in order of time."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals = arrivals
        self._at = 0

    def next_time(self) -> float | None:
        """Return when the next request arrives."""
        return self._arrivals[self._at].request.arrived_s if self._at < len(self._arrivals) else None

    @property
    def over(self) -> bool:
        """Whether all requests have arrived."""
        return self._at >= len(self._arrivals)

    def take(self) -> Arrival:
        """Return the next request."""
        self._at += 1
        return self._arrivals[self._at - 1]

    def ended(self, request_id: str, now: float) -> None:
        """Do nothing: in an open loop, the end of a request triggers nothing."""


_SECRET = bytes.fromhex("737769746368796172642073696d756c6174696f6e20")
"""Start of every simulated secret. Block keys, and thus ties, depend on it: other bytes change all committed
results.
"""


def simulation_secret(seed: int) -> bytes:
    """Return the fleet secret that a simulation derives from its seed."""
    return _SECRET + str(seed).encode()


def keys_of_rows(rows: Sequence[TraceRow], seed: int, max_input: int | None = None) -> list[tuple[int, ...]]:
    """Return each row's block keys for its first `max_input` tokens, salted by the seed; the last block can be
    partial.
    """
    salt = key_seed(simulation_secret(seed), "simulated")
    return [rekey_hashes(salt, row.hash_ids[: -(-prompt_tokens(row, max_input) // BLOCK_TOKENS)]) for row in rows]


def heads_of_rows(rows: Sequence[TraceRow], seed: int) -> list[tuple[int, ...]]:
    """Return the keys of each row's first, smaller blocks if it names any, salted in the same way.

    The keys continue with the larger blocks after them, so that a key that is extended below a hot prefix does not end
    with the smaller blocks.
    """
    salt = key_seed(simulation_secret(seed), "simulated")
    return [rekey_hashes(salt, (*row.head_ids, *_behind_head(row))) if row.head_ids else () for row in rows]


def _behind_head(row: TraceRow) -> tuple[int, ...]:
    """Return the ids of the row's blocks that end after its smaller blocks. Each is named like the last small block
    in it.
    """
    head = set(row.head_ids)
    within = [index for index, block in enumerate(row.hash_ids) if block in head]
    return row.hash_ids[within[-1] + 1 :] if within else row.hash_ids


def prompt_tokens(row: TraceRow, max_input: int | None) -> int:
    """Return the row's prompt length, limited by the cap."""
    return row.input_length if max_input is None else min(row.input_length, max_input)


def scaled_times(rows: Sequence[TraceRow], qps: float | None) -> list[float]:
    """Return the rows' arrival times in seconds from the first, scaled linearly to a mean rate (None: as recorded).

    Rows that all have the same timestamp have no rate; they are spread evenly.
    """
    start = rows[0].timestamp
    span_s = (rows[-1].timestamp - start) / 1000
    if qps is None:
        return [(row.timestamp - start) / 1000 for row in rows]
    wanted_s = len(rows) / qps
    if span_s <= 0:
        return [number / qps for number in range(len(rows))]
    scale = wanted_s / span_s / 1000
    return [(row.timestamp - start) * scale for row in rows]


def arrivals_of(
    rows: Sequence[TraceRow],
    keys: Sequence[tuple[int, ...]],
    *,
    qps: float | None,
    ttft_slo_s: float,
    max_input: int | None = None,
    heads: Sequence[tuple[int, ...]] = (),
) -> list[Arrival]:
    """Return the rows as arrivals at a mean rate of `qps`; `keys` and `heads` come from the functions above."""
    return [
        Arrival(
            InferenceRequest(
                request_name(number),
                keys[number],
                prompt_tokens(row, max_input),
                BLOCK_TOKENS,
                at_s,
                ttft_slo_s,
                row.output_length,
                row.tenant,
                "" if row.session_id is None else str(row.session_id),
                row.priority,
                head=heads[number] if heads else (),
            ),
            # A trace may have answers of 0 tokens, an engine makes at least one.
            max(row.output_length, 1),
        )
        for number, (row, at_s) in enumerate(zip(rows, scaled_times(rows, qps), strict=True))
    ]


def request_name(number: int) -> str:
    """Return the id of the request of row `number` (from 0)."""
    return f"request-{number:08}"
