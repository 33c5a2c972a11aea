"""Usage on the bus: entries from the gateways, and the control plane's answer with marks and grants.

Every entry has a journal and a number. The control plane applies each (journal, number) once and confirms the highest
one as the journal's mark. Amounts are tokens, or nano-dollars (1e-9 $), so that sums are exact.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from gateway.contracts.wire import MIB, WireForm

ENTRIES_TOPIC = "usage_entries"
"""Stream of UsageBatch."""
STATE_TOPIC = "usage_state"
"""Last-value topic of UsageState."""
MAX_ENTRIES = 4000
"""Limit of entries in one batch."""
NANO = 1_000_000_000

INTERRUPTED = "interrupted"
"""The gateway process ended during the answer."""
UNREPORTED = "unreported"
"""A caller of the decision API has not reported the end. Its late report is an entry with `requests` 0."""
OVER_BUDGET = "over_budget"
"""A hard budget rejected the request."""
WOULD_REJECT = "would_reject"
"""A shadow budget would have rejected the request. `requests` is 0, as the request has its own entry."""

MINUTE, DAY, MONTH = "minute", "day", "month"
SOFT, HARD, SHADOW = "soft", "hard", "shadow"
TOKENS, DOLLARS = "tokens", "dollars"
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000


class UsageEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of one request that has ended, at the gateway that has sent it to an engine or provider."""

    number: int
    """1, 2, and so on in its journal."""
    at_ms: int
    """Unix milliseconds of the end."""
    tenant_id: str
    key_id: str
    pool_id: str
    """Empty: an external provider answered, or no pool was chosen."""
    model: str
    outcome: str
    """An outcome of DecisionRecord, or one of the constants above."""
    late: bool = False
    """Whether an answer missed its objective; False for failed and rejected requests."""
    prompt: int = 0
    """Prompt tokens, including cached ones."""
    cached: int = 0
    output: int = 0
    charge: int = 0
    """Nano-dollars by the price list."""
    requests: int = 1
    budget: str = ""
    """The budget that rejected, or would have rejected, the request."""


class UsageBatch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive entries of one journal. Without entries, it reports that the gateway is running."""

    journal: str
    after: int
    """Number before the first entry. The journal holds no entry between the two."""
    mark: int
    """The highest mark that the gateway has received."""
    state: int
    """Version of the UsageState that the gateway enforces."""
    entries: list[UsageEntry]


class PackedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A UsageBatch whose entries are encoded already."""

    journal: str
    after: int
    mark: int
    state: int
    entries: list[msgspec.Raw]


class BudgetState(msgspec.Struct, frozen=True, array_like=True):
    """What was spent of a budget, and how much more each journal may add to what is applied."""

    window: int
    """Start of the current window in unix milliseconds."""
    spent: int
    grants: dict[str, int]
    """By journal, for the current window."""
    later: dict[str, int]
    """By journal, for each following window."""


class UsageState(msgspec.Struct, frozen=True, array_like=True):
    """The control plane's state after a transaction: marks, and the state of each budget by id."""

    version: int
    marks: dict[str, int]
    budgets: dict[str, BudgetState]


def _problem(batch: UsageBatch) -> str:
    return "" if len(batch.entries) <= MAX_ENTRIES else f"{len(batch.entries)} entries are more than {MAX_ENTRIES}"


_batches = WireForm(UsageBatch, "a usage batch", limit=8 * MIB, problem=_problem)
decode_batch = _batches.decode
encode_packed = WireForm(PackedBatch, "a usage batch", limit=8 * MIB).encode
_states = WireForm(UsageState, "a usage state", limit=16 * MIB)
encode_state, decode_state = _states.encode, _states.decode
decode_entry = msgspec.msgpack.Decoder(UsageEntry).decode
encode_entry = msgspec.msgpack.Encoder().encode


def window_start(window: str, at_ms: int) -> int:
    """Return the start of the UTC minute, day, or month that contains `at_ms`, in unix milliseconds."""
    if window == MINUTE:
        return at_ms - at_ms % _MINUTE_MS
    day = at_ms - at_ms % _DAY_MS
    return day if window == DAY else _month_start(day)


def window_end(window: str, start_ms: int) -> int:
    """Return the end of the window that begins at `start_ms`."""
    if window == MONTH:
        return _month_start(start_ms + 32 * _DAY_MS)
    return start_ms + (_MINUTE_MS if window == MINUTE else _DAY_MS)


@lru_cache(maxsize=64)
def _month_start(day_ms: int) -> int:
    day = datetime.fromtimestamp(day_ms / 1000, UTC)
    return int(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp() * 1000)
