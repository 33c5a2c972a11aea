"""The sequence of event batches: gaps, duplicates, restarts and truncated histories."""

from __future__ import annotations

from gateway.pools.events.event_sequence import APPLY, ASK, IGNORE, LOST, RESTARTED, EventSequence


def following(*payloads: bytes) -> EventSequence:
    """Return a sequence that has applied these batches from 0 on."""
    sequence = EventSequence()
    assert sequence.start_replay() == 0
    for seq, payload in enumerate(payloads):
        assert sequence.replayed(seq, payload) == APPLY
    assert sequence.end_replay() == IGNORE
    assert sequence.complete
    return sequence


def test_no_live_batch_is_applied_before_the_first_replay() -> None:
    assert EventSequence().live(0, b"a") == ASK


def test_an_engine_without_history_is_complete_from_the_start() -> None:
    sequence = following()
    assert sequence.complete
    assert sequence.live(0, b"a") == APPLY


def test_batches_in_order_are_applied_and_duplicates_ignored() -> None:
    sequence = following(b"a", b"b")
    assert sequence.live(2, b"c") == APPLY
    assert sequence.live(1, b"b") == IGNORE
    assert sequence.live(2, b"c") == IGNORE
    sequence.check()


def test_a_gap_requests_a_replay_from_the_last_applied_batch() -> None:
    sequence = following(b"a", b"b")
    assert sequence.live(4, b"e") == ASK
    assert sequence.start_replay() == 1
    assert [sequence.replayed(seq, payload) for seq, payload in [(1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]] == [
        IGNORE,
        APPLY,
        APPLY,
        APPLY,
    ]
    assert sequence.end_replay() == IGNORE
    assert sequence.complete
    assert sequence.next_seq == 5


def test_a_different_batch_with_the_last_number_is_a_restart() -> None:
    sequence = following(b"a", b"b")
    assert sequence.live(0, b"A") == ASK
    assert sequence.start_replay() == 1
    assert sequence.replayed(1, b"B") == RESTARTED
    assert not sequence.replaying
    assert sequence.start_replay() == 0


def test_a_sequence_number_behind_ours_is_a_restart() -> None:
    sequence = following(b"a", b"b")
    sequence.start_replay()
    assert sequence.end_replay() == RESTARTED
    assert sequence.start_replay() == 0


def test_a_history_that_starts_after_the_gap_is_lost_and_resumes() -> None:
    sequence = following(b"a", b"b")
    sequence.start_replay()
    assert sequence.replayed(7, b"h") == LOST
    assert sequence.replayed(8, b"i") == APPLY
    assert sequence.end_replay() == IGNORE
    assert not sequence.complete
    assert sequence.next_seq == 9
    sequence.cleared()
    assert sequence.complete


def test_a_gap_within_a_replay_is_a_loss() -> None:
    sequence = following(b"a")
    sequence.start_replay()
    assert sequence.replayed(0, b"a") == IGNORE
    assert sequence.replayed(2, b"c") == LOST
    assert not sequence.complete


def test_a_history_that_starts_late_is_incomplete() -> None:
    sequence = EventSequence()
    sequence.start_replay()
    assert sequence.replayed(100, b"x") == APPLY
    assert sequence.end_replay() == IGNORE
    assert not sequence.complete


def test_an_abandoned_replay_changes_nothing() -> None:
    sequence = following(b"a")
    sequence.start_replay()
    sequence.abandon_replay()
    assert sequence.live(1, b"b") == APPLY
    assert sequence.complete


def test_without_a_replay_socket_a_gap_is_skipped_and_reported_as_lost() -> None:
    sequence = EventSequence()
    assert sequence.jump(0, b"a") == APPLY
    assert sequence.complete
    assert sequence.jump(5, b"f") == LOST
    assert not sequence.complete
    assert sequence.live(6, b"g") == APPLY


def test_a_bounded_number_of_batches_is_remembered() -> None:
    sequence = following()
    for seq in range(5000):
        assert sequence.live(seq, b"%d" % seq) == APPLY
    sequence.check()
    assert sequence.live(10, b"10") == ASK
