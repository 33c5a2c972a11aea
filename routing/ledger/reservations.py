"""Unfinished work promised to engines, counted from the moment of the promise.

A router that counts its dispatches at once tolerates load reports that are seconds old (research on scheduling §6).
Each reservation has an id, an owner (the target of one incarnation), and an expiry. Releasing it twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from kvstore.index.prefix_match import LONG
from routing.ledger.fleet_view import NEVER, FleetView
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import LoadOptions

WAITING, PREFILLING, DECODING = "waiting", "prefilling", "decoding"

# Two vLLM engines took 0.88 s where the prefill cost said 0.10 s (docs/decisions/0052-late-first-tokens.md).
_OVERRUN_WEIGHT = 0.125
"""Weight of the newest first token in the mean delay of first tokens beyond their estimates."""

# Without it a stuck engine would seem free (docs/decisions/0002-count-our-own-dispatches.md).
_OVERRUN = 0.5
"""A prefill past its estimate is expected to need this share of its elapsed time in addition."""


class Reservation(msgspec.Struct, gc=False):
    """One request's claim on one target: queued, then in prefill, then decoding. Mutable.

    While a request waits unbound, its target is CENTRAL and only the queue holds the reservation.
    """

    request: InferenceRequest
    target: int
    compute_s: float
    """Expected prefill seconds. For an unbound request, on the best engine."""
    uncached_tokens: int
    expires_s: float = NEVER
    coming: Sequence[int] = ()
    """Keys of the prompt's blocks that this request adds to the target."""
    dispatched_s: float = 0.0
    phase: str = WAITING
    due_s: float = 0.0
    """Expected end of its prefill, once dispatched."""
    excluded: frozenset[str] = frozenset()
    """Engines that can take an unbound request only if no other engine accepts work."""
    loads: LoadOptions | None = None
    """What its prompt can load while it waits, None if its placement does not count on loads."""


@dataclass(slots=True, eq=False)
class _TargetWork:
    """Sums over one target's reservations."""

    free_at: float = 0.0
    delay_s: float = 0.0
    waiting_s: float = 0.0
    late_last_s: float = 0.0
    overrun_s: float = 0.0
    waiting: int = 0
    decoding: int = 0
    prefilling: dict[str, Reservation] = field(default_factory=dict)


