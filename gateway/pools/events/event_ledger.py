"""Converts one engine's event batches into changes of the prefix index, and derives their trust.

It queues live batches while a replay runs, translates block keys through the engine's block map, and clears everything
as soon as history is lost: a missing entry costs a cache hit, but a wrong one sends requests to the wrong engine. It
uses no sockets and no clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.base.settings import EventSettings
from gateway.pools.events.event_sequence import APPLY, ASK, LOST, RESTARTED, EventSequence
from kvstore.events.cache_groups import CacheGroups, PartChange
from kvstore.events.engine_block_map import EngineBlockMap, TierBlocks
from kvstore.events.event_salt import before_media, domain_of, hides_adapter, media_of
from kvstore.events.kv_events import (
    BlockRemoved,
    BlockStored,
    KvEvent,
    UnreadableEventError,
    decode_batch,
    in_engine_memory,
    tier_of,
)
from kvstore.events.node_blocks import named_keys
from kvstore.index.cache_tails import FULL, NO_TAIL, Tail
from routing.values.counted import count

EXACT = "exact"
DEGRADED = "degraded"
BLIND = "blind"
WEIGHTS = {EXACT: 1.0, DEGRADED: 0.5, BLIND: 0.0}
"""Weight of a hit in routing, by trust."""
_HIDDEN_ADAPTERS = (
    "its events name LoRA adapters by number alone, so that their requests' hits are not predicted; upgrade the engine"
)
_UNREADABLE = "an event batch was unreadable; the index is being rebuilt from new events"
_SKIPPED = "an event was skipped ({}); the index is being rebuilt from new events"


class Trust(msgspec.Struct, frozen=True):
    """Trust in an engine's index: exact, degraded or blind. `reason` is empty if exact."""

    grade: str
    reason: str

    @property
    def weight(self) -> float:
        """Return the weight of a hit in routing."""
        return WEIGHTS[self.grade]


class BlockSink(Protocol):
    """Receives changes of an engine's blocks."""

    def stored(self, keys: Sequence[int], parent: int | None = None) -> None:
        """Add these blocks, in prompt order."""

    def removed(self, keys: Sequence[int]) -> None:
        """Remove these blocks."""

    def tail_declared(self, tail: Tail) -> None:
        """Record the tail state that the engine needs in addition to a prefix's blocks. It is declared again after a
        clearing.
        """

    def tail_changed(self, change: PartChange) -> None:
        """Add or remove blocks of a tail part."""

    def tier_changed(self, tier: str, stored: bool, keys: Sequence[int]) -> None:
        """Add or remove blocks of a tier below engine memory."""

    def medium_stored(self, name: str, blocks: int) -> None:
        """Record that the medium of this name spans at least this many blocks."""

    def cleared(self) -> None:
        """Remove all blocks of all tiers."""

    def restarted(self) -> None:
        """Reset for a new engine process, which holds no blocks."""


