"""The event ledger turns events into index changes that equal the engine's cache, whatever the wire does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import BLIND, DEGRADED, EXACT, EventLedger
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent, encode_batch
from kvstore.events.node_blocks import extra_key
from kvstore.keys.block_keys import token_block_keys
from tests.gateway.pools.events.held_keys import Held

SEED = 7
BLOCK = 2
SETTINGS = EventSettings(max_pending=64, rebuild_blocks=4)


def key(prompt: int) -> int:
    """Return our key of the one-block prompt that `stored` stores."""
    return token_block_keys(SEED, [prompt, prompt], BLOCK)[0]


def stored(prompt: int, process: int = 0, **fields: object) -> BlockStored:
    """Return the event of one block, with a hash that differs between processes."""
    return BlockStored([process * 1000 + prompt], None, [prompt, prompt], BLOCK, **fields)  # type: ignore[arg-type]


def batch(*events: KvEvent, ts: float = 0.0) -> bytes:
    return encode_batch(EventBatch(ts, list(events)))


def ledger(held: Held, settings: EventSettings = SETTINGS) -> EventLedger:
    return EventLedger(held, seed_of, BLOCK, settings)


def seed_of(domain: str, lora: str = "") -> int:
    return SEED + len(domain) + 100 * len(lora)


def replay(book: EventLedger, history: Sequence[tuple[int, bytes]]) -> None:
    """Answer the replays that the ledger requests from `history`, as an engine would."""
    for _ in range(20):
        if not book.wanted:
            return
        run_replay(book, history)
    raise AssertionError("the ledger never stops asking")


def run_replay(book: EventLedger, history: Sequence[tuple[int, bytes]]) -> None:
    start = book.start_replay()
    for seq, payload in history:
        if seq >= start and not book.replayed(seq, payload):
            return
    book.end_replay()


def whole(*payloads: bytes) -> tuple[EventLedger, Held, list[tuple[int, bytes]]]:
    held = Held()
    book = ledger(held)
    history = list(enumerate(payloads))
    replay(book, history)
    return book, held, history


def test_the_ledger_is_blind_until_the_first_message() -> None:
    book = ledger(Held())
    assert book.trust.grade == BLIND
    replay(book, [])
    assert book.trust.grade == EXACT


def test_the_first_replay_restores_a_warm_cache() -> None:
    book, held, _ = whole(batch(stored(1)), batch(stored(2)), batch(BlockRemoved([1])))
    assert held.keys == {key(2)}
    assert book.trust.grade == EXACT


def test_live_batches_wait_for_the_replay_and_follow_it() -> None:
    held = Held()
    book = ledger(held)
    book.start_replay()
    book.live(1, batch(stored(2)))
    assert held.keys == set()
    book.replayed(0, batch(stored(1)))
    book.end_replay()
    assert held.keys == {key(1), key(2)}
    assert not book.wanted


def test_a_waiting_batch_that_the_replay_contains_is_not_applied_twice() -> None:
    held = Held()
    book = ledger(held)
    book.start_replay()
    book.live(0, batch(stored(1)))
    book.replayed(0, batch(stored(1)))
    book.replayed(1, batch(BlockRemoved([1])))
    book.end_replay()
    assert held.keys == set()


def test_a_gap_degrades_trust_until_it_is_replayed() -> None:
    book, held, history = whole(batch(stored(1)))
    history += [(1, batch(BlockRemoved([1]))), (2, batch(stored(3)))]
    book.live(2, history[2][1])
    assert book.trust.grade == DEGRADED
    assert "replayed" in book.trust.reason
    replay(book, history)
    assert held.keys == {key(3)}
    assert book.trust.grade == EXACT
    assert book.counts["gaps"] == 1


def test_a_restart_clears_the_index_and_is_reported() -> None:
    book, held, _ = whole(batch(stored(1)), batch(stored(2)))
    fresh = [(0, batch(stored(9, process=1), ts=5.0))]
    book.live(*fresh[0])
    replay(book, fresh)
    assert held.restarts == 1
    assert held.keys == {key(9)}
    assert book.trust.grade == EXACT


@pytest.mark.parametrize("answered", [0, 1, 3], ids=["empty", "one batch", "all"])
def test_a_replay_requested_before_a_resync_counts_no_second_restart(answered: int) -> None:
    book, held, _ = whole(batch(stored(1)), batch(stored(2)))
    book.disconnected()
    asked_from = book.start_replay()
    # The caller has noticed the restart, and counted it.
    book.resync()
    fresh = [(seq, batch(stored(prompt, process=1))) for seq, prompt in enumerate((4, 5, 6))]
    over = any(not book.replayed(seq, payload) for seq, payload in fresh[asked_from : asked_from + answered])
    if not over:
        book.end_replay()
    assert book.wanted == "start"
    assert (held.restarts, book.counts["restarts"]) == (0, 0)
    replay(book, fresh)
    assert held.keys >= {key(4), key(5), key(6)}
    assert (held.restarts, book.trust.grade) == (0, EXACT)


def test_a_gap_lost_from_the_replay_buffer_clears_the_index_and_degrades_trust() -> None:
    book, held, history = whole(batch(stored(1)))
    history += [(seq, batch(stored(seq))) for seq in range(1, 50)]
    book.live(*history[-1])
    replay(book, history[40:])
    assert key(1) not in held.keys
    assert key(49) in held.keys
    assert book.trust.grade == EXACT, "ten blocks were stored again, more than were known"
    book.live(60, batch(stored(60)))
    replay(book, [(60, batch(stored(60)))])
    assert book.trust.grade == DEGRADED
    for seq in range(61, 64):
        book.live(seq, batch(stored(seq)))
    assert book.trust.grade == DEGRADED
    for seq in range(64, 72):
        book.live(seq, batch(stored(seq)))
    assert book.trust.grade == EXACT


def test_a_batch_missing_from_the_engines_replay_is_ignored_as_a_stray() -> None:
    book, held, history = whole(batch(stored(1)))
    book.live(5, batch(stored(5)))
    replay(book, history)
    assert held.keys == {key(1)}
    assert book.counts["strays"] == 1
    assert book.trust.grade == EXACT


def test_replays_that_never_close_the_gap_are_abandoned() -> None:
    book, held, history = whole(batch(stored(1)))
    for count in range(SETTINGS.max_replays + 1):
        if not book.wanted and count:
            break
        book.start_replay()
        book.replayed(*history[0])
        book.live(5 + count, batch(stored(5 + count)))
        book.end_replay()
    assert not book.wanted
    assert book.counts["lost"] == 1
    assert key(1) not in held.keys


def test_without_replay_a_gap_clears_the_index() -> None:
    held = Held()
    book = ledger(held)
    for seq in (0, 1, 2):
        book.live(seq, batch(stored(seq)))
        book.give_up()
    assert held.keys == {key(0), key(1), key(2)}
    assert book.trust.grade == EXACT
    book.live(9, batch(stored(9)))
    book.give_up()
    assert held.keys == {key(9)}
    assert book.trust.grade == DEGRADED


def test_a_broken_connection_is_verified_and_nothing_is_cleared() -> None:
    book, held, history = whole(batch(stored(1)))
    book.disconnected()
    history.append((1, batch(stored(2))))
    book.live(*history[1])
    assert held.keys == {key(1)}
    replay(book, history)
    assert held.keys == {key(1), key(2)}
    assert held.restarts == 0


def test_a_restart_hidden_by_a_matching_sequence_number_is_detected_on_reconnect() -> None:
    book, held, _ = whole(batch(stored(1)), batch(stored(2)))
    book.disconnected()
    fresh = [(seq, batch(stored(10 + seq, process=1), ts=9.0)) for seq in range(3)]
    book.live(*fresh[2])
    replay(book, fresh)
    assert held.restarts == 1
    assert held.keys == {key(10), key(11), key(12)}


def test_an_unreadable_batch_is_counted_and_only_lowers_trust() -> None:
    book, held, _ = whole(batch(stored(1)))
    book.live(1, b"\xc1 garbage")
    book.live(2, batch(stored(2)))
    assert held.keys == {key(1), key(2)}
    assert book.counts["unreadable"] == 1
    assert book.trust.grade == DEGRADED
    for seq in range(3, 8):
        book.live(seq, batch(stored(seq)))
    assert book.trust.grade == EXACT


def test_an_all_blocks_cleared_event_clears_the_index_and_makes_it_exact() -> None:
    book, held, history = whole(batch(stored(1)))
    book.live(7, batch(stored(7)))
    replay(book, [*history, (7, batch(stored(7)))])
    assert book.trust.grade == DEGRADED
    book.live(8, batch(AllBlocksCleared()))
    assert held.keys == set()
    assert book.trust.grade == EXACT


@pytest.mark.parametrize(
    "event",
    [
        stored(1, medium="CPU"),
        stored(1, lora_name="adapter", extra_keys=[["an image", "adapter"]]),
        stored(1, extra_keys=[["an image", "salt"]]),
    ],
)
def test_blocks_that_our_requests_cannot_hit_are_not_indexed(event: BlockStored) -> None:
    book, held, _ = whole(batch(event))
    assert held.keys == set()
    assert book.trust.grade == EXACT


@pytest.mark.parametrize(
    "salted",
    [
        {"extra_keys": [[["cache_salt", "salt"]], None]},
        {"extra_keys": [["salt"], None]},
        {"cache_salt": "salt"},
    ],
    ids=["vLLM from 0.27", "vLLM up to 0.26", "SGLang"],
)
def test_a_salt_keys_its_blocks_and_their_children_by_its_domain(salted: dict[str, object]) -> None:
    first = BlockStored([1, 2], None, [1, 1, 2, 2], BLOCK, **salted)  # type: ignore[arg-type]
    child = BlockStored([3], 2, [3, 3], BLOCK)
    _, held, _ = whole(batch(first), batch(child))
    assert held.keys == set(token_block_keys(seed_of("salt"), [1, 1, 2, 2, 3, 3], BLOCK))


@pytest.mark.parametrize(
    ("extra", "salt"),
    [
        (None, ""),
        ([["sql"], ["sql"]], ""),
        ([[["lora", "sql"]], [["lora", "sql"]]], ""),
        ([["sql", ["cache_salt", "salt"]], ["sql"]], "salt"),
        ([["sql", "sql"], ["sql"]], "sql"),
    ],
    ids=["by its field alone", "by its name", "by a tagged name", "with a salt", "with a salt of its name, untagged"],
)
def test_blocks_of_an_adapter_and_their_children_have_its_keys(extra: list[object] | None, salt: str) -> None:
    first = BlockStored([1, 2], None, [1, 1, 2, 2], BLOCK, lora_name="sql", lora_id=1, extra_keys=extra)
    child = BlockStored([3], 2, [3, 3], BLOCK, lora_name="sql", extra_keys=None if extra is None else [extra[-1]])
    book, held, _ = whole(batch(first), batch(child))
    assert held.keys == set(token_block_keys(seed_of(salt, "sql"), [1, 1, 2, 2, 3, 3], BLOCK))
    assert book.trust.grade == EXACT


def test_an_adapter_known_only_by_number_degrades_the_index_and_gets_no_keys() -> None:
    book, held, _ = whole(batch(stored(1, lora_id=3)), batch(stored(2)))
    assert held.keys == {key(2)}
    assert book.trust.grade == DEGRADED
    assert "by number" in book.trust.reason
    book.live(2, batch(AllBlocksCleared()))
    assert book.trust.grade == EXACT


def test_a_different_block_size_blinds_the_index_and_states_the_remedy() -> None:
    book, held, _ = whole(batch(BlockStored([1], None, [1, 2, 3], 3)))
    assert held.keys == set()
    assert book.trust.grade == BLIND
    assert "block size" in book.trust.reason


def test_waiting_batches_are_bounded() -> None:
    held = Held()
    book = ledger(held)
    history = [(seq, batch(stored(seq))) for seq in range(200)]
    for item in history:
        book.live(*item)
        book.check()
    assert book.counts["dropped"] == 200 - SETTINGS.max_pending
    replay(book, history)
    assert held.keys == {key(seq) for seq in range(200)}


class Engine:
    """Reference engine with a cache, an event history of limited length, and restarts."""

    def __init__(self, buffer: int) -> None:
        self.buffer = buffer
        self.process = 0
        self.clock = 0.0
        self.truth: dict[int, int] = {}
        self.history: list[tuple[int, bytes]] = []
        self.next_seq = 0

    def do(self, action: str, prompt: int) -> tuple[int, bytes] | None:
        """Change the cache and return the batch of events; None after a restart."""
        self.clock += 1.0
        if action == "restart":
            self.process += 1
            self.truth.clear()
            self.history.clear()
            self.next_seq = 0
            return None
        event: KvEvent
        if action == "remove" and prompt in self.truth:
            self.truth[prompt] -= 1
            if not self.truth[prompt]:
                del self.truth[prompt]
            event = BlockRemoved([self.process * 1000 + prompt])
        elif action == "clear":
            self.truth.clear()
            event = AllBlocksCleared()
        else:
            self.truth[prompt] = self.truth.get(prompt, 0) + 1
            event = stored(prompt, self.process)
        message = (self.next_seq, batch(event, ts=self.clock))
        self.next_seq += 1
        self.history = [*self.history, message][-self.buffer :]
        return message

    def keys(self) -> set[int]:
        return {key(prompt) for prompt in self.truth}


actions = st.lists(
    st.tuples(
        st.sampled_from(["store"] * 5 + ["remove"] * 3 + ["clear", "restart"]),
        st.integers(0, 9),
        st.sampled_from(["deliver"] * 5 + ["lose", "double", "late", "hold"]),
        st.booleans(),
    ),
    max_size=70,
)


class Wire:
    """Deliver, lose, duplicate and reorder live batches; held batches come last."""

    def __init__(self, book: EventLedger) -> None:
        self._book = book
        self._late: list[tuple[int, bytes]] = []

    def carry(self, message: tuple[int, bytes], fate: str) -> None:
        if fate in ("late", "hold"):
            self._late.append(message)
            return
        if fate != "lose":
            self._book.live(*message)
        if fate == "double":
            self._book.live(*message)
        if fate == "deliver":
            self.catch_up()

    def catch_up(self) -> None:
        late, self._late = self._late, []
        for message in reversed(late):
            self._book.live(*message)


@settings(max_examples=100, deadline=None)
@given(actions, st.sampled_from([3, 10_000]))
def test_the_index_equals_the_engines_cache_whatever_the_wire_does(
    rows: list[tuple[str, int, str, bool]], buffer: int
) -> None:
    held, engine = Held(), Engine(buffer)
    book = ledger(held)
    wire = Wire(book)
    for action, prompt, fate, answer in rows:
        message = engine.do(action, prompt)
        if message is None:
            # A process that ends closes its connection; the intake's socket monitor reports that.
            book.disconnected()
        else:
            wire.carry(message, fate)
        if answer and book.wanted:
            run_replay(book, engine.history)
        book.check()
    wire.catch_up()
    replay(book, engine.history)
    # The sign of life that the intake asks for after a silence finds a lost last batch and a silent restart.
    run_replay(book, engine.history)
    replay(book, engine.history)
    assert held.keys <= engine.keys(), "a block that is not there must not be believed"
    if buffer == 10_000:
        assert held.keys == engine.keys()
        assert book.trust.grade == EXACT
    assert not book.wanted


def test_prefetched_blocks_are_known_by_our_keys_until_they_are_removed() -> None:
    """Their event has no token ids, because nodes store none."""
    keys = token_block_keys(SEED, [1, 1, 2, 2, 3, 3], BLOCK)
    names = [extra_key(item, b"12345678") for item in keys[:2]]
    book, held, _ = whole(batch(BlockStored([11, 12], None, [], BLOCK, extra_keys=names)))
    assert held.keys == set(keys[:2])
    book.live(1, batch(BlockStored([13], 12, [3, 3], BLOCK)))
    assert held.keys == set(keys), "a prompt goes on after them"
    book.live(2, batch(BlockRemoved([12])))
    assert held.keys == {keys[0], keys[2]}


def test_blocks_without_token_ids_and_without_our_keys_are_ignored() -> None:
    keys = token_block_keys(SEED, [1, 1], BLOCK)
    names = [extra_key(keys[0], b"12345678"), None]
    _, held, _ = whole(batch(BlockStored([11, 12], None, [], BLOCK, extra_keys=names)))
    assert held.keys == set()
