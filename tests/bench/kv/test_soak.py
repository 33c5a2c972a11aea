"""The verdict of the node managers' soak: faults in a history that it must report, and events it must accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.kv.soak import Soak
from bench.kv.soak_run.faults import UNDONE_BY, schedule
from bench.kv.soak_run.history import EVERY_NODE, HistoryWriter, Operation, read_history
from bench.kv.soak_run.known_blocks import known, tenant_of
from bench.kv.soak_run.verdict import Kill, whole_purges, wrong_hits, wrong_locks, wrong_operations

NODES = 2
NAME = "shared-3"
TENANT = tenant_of(NAME)


def operation(kind: str, began: float, ended: float | None = None, **fields: Any) -> Operation:
    known_fields: dict[str, Any] = {"node": 0, "names": [NAME], "outcome": "done", "client": "c0"}
    return Operation(kind, **{**known_fields, "began": began, "ended": ended or began + 0.5, **fields})


def hit(began: float, **fields: Any) -> Operation:
    return operation("get", began, hits=[NAME], **fields)


def purge(began: float, outcome: str = "done") -> list[Operation]:
    rows = [(0, "done"), (1, outcome)]
    return [
        operation("purge", began + node, node=node, names=[], tenant=TENANT, outcome=done, client="c1")
        for node, done in rows
    ]


def test_get_of_a_stored_block_may_hit_or_miss() -> None:
    history = [operation("put", 1.0), hit(2.0), operation("get", 3.0), hit(4.0, node=EVERY_NODE)]
    assert wrong_operations(history, NODES, []) == []


def test_get_with_other_bytes_is_reported() -> None:
    (wrong,) = wrong_operations([operation("put", 1.0), hit(2.0, wrong=[NAME])], NODES, [])
    assert "other bytes" in wrong


@pytest.mark.parametrize(
    "before",
    [
        [],
        [operation("put", 1.0, outcome="rejected", reason="no_room")],
        [operation("put", 1.0, node=1)],
        [operation("put", 3.0)],
        [operation("allocate", 1.0), operation("write", 1.5), operation("abort", 1.8)],
        [operation("put", 0.0), *purge(0.6)],
    ],
)
def test_hit_without_a_put_is_reported(before: list[Operation]) -> None:
    (wrong,) = wrong_hits(sorted([*before, hit(2.2)], key=lambda item: item.began), NODES)
    assert "no client had put this: shared-3" in wrong


@pytest.mark.parametrize(
    "before",
    [
        [operation("put", 1.0, outcome="")],
        [operation("put", 1.0, outcome="rejected", reason="locked")],
        [operation("put", 0.1, outcome="broken"), *purge(0.6)],
        [operation("put", 0.0, 0.9), *purge(0.6)],
        [operation("put", 0.0), *purge(0.6, "broken")],
        [operation("put", 0.0), *purge(1.5)],
        [operation("pull", 1.0)],
        [operation("commit", 1.0)],
    ],
)
def test_hit_after_an_unconfirmed_put_is_accepted(before: list[Operation]) -> None:
    assert wrong_hits(sorted([*before, hit(2.2)], key=lambda item: item.began), NODES) == []


def test_only_a_purge_of_all_nodes_counts() -> None:
    assert whole_purges(purge(1.0), NODES) == {TENANT: [(1.0, 2.5)]}
    assert whole_purges(purge(1.0, "rejected"), NODES) == {}
    assert whole_purges([*purge(1.0)[:1], *purge(3.0)], NODES) == {TENANT: [(3.0, 4.5)]}


def allocated(began: float, tx_id: str, **fields: Any) -> Operation:
    return operation("allocate", began, began + 0.1, **{"tx_id": tx_id, "hits": [NAME], "lease_s": 5.0, **fields})


@pytest.mark.parametrize("other", [allocated(2.0, "b"), operation("put", 2.0, hits=[NAME])])
def test_locked_block_belongs_to_one_transaction(other: Operation) -> None:
    (wrong,) = wrong_locks([allocated(1.0, "a"), other], [])
    assert "another transaction" in wrong


@pytest.mark.parametrize(
    ("history", "kills"),
    [
        ([allocated(1.0, "a"), allocated(7.0, "b")], []),
        ([allocated(1.0, "a"), allocated(2.0, "b")], [(0, 1.5, 1.6)]),
        ([allocated(1.0, "a"), allocated(2.0, "b")], [(0, 0.9, 1.4)]),
        ([allocated(1.0, "a"), allocated(2.0, "b", node=1)], []),
        ([allocated(1.0, "a"), allocated(2.0, "b", outcome="rejected")], []),
        ([allocated(1.0, "a"), allocated(2.0, "b", hits=[])], []),
        ([allocated(1.0, "a"), operation("abort", 1.5, tx_id="a"), allocated(2.0, "b")], []),
        ([allocated(1.0, "a"), operation("purge", 1.2, tenant=TENANT), allocated(2.0, "b")], []),
    ],
)
def test_expired_lock_has_no_effect(history: list[Operation], kills: list[Kill]) -> None:
    assert wrong_locks(history, kills) == []


def test_kill_ends_only_locks_of_that_run_of_that_node() -> None:
    history = [allocated(1.0, "a"), allocated(2.0, "b")]
    assert wrong_locks(history, [(1, 1.4, 1.5)]) and wrong_locks(history, [(0, 0.5, 0.9)])


@pytest.mark.parametrize("kind", ["ephemeral", "damaged"])
def test_accepted_put_that_must_be_rejected_is_reported(kind: str) -> None:
    put = operation("put", 1.0, names=[f"{kind}-1"])
    assert len(wrong_operations([put], NODES, [])) == 1
    assert len(wrong_hits([put, operation("get", 2.0, hits=[f"{kind}-1"])], NODES)) == 1


def test_history_of_a_killed_client_is_read_up_to_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "c0"
    writer = HistoryWriter(path, "c0")
    with writer.noting(Operation("put", 0, [NAME])) as done:
        done.outcome = "done"
    with pytest.raises(RuntimeError), writer.noting(Operation("get", 0, [NAME])):
        raise RuntimeError("killed")
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"pu')
    first, second = read_history([path])
    assert (first.kind, first.outcome) == ("put", "done")
    assert first.ended is not None
    assert (second.kind, second.ended) == ("get", None)


@pytest.mark.parametrize("seed", range(20))
def test_seed_determines_all_faults_and_each_is_reverted(seed: int) -> None:
    faults = schedule(seed, 30.0, 3, 3)
    assert faults == schedule(seed, 30.0, 3, 3)
    assert all(0.0 < fault.at_s <= 30.0 for fault in faults)
    for kind, undone in UNDONE_BY.items():
        for target in range(3):
            turns = [fault.kind for fault in faults if fault.target == target and fault.kind in (kind, undone)]
            assert turns == [kind, undone] * (len(turns) // 2)


def test_block_content_is_derived_from_its_name() -> None:
    one = known(NAME)
    assert len(one.payload) == one.facts.length
    assert one.facts.parent == known("shared-2").facts.key
    assert known("shared-8").facts.parent == b""
    assert known("shared-4").payload != one.payload


def test_client_that_is_starting_at_the_end_is_accepted(tmp_path: Path) -> None:
    run = Soak(tmp_path, 1)
    try:
        run.start_client(0)
        run.end_clients()
        assert run.wrong == []
        assert run.history()
    finally:
        run.close()
