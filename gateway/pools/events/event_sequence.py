"""Orders the numbered batches of one engine, and detects when its history must be requested again.

A publisher numbers its batches from 0 and starts again at 0 after an unannounced restart. The last applied batch is
therefore kept as an *anchor* (number and digest). Every replay starts at the anchor, and only if the engine still holds
the same batch there, nothing was missed or restarted. One request therefore detects a gap, a restart, a reconnection
and a lost last batch, and a late or duplicate message never clears anything.

This module uses no sockets and no clock: messages go in, steps to take come out.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

_REMEMBERED = 1024
"""Digests kept of applied batches, to distinguish duplicate messages from a restart."""

APPLY = "apply"
IGNORE = "ignore"
ASK = "ask"
"""The history from `replay_from` is needed. The message can be offered again afterwards."""
RESTARTED = "restarted"
"""The engine's process is new: clear its blocks, then request batches from 0."""
LOST = "lost"
"""Batches are permanently lost: clear the engine's blocks, then apply this batch."""


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """The last applied batch."""

    seq: int
    digest: int


class EventSequence:
    """The order of one engine's batches.

    Mutable: `next_seq`, the digests of recent batches, and the running replay. `complete` states whether all batches
    since the start of the engine's process, or since its last clearing, were applied.
    """

    def __init__(self) -> None:
        self.next_seq = 0
        self.complete = False
        self.known = False
        """Whether a batch was applied, or a replay reported that there are none."""
        self._digests: OrderedDict[int, int] = OrderedDict()
        self._anchor: Anchor | None = None
        self._replaying = False
        self._verified = False

    @property
    def replaying(self) -> bool:
        """Return whether a replay is running. Live batches must wait for its end."""
        return self._replaying

    def live(self, seq: int, payload: bytes) -> str:
        """Return how to handle a live batch outside a replay: APPLY, IGNORE or ASK."""
        if seq == self.next_seq and self.known:
            self._accept(seq, payload)
            return APPLY
        if self._digests.get(seq) == hash(payload):
            return IGNORE
        return ASK

    def jump(self, seq: int, payload: bytes) -> str:
        """Return how to handle a live batch without available history: LOST, or APPLY for a process's first batch."""
        held_nothing = not self._digests
        self._forget()
        self._accept(seq, payload)
        self.complete = seq == 0
        return APPLY if held_nothing and seq == 0 else LOST

    def start_replay(self) -> int:
        """Begin a replay; return the first number to request: the anchor's, or 0 without an anchor."""
        self._replaying = True
        self._anchor = None
        if self._digests:
            seq = next(reversed(self._digests))
            self._anchor = Anchor(seq, self._digests[seq])
        self._verified = self._anchor is None
        return self._anchor.seq if self._anchor else 0

    def replayed(self, seq: int, payload: bytes) -> str:
        """Return how to handle a replayed batch: APPLY, IGNORE, RESTARTED (the replay has ended) or LOST (clear, then
        apply).
        """
        if not self._verified:
            return self._verify(seq, payload)
        if seq < self.next_seq and self.known:
            return IGNORE
        first = not self.known
        if seq == self.next_seq or first:
            self._accept(seq, payload)
            if first:
                self.complete = seq == 0
            return APPLY
        return self._lose(seq, payload)

    def end_replay(self) -> str:
        """End the replay: IGNORE, or RESTARTED if the engine's counter is behind our anchor."""
        self._replaying = False
        if not self._verified:
            self._forget()
            return RESTARTED
        if not self.known:
            self.known = True
            self.complete = True
        return IGNORE

    def abandon_replay(self) -> None:
        """Abandon a replay without a response. Nothing is concluded from it."""
        self._replaying = False

    def cleared(self) -> None:
        """Record that the engine reported itself empty: nothing before this is missing."""
        self.complete = True

    def check(self) -> None:
        """Raise AssertionError unless numbers and digests agree."""
        if self._digests and next(reversed(self._digests)) != self.next_seq - 1:
            raise AssertionError(f"the last batch {next(reversed(self._digests))} is not before {self.next_seq}")
        if len(self._digests) > _REMEMBERED:
            raise AssertionError(f"{len(self._digests)} digests are over {_REMEMBERED}")
        if self._digests and not self.known:
            raise AssertionError("batches were applied, yet nothing is known")

    def _verify(self, seq: int, payload: bytes) -> str:
        anchor = self._anchor
        if anchor is None or seq < anchor.seq:
            return IGNORE
        if seq > anchor.seq:
            self._verified = True
            return self._lose(seq, payload)
        if hash(payload) != anchor.digest:
            self._replaying = False
            self._forget()
            return RESTARTED
        self._verified = True
        return IGNORE

    def _lose(self, seq: int, payload: bytes) -> str:
        self._forget()
        self._accept(seq, payload)
        self.complete = False
        return LOST

    def _accept(self, seq: int, payload: bytes) -> None:
        # Compared in this process alone, where hash() of bytes is a 64-bit digest under a random key.
        self._digests[seq] = hash(payload)
        if len(self._digests) > _REMEMBERED:
            self._digests.popitem(last=False)
        self.next_seq = seq + 1
        self.known = True

    def _forget(self) -> None:
        self._digests.clear()
        self.next_seq = 0
        self.known = False
        self.complete = False