class Reservations:
    """All reservations of one pool. Updates the fleet's load.

    Mutable state: `by_id`, `_work` (per target), and of the load `ready_at`, `in_flight_tokens`, `in_flight_requests`,
    `pending_requests`, `active_blocks`, `answers`, `context_tokens`, `room_tokens`, `room_until` and `sent_blocks`.
    """

    def __init__(self, view: FleetView) -> None:
        self._load = view.load
        self.by_id: dict[str, Reservation] = {}
        """Reservations by request id, in arrival order. Only this class changes it."""
        self._work: dict[int, _TargetWork] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self.by_id.values())

    def get(self, request_id: str) -> Reservation | None:
        """Return the reservation of a request, or None."""
        return self.by_id.get(request_id)

    def open_target(self, target: int) -> None:
        """Start counting for a target."""
        self._work[target] = _TargetWork()

    def close_target(self, target: int) -> list[Reservation]:
        """Release every reservation on a removed target and return them, oldest first."""
        released = [item for item in self.by_id.values() if item.target == target]
        for reservation in released:
            self.release(reservation.request.request_id, 0.0)
        self._work.pop(target, None)
        return released

    def hold(self, reservation: Reservation, now: float) -> None:
        """Bind a queued request to its target."""
        self.by_id[reservation.request.request_id] = reservation
        work = self._work[reservation.target]
        work.waiting += 1
        work.waiting_s += reservation.compute_s
        self._count_in(reservation)
        self._refresh(reservation.target, work, now)

    def begin(self, reservation: Reservation, now: float) -> None:
        """Count a request that starts its prefill at once. Its reservation already has that phase."""
        self.by_id[reservation.request.request_id] = reservation
        self._count_in(reservation)
        self._prefill(reservation, self._work[reservation.target], now)

    def dispatch(self, reservation: Reservation, now: float) -> None:
        """Move a queued reservation into prefill."""
        work = self._work[reservation.target]
        self._leave_waiting(reservation, work)
        reservation.phase, reservation.dispatched_s = PREFILLING, now
        self._prefill(reservation, work, now)

    def reestimate(self, reservation: Reservation, compute_s: float, uncached_tokens: int) -> None:
        """Correct the expected cost of a queued reservation, because caches have changed since it was bound."""
        work = self._work[reservation.target]
        work.waiting_s += compute_s - reservation.compute_s
        self._load.in_flight_tokens[reservation.target] += uncached_tokens - reservation.uncached_tokens
        reservation.compute_s = compute_s
        reservation.uncached_tokens = uncached_tokens

    def note_late_last(self, target: int, seconds: float, now: float) -> None:
        """Expect newcomers to overtake `seconds` of queued work (infeasible requests go last)."""
        work = self._work[target]
        if seconds != work.late_last_s:
            work.late_last_s = seconds
            self._refresh(target, work, now)

    def delay(self, target: int, seconds: float) -> None:
        """Expect requests queued for the target to start `seconds` later, because its decodes occupy its memory.

        Estimates of new requests stay as they are: they would lose their cache to it (DualMap A.8.2).
        """
        self._work[target].delay_s = seconds

    def delay_s(self, target: int) -> float:
        """Return the delay of the target, D of DualMap A.8.3, in seconds."""
        return self._work[target].delay_s

    def note_report(self, target: int, pending: int, room_tokens: float, until_s: float) -> None:
        """Record a report. Until it is too old, prompts over `room_tokens` are expected to wait for memory there."""
        self._load.reported_pending[target] = pending
        self._load.room_tokens[target] = room_tokens
        self._load.room_until[target] = until_s

    def take_room(self, target: int, prompt_tokens: int) -> None:
        """Deduct a prompt just sent from the memory that the last report counts as free."""
        self._load.room_tokens[target] -= prompt_tokens

    def room_tokens(self, target: int) -> float:
        """Return the free KV memory in the last report, minus the prompts sent since. Infinite without a report."""
        return self._load.room_tokens[target]

    def oldest_prefill_s(self, target: int) -> float | None:
        """Return when the oldest running prefill on the target was dispatched, None if none is running."""
        work = self._work[target]
        return next(iter(work.prefilling.values())).dispatched_s if work.prefilling else None

    def first_token(self, request_id: str, now: float) -> Reservation | None:
        """Record the end of a prefill. Return None if no prefill with this id is running."""
        reservation = self.by_id.get(request_id)
        if reservation is None or reservation.phase is not PREFILLING:
            return None
        work = self._work[reservation.target]
        # An early first token counts as punctual.
        late_s = now - reservation.due_s
        work.overrun_s += _OVERRUN_WEIGHT * ((late_s if late_s > 0.0 else 0.0) - work.overrun_s)
        self._leave_prefill(reservation, work, now)
        reservation.phase = DECODING
        work.decoding += reservation.request.sequences
        self._load.pending_requests[reservation.target] -= 1
        self._refresh(reservation.target, work, now)
        return reservation

    def release(self, request_id: str, now: float) -> Reservation | None:
        """End a reservation in any phase and return it, or None if there is none."""
        reservation = self.by_id.pop(request_id, None)
        if reservation is None:
            return None
        work = self._work[reservation.target]
        if reservation.phase is WAITING:
            self._leave_waiting(reservation, work)
        elif reservation.phase is PREFILLING:
            self._leave_prefill(reservation, work, now)
        else:
            work.decoding -= reservation.request.sequences
        self._count_out(reservation)
        self._refresh(reservation.target, work, now)
        return reservation

    def refresh_overdue(self, target: int, now: float) -> None:
        """Extend the estimate of a prefill that has exceeded it, so that a stuck engine attracts no work."""
        work = self._work[target]
        if not work.prefilling or work.free_at > now:
            return
        head = next(iter(work.prefilling.values()))
        behind_s = sum(item.compute_s for item in work.prefilling.values()) - head.compute_s
        work.free_at = now + behind_s + _OVERRUN * (now - head.dispatched_s)
        self._refresh(target, work, now)

    def may_start(self, target: int, uncached_tokens: int, prefill_window_tokens: int, until: float) -> bool:
        """Return whether a prefill can be sent: none is running, all fit the token budget, or it is free by `until`."""
        work = self._work[target]
        if not work.prefilling or work.free_at <= until:
            return True
        running = sum(item.uncached_tokens for item in work.prefilling.values())
        return running + uncached_tokens <= prefill_window_tokens

    def in_flight_s(self, target: int, now: float) -> float:
        """Return the seconds until the target is expected to have prefilled all its work."""
        work = self._work[target]
        return max(work.free_at - now, 0.0) + work.waiting_s if work.prefilling or work.waiting else 0.0

    def free_at(self, target: int) -> float:
        """Return when the target's running prefills are expected to end."""
        return self._work[target].free_at

    def start_s(self, target: int, now: float) -> float:
        """Return the seconds until the first queued request's prefill starts: running prefills plus the target's delay.

        This is T_q of the head of its queue plus D of DualMap A.8.3.
        """
        work = self._work[target]
        return max(work.free_at - now, 0.0) + work.delay_s

    def starts_at(self, target: int, now: float) -> float:
        """Return the time from which the next prefill's cost counts towards its deadline.

        Unlike `start_s`, it includes the recent lateness of first tokens: real engines also tokenize the prompt and
        share their steps with decodes, which the cost omits.
        """
        work = self._work[target]
        return (work.free_at if work.free_at > now else now) + work.overrun_s

    def dispatched(self, target: int) -> int:
        """Return the number of running prefills and decoded answers on the target."""
        work = self._work[target]
        return len(work.prefilling) + work.decoding

    def prefilling(self, target: int) -> int:
        """Return the number of dispatched requests on the target without a first token."""
        return len(self._work[target].prefilling)

    def waiting(self, target: int) -> int:
        """Return the number of queued requests bound to the target."""
        return self._work[target].waiting

    def expired(self, now: float) -> list[str]:
        """Return the ids of dispatched reservations past their expiry."""
        return [
            request_id
            for request_id, reservation in self.by_id.items()
            if reservation.phase is not WAITING and reservation.expires_s <= now
        ]

    def check(self) -> None:
        """Raise AssertionError unless all sums agree with the reservations."""
        for target, work in self._work.items():
            mine = [item for item in self.by_id.values() if item.target == target]
            prefilling = {item.request.request_id for item in mine if item.phase is PREFILLING}
            if prefilling != set(work.prefilling):
                raise AssertionError(f"target {target}: prefilling {prefilling} is not {set(work.prefilling)}")
            if work.waiting != sum(item.phase is WAITING for item in mine):
                raise AssertionError(f"target {target}: {work.waiting} waiting is wrong")
            if work.decoding != sum(item.request.sequences for item in mine if item.phase is DECODING):
                raise AssertionError(f"target {target}: {work.decoding} decoding is wrong")
            if not -1e-6 <= work.late_last_s <= work.waiting_s + 1e-6:
                raise AssertionError(f"target {target}: {work.late_last_s} s overtaken is wrong")
            if abs(work.waiting_s - sum(item.compute_s for item in mine if item.phase is WAITING)) > 1e-6:
                raise AssertionError(f"target {target}: {work.waiting_s} s of waiting work is wrong")
            self._check_view(target, mine)
        if any(item.target not in self._work for item in self.by_id.values()):
            raise AssertionError("a reservation is on a closed target")

    def _check_view(self, target: int, mine: Sequence[Reservation]) -> None:
        load = self._load
        if load.in_flight_requests[target] != len(mine):
            raise AssertionError(f"target {target}: {load.in_flight_requests[target]} requests is wrong")
        if load.pending_requests[target] != sum(item.phase is not DECODING for item in mine):
            raise AssertionError(f"target {target}: {load.pending_requests[target]} pending is wrong")
        if load.answers[target] != sum(item.request.sequences for item in mine):
            raise AssertionError(f"target {target}: {load.answers[target]} answers is wrong")
        if load.context_tokens[target] != sum(item.request.sequences * item.request.prompt_tokens for item in mine):
            raise AssertionError(f"target {target}: {load.context_tokens[target]} tokens of context is wrong")
        if load.active_blocks[target] != sum(len(item.request.keys) for item in mine):
            raise AssertionError(f"target {target}: {load.active_blocks[target]} active blocks is wrong")
        tokens = sum(item.uncached_tokens for item in mine if item.phase is not DECODING)
        if load.in_flight_tokens[target] != tokens:
            raise AssertionError(f"target {target}: {load.in_flight_tokens[target]} tokens is not {tokens}")

    def _count_in(self, reservation: Reservation) -> None:
        load, target, request = self._load, reservation.target, reservation.request
        keys = len(request.keys)
        load.in_flight_tokens[target] += reservation.uncached_tokens
        load.in_flight_requests[target] += 1
        load.pending_requests[target] += 1
        load.active_blocks[target] += keys
        sequences = request.sequences
        load.context_tokens[target] += sequences * request.prompt_tokens
        load.answers[target] += sequences
        if load.answer_order is not None:
            load.answer_order.note(target, load.answers[target])
        # Of a long prompt only some of the blocks on their way are noted.
        new = len(reservation.coming) if keys < LONG else reservation.uncached_tokens // request.block_tokens
        load.sent_blocks[target] += new if new < keys else keys

    def _count_out(self, reservation: Reservation) -> None:
        load, target = self._load, reservation.target
        if reservation.phase is WAITING:
            load.in_flight_tokens[target] -= reservation.uncached_tokens
        if reservation.phase is not DECODING:
            load.pending_requests[target] -= 1
        load.in_flight_requests[target] -= 1
        load.active_blocks[target] -= len(reservation.request.keys)
        request = reservation.request
        load.context_tokens[target] -= request.sequences * request.prompt_tokens
        load.answers[target] -= request.sequences
        if load.answer_order is not None:
            load.answer_order.note(target, load.answers[target])

    def _prefill(self, reservation: Reservation, work: _TargetWork, now: float) -> None:
        free_at = work.free_at
        free_at = work.free_at = reservation.due_s = (free_at if free_at > now else now) + reservation.compute_s
        work.prefilling[reservation.request.request_id] = reservation
        if work.waiting:
            self._refresh(reservation.target, work, now)
        else:
            self._ready(reservation.target, free_at)

    def _leave_waiting(self, reservation: Reservation, work: _TargetWork) -> None:
        work.waiting -= 1
        # An empty queue resets the sum, so that rounding errors do not add up.
        work.waiting_s = work.waiting_s - reservation.compute_s if work.waiting else 0.0

    def _leave_prefill(self, reservation: Reservation, work: _TargetWork, now: float) -> None:
        """Correct the expected end to the actual one: the remaining prefills count from `now`."""
        del work.prefilling[reservation.request.request_id]
        work.free_at = now + sum(item.compute_s for item in work.prefilling.values())
        self._load.in_flight_tokens[reservation.target] -= reservation.uncached_tokens

    def _refresh(self, target: int, work: _TargetWork, now: float) -> None:
        # A newcomer overtakes the infeasible ones.
        more_s = work.waiting_s - work.late_last_s
        self._ready(target, max(work.free_at, now) + more_s if more_s > 0 else work.free_at)

    def _ready(self, target: int, moment: float) -> None:
        """Set when the target is expected to be ready, if it accepts work."""
        load = self._load
        # NEVER marks a target that accepts no work; `reopen` ends that.
        if load.ready_at[target] != NEVER:
            load.ready_at[target] = moment
            if load.ready_order is not None:
                load.ready_order.note(target, moment)

    def reopen(self, target: int, now: float) -> None:
        """Count the target among the accepting ones again, so that `ready_at` is valid."""
        self._load.ready_at[target] = 0.0
        self._refresh(target, self._work[target], now)
