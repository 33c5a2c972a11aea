"""Decode work promised to engines: the second leg of each request whose prefill runs on another engine.

A leg exists from dispatch until the request ends, expires, or loses its engine, so decode engines are charged for
requests that are still in prefill. Releasing a leg twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec


class DecodeLeg(msgspec.Struct, gc=False):
    """One request's claim on its decode engine. Mutable: `decoding` and `unseen`."""

    target: int
    prompt_tokens: int
    need_tokens: int
    expires_s: float
    decoding: bool = False
    unseen: bool = True
    """Whether its memory is not yet part of the engine's last report."""
    sequences: int = 1
    """Number of answers that it decodes."""


@dataclass(slots=True, eq=False)
class _Work:
    """Sums over one target's legs, and the free memory in its last report."""

    promised: int = 0
    decoding: int = 0
    context_tokens: int = 0
    unseen_tokens: int = 0
    reported_room: int | None = None
    fresh: dict[str, DecodeLeg] = field(default_factory=dict)
    """Legs that started decoding since the last report."""


class DecodeLegs:
    """All legs of one pool. Mutable state: `_by_id` and `_work` (per target)."""

    def __init__(self) -> None:
        self._by_id: dict[str, DecodeLeg] = {}
        self._work: dict[int, _Work] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._by_id

    def __iter__(self) -> Iterator[DecodeLeg]:
        return iter(self._by_id.values())

    def get(self, request_id: str) -> DecodeLeg | None:
        """Return the leg of a request, or None."""
        return self._by_id.get(request_id)

    def open_target(self, target: int) -> None:
        """Start counting for a target. An open one is left unchanged."""
        self._work.setdefault(target, _Work())

    def close_target(self, target: int) -> None:
        """Release every leg on a removed target."""
        for request_id in [name for name, leg in self._by_id.items() if leg.target == target]:
            self.release(request_id)
        self._work.pop(target, None)

    def promise(self, request_id: str, leg: DecodeLeg) -> None:
        """Count a leg whose prefill begins. Raises ValueError if the request already has one."""
        if request_id in self._by_id:
            raise ValueError(f"request {request_id} has a decode engine already")
        self._by_id[request_id] = leg
        work = self._work[leg.target]
        work.promised += leg.sequences
        work.context_tokens += leg.prompt_tokens
        work.unseen_tokens += leg.need_tokens

    def begin(self, request_id: str) -> DecodeLeg | None:
        """Record the first token. Return None if there is no leg or it already decodes."""
        leg = self._by_id.get(request_id)
        if leg is None or leg.decoding:
            return None
        leg.decoding = True
        work = self._work[leg.target]
        work.promised -= leg.sequences
        work.decoding += leg.sequences
        # The engine's next report includes its memory.
        work.fresh[request_id] = leg
        return leg

    def release(self, request_id: str) -> DecodeLeg | None:
        """End a leg and return it, or None if there is none."""
        leg = self._by_id.pop(request_id, None)
        if leg is None:
            return None
        work = self._work[leg.target]
        if leg.decoding:
            work.decoding -= leg.sequences
        else:
            work.promised -= leg.sequences
        work.fresh.pop(request_id, None)
        work.context_tokens -= leg.prompt_tokens
        if leg.unseen:
            work.unseen_tokens -= leg.need_tokens
        return leg

    def report(self, target: int, room_tokens: int | None) -> None:
        """Record an engine's report of its free memory, which includes running decodes but no promised ones."""
        work = self._work.get(target)
        if work is None:
            return
        work.reported_room = room_tokens
        for leg in work.fresh.values():
            leg.unseen = False
            work.unseen_tokens -= leg.need_tokens
        work.fresh.clear()

    def promised(self, target: int) -> int:
        """Return the number of answers whose prefill is still running elsewhere."""
        return self._work[target].promised

    def decoding(self, target: int) -> int:
        """Return the number of answers being decoded."""
        return self._work[target].decoding

    def context_tokens(self, target: int) -> int:
        """Return the prompt tokens of all legs, including promised ones."""
        return self._work[target].context_tokens

    def room_tokens(self, target: int) -> int | None:
        """Return the free memory for one more leg, by the last report. None if the engine reports none."""
        work = self._work[target]
        return None if work.reported_room is None else max(0, work.reported_room - work.unseen_tokens)

    def answers(self, target: int) -> int:
        """Return the number of answers of all legs on a target, 0 if it is not a decode engine."""
        work = self._work.get(target)
        return work.promised + work.decoding if work is not None else 0

    def expired(self, now: float) -> list[str]:
        """Return the ids of legs past their expiry."""
        return [request_id for request_id, leg in self._by_id.items() if leg.expires_s <= now]

    def check(self) -> None:
        """Raise AssertionError unless all sums agree with the legs."""
        if any(leg.target not in self._work for leg in self._by_id.values()):
            raise AssertionError("a leg is on a closed target")
        for target, work in self._work.items():
            mine = [leg for leg in self._by_id.values() if leg.target == target]
            expected = (
                sum(leg.sequences for leg in mine if not leg.decoding),
                sum(leg.sequences for leg in mine if leg.decoding),
                sum(leg.prompt_tokens for leg in mine),
                sum(leg.need_tokens for leg in mine if leg.unseen),
            )
            if any(self._by_id.get(name) is not leg or not leg.unseen for name, leg in work.fresh.items()):
                raise AssertionError(f"target {target}: a leg is waited for in vain")
            if expected != (work.promised, work.decoding, work.context_tokens, work.unseen_tokens):
                raise AssertionError(f"target {target}: sums of legs {expected} are counted wrongly")