class EventLedger:
    """Applies one engine's events in order.

    Mutable: the sequence, the block map, live batches that wait for a replay (`_pending`), and the state from which
    trust is derived. `wanted` states why a replay is needed, empty if none is.
    """

    def __init__(
        self, sink: BlockSink, seed_of: Callable[[str, str], int], block_tokens: int, settings: EventSettings
    ) -> None:
        """`seed_of` returns the seed of the block keys for a cache salt and an adapter; both can be empty."""
        self.counts: Counter[str] = Counter()
        """Batches and events by kind: applied, gaps, restarts, lost, unreadable, skipped, salted, BlockStored, …"""
        self.wanted = "start"
        self.received = False
        self.blocks = EngineBlockMap(settings.max_blocks)
        self.tiers = TierBlocks(self.blocks, block_tokens)
        self._groups = CacheGroups(self.blocks, block_tokens)
        self._sink = sink
        self._seed_of = seed_of
        self._block_tokens = block_tokens
        self._settings = settings
        self._sequence = EventSequence()
        self._pending: deque[tuple[int, bytes]] = deque()
        self._pending_bytes = 0
        self._fruitless = 0
        self._before_replay = 0
        self._waited_before = 0
        self._foreign_block_size = 0
        self._stored_since_loss = 0
        self._rebuilt_at = 0
        self._unreadable = ""
        self._hides_adapters = False

    @property
    def trust(self) -> Trust:
        """Return the current trust in this engine's index."""
        if not self.received:
            return Trust(BLIND, "no events and no answer to a replay request")
        if self._foreign_block_size:
            return Trust(
                BLIND,
                f"the engine's blocks hold {count(self._foreign_block_size, 'token')}, "
                f"this pool's keys {self._block_tokens}; "
                "set the pool's block size to the engine's",
            )
        if self.wanted in ("start", "gap"):
            return Trust(DEGRADED, "missed events are being replayed")
        if not self._sequence.complete:
            return Trust(DEGRADED, "older events are no longer available; the index is being rebuilt from new events")
        doubt = self._unreadable or self._groups.problem or (_HIDDEN_ADAPTERS if self._hides_adapters else "")
        return Trust(DEGRADED, doubt) if doubt else Trust(EXACT, "")

    def resync(self) -> None:
        """Clear everything after a restart that the caller detected. The caller notifies the sink."""
        self._sequence = EventSequence()
        self.blocks.cleared()
        self.tiers.cleared()
        self._groups.reset()
        self._drop_pending()
        self._foreign_block_size = 0
        self._mark_whole()
        self._fruitless = 0
        self.wanted = "start"

    def disconnected(self) -> None:
        """Record a broken connection: later batches are believed only after a replay."""
        self.wanted = self.wanted or "gap"

    def live(self, seq: int, payload: bytes) -> None:
        """Process one live batch: apply it at once, or queue it while a replay is needed or running."""
        self.received = True
        if self.wanted or self._sequence.replaying:
            self._keep(seq, payload)
            return
        verdict = self._sequence.live(seq, payload)
        if verdict == APPLY:
            self._apply(payload)
        elif verdict == ASK:
            self.counts["gaps"] += 1
            self.wanted = "gap"
            self._keep(seq, payload)

    def start_replay(self) -> int:
        """Begin a replay and return the first batch number to request."""
        self._before_replay = self._sequence.next_seq
        self._waited_before = len(self._pending)
        return self._sequence.start_replay()

    def replayed(self, seq: int, payload: bytes) -> bool:
        """Process one replayed batch. Return False if this replay has ended and another is needed."""
        self.received = True
        if not self._sequence.replaying:
            return False
        verdict = self._sequence.replayed(seq, payload)
        if verdict == RESTARTED:
            self._restarted()
            return False
        if verdict == LOST:
            self._lost()
        if verdict in (APPLY, LOST):
            self._apply(payload)
        return True

    def end_replay(self) -> None:
        """End a complete replay, then process the queued live batches.

        A replay requested before a resync is obsolete. Processing it as the new one would signal an engine restart that
        the caller of the resync has already counted.
        """
        self.received = True
        if not self._sequence.replaying:
            return
        if self._sequence.end_replay() == RESTARTED:
            self._restarted()
            return
        if not self._sequence.complete and not self._rebuilt_at:
            self._rebuilt_at = self._as_many_again()
        self.wanted = ""
        self._drop_strays()
        self._drain()
        if not self.wanted:
            self._fruitless = 0
        elif self._sequence.next_seq == self._before_replay:
            self._fruitless += 1
            if self._fruitless >= self._settings.max_replays:
                self.give_up()

    def abandon_replay(self) -> None:
        """Abandon a replay without a response. Batches that waited only for a sign of life are applied."""
        self._sequence.abandon_replay()
        if not self.wanted:
            self._drain()

    def give_up(self) -> None:
        """Continue from the oldest queued live batch, without the history before it."""
        self._fruitless = 0
        self.wanted = ""
        while self._pending:
            seq, payload = self._next_pending()
            verdict = self._sequence.live(seq, payload)
            if verdict == ASK:
                verdict = self._sequence.jump(seq, payload)
            if verdict == LOST:
                self._lost()
            if verdict in (APPLY, LOST):
                self._apply(payload)

    def check(self) -> None:
        """Raise AssertionError unless the parts agree and the limits hold."""
        self._sequence.check()
        self.blocks.check()
        self.tiers.check()
        if self._pending_bytes != sum(len(payload) for _, payload in self._pending):
            raise AssertionError("bytes of waiting batches do not add up")
        if len(self._pending) > self._settings.max_pending:
            raise AssertionError(f"{len(self._pending)} batches wait")

    def _keep(self, seq: int, payload: bytes) -> None:
        """Queue a batch. Over the limit the newest are dropped, and the gap is detected after the replay."""
        full = len(self._pending) >= self._settings.max_pending
        if full or self._pending_bytes + len(payload) > self._settings.max_pending_bytes:
            self.counts["dropped"] += 1
            return
        self._pending.append((seq, payload))
        self._pending_bytes += len(payload)

    def _next_pending(self) -> tuple[int, bytes]:
        seq, payload = self._pending.popleft()
        self._pending_bytes -= len(payload)
        return seq, payload

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0

    def _drop_strays(self) -> None:
        """Drop batches that arrived before the replay was requested and are beyond its end.

        A publisher stores its batches before it answers a replay, so these are from another process.
        """
        waited, self._waited_before = min(self._waited_before, len(self._pending)), 0
        for _ in range(waited):
            seq, _ = self._next_pending()
            if seq >= self._sequence.next_seq:
                self.counts["strays"] += 1

    def _drain(self) -> None:
        """Apply queued batches. Those older than the verified history are already covered."""
        while self._pending:
            seq, payload = self._pending[0]
            if seq > self._sequence.next_seq:
                self.wanted = "gap"
                return
            self._next_pending()
            if seq == self._sequence.next_seq and self._sequence.live(seq, payload) == APPLY:
                self._apply(payload)

    def _restarted(self) -> None:
        """Reset for a new engine process and request its history from batch 0.

        Queued batches can be from either process; the replay contains those of the new one.
        """
        self.counts["restarts"] += 1
        self.blocks.cleared()
        self.tiers.cleared()
        self._groups.reset()
        self._drop_pending()
        self._mark_whole()
        self.wanted = "start"
        self._sink.restarted()

    def _lost(self) -> None:
        self.counts["lost"] += 1
        self._rebuilt_at = max(self._as_many_again(), self._rebuilt_at)
        self._stored_since_loss = 0
        self._forget_blocks()

    def _as_many_again(self) -> int:
        return max(self._settings.rebuild_blocks, len(self.blocks))

    def _mark_whole(self) -> None:
        self._rebuilt_at = 0
        self._stored_since_loss = 0
        self._unreadable = ""
        self._hides_adapters = False

    def _apply(self, payload: bytes) -> None:
        skipped: list[str] = []
        try:
            batch = decode_batch(payload, skipped)
        except UnreadableEventError:
            self.counts["unreadable"] += 1
            self._doubt(_UNREADABLE)
            return
        if skipped:
            self.counts["skipped"] += len(skipped)
            self._doubt(_SKIPPED.format(skipped[-1]))
        self.counts["applied"] += 1
        regrouped = self._groups.learn(batch.events)
        if regrouped or (self._groups.others and len(self.tiers)):
            self.counts["regrouped"] += regrouped
            self._forget_blocks()
        if self._groups.tail != NO_TAIL:
            self._sink.tail_declared(self._groups.tail)
        for event in batch.events:
            self.counts[type(event).__name__] += 1
            self._apply_event(event)

    def _doubt(self, reason: str) -> None:
        """Degrade the trust until as many blocks as are known have been stored again."""
        self._unreadable = reason
        self._rebuilt_at = self._as_many_again()
        self._stored_since_loss = 0

    def _forget_blocks(self) -> None:
        self.blocks.cleared()
        self.tiers.cleared()
        self._groups.cleared()
        self._sink.cleared()

    def _apply_event(self, event: KvEvent) -> None:
        if not isinstance(event, BlockStored | BlockRemoved):
            # SGLang empties its host memory too. vLLM's event is the same whether its tiers were reset or not.
            self._forget_blocks()
            self._sequence.cleared()
            self._mark_whole()
            if self._groups.tail != NO_TAIL:
                self._sink.tail_declared(self._groups.tail)
        elif not in_engine_memory(event):
            self._apply_below(event)
        elif isinstance(event, BlockStored) and not self._groups.is_primary(event):
            self._pass_on(self._groups.other_stored(event))
        elif isinstance(event, BlockStored) and (named := named_keys(event)):
            self.blocks.named(event.block_hashes, named)
            self._sink.stored(named)
        elif isinstance(event, BlockStored):
            self._hides_adapters = self._hides_adapters or hides_adapter(event)
            event = self._take_media(event)
            domain = domain_of(event)
            if domain is not None:
                self._store(event, domain)
        elif self._groups.is_primary(event):
            self.counts["evicted"] += len(event.block_hashes)
            self._sink.removed(self.blocks.removed(event))
        else:
            self._pass_on(self._groups.other_removed(event))

    def _apply_below(self, event: BlockStored | BlockRemoved) -> None:
        """Apply blocks of a tier below engine memory. Tiers of unknown media and of hybrid models are ignored."""
        tier = tier_of(event)
        self.counts["unknown_medium" if tier is None else "below_engine"] += 1
        if tier is None or self._groups.others or not (event.group_idx == 0 or self._groups.is_primary(event)):
            return
        if isinstance(event, BlockRemoved):
            self._sink.tier_changed(tier, False, self.tiers.removed(tier, event))
            return
        domain = domain_of(event)
        if event.extra_keys is None and event.cache_salt is None and self.counts["salted"]:
            # vLLM's offloading leaves the salt out.
            domain = None
        seed = None if domain is None else self._seed_of(domain, event.lora_name or "")
        self._sink.tier_changed(tier, True, self.tiers.stored(tier, event, seed))
        for name, key in self.tiers.take_dropped():
            self._sink.tier_changed(name, False, [key])

    def _pass_on(self, changes: list[PartChange]) -> None:
        for change in changes:
            if change.part == FULL:
                (self._sink.stored if change.stored else self._sink.removed)(change.keys)
            else:
                self._sink.tail_changed(change)

    def _take_media(self, event: BlockStored) -> BlockStored:
        """Store the media of the event's blocks; return an event with the blocks before them."""
        if event.block_size != self._block_tokens or hides_adapter(event):
            return event
        media = media_of(event)
        if not media or len(event.token_ids) != len(event.block_hashes) * event.block_size:
            return event
        self.counts["media"] += 1
        keys = self.blocks.stored_media(event, media, self._seed_of("", event.lora_name or ""))
        if keys and not self._groups.others:
            self._sink.stored(keys)
        elif keys:
            self._pass_on(self._groups.held_by_all(event.block_hashes))
        for entry in {item.name: item for there in media for item in there}.values():
            self._sink.medium_stored(entry.name, entry.position + 1)
        return before_media(event, media)

    def _store(self, event: BlockStored, domain: str) -> None:
        if event.block_size != self._block_tokens:
            self._foreign_block_size = event.block_size
            return
        self._foreign_block_size = 0
        if len(event.token_ids) != len(event.block_hashes) * event.block_size:
            # Without full attention, nothing names the tokens of a block that such an event leaves out.
            self.counts["sparse"] += 1
            return
        if domain:
            self.counts["salted"] += 1
        keys = self.blocks.stored(event, self._seed_of(domain, event.lora_name or ""))
        if keys and not self._groups.others:
            before = event.parent_block_hash
            self._sink.stored(keys, None if before is None else self.blocks.key_of(before))
        elif keys:
            self._pass_on(self._groups.held_by_all(event.block_hashes))
        dropped = self.blocks.take_dropped()
        if dropped:
            self._sink.removed(dropped)
        if self._rebuilt_at:
            self._stored_since_loss += len(event.block_hashes)
            if self._stored_since_loss >= self._rebuilt_at:
                # As many blocks came in as were known before, so that the old ones have been evicted.
                self._sequence.cleared()
                self._mark_whole()
