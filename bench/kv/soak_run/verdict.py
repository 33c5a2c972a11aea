"""Check the history of a soak: every get returned what was put or a miss, and locks were respected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from bench.kv.soak_run.history import EVERY_NODE, Operation
from bench.kv.soak_run.known_blocks import tenant_of

Kill = tuple[int, float, float]
"""Number of a node, when it was signaled to die, and when its process was gone. It can have served in between."""

_WRITES = ("put", "pull", "commit")


def wrong_operations(history: Sequence[Operation], nodes: int, kills: Sequence[Kill]) -> list[str]:
    """Return a sentence for each violation of the contract."""
    wrong = [_line(item, "other bytes than were put", item.wrong) for item in history if item.wrong]
    wrong += [_line(item, "took effect", item.names) for item in history if _must_fail(item) and _done(item)]
    return wrong + wrong_hits(history, nodes) + wrong_locks(history, kills)


def wrong_hits(history: Sequence[Operation], nodes: int) -> list[str]:
    """Return gets that hit a block which no client had put since it was purged on every node."""
    writes: dict[str, list[Operation]] = defaultdict(list)
    for item in history:
        if item.kind in _WRITES and not _had_no_effect(item) and not _must_fail(item):
            for name in item.names:
                writes[name].append(item)
    purges = whole_purges(history, nodes)
    wrong = []
    for get in history:
        if get.kind != "get":
            continue
        unexplained = [name for name in get.hits if not _is_explained(get, writes[name], purges[tenant_of(name)])]
        if unexplained:
            wrong.append(_line(get, "no client had put this", unexplained))
    return wrong


def whole_purges(history: Iterable[Operation], nodes: int) -> dict[str, list[tuple[float, float]]]:
    """Return, by tenant, the start and end of purges that all nodes reported as done."""
    purges: dict[str, list[tuple[float, float]]] = defaultdict(list)
    rows: dict[str, list[Operation]] = defaultdict(list)
    for item in history:
        if item.kind != "purge":
            continue
        row = rows[item.client]
        if item.node == 0:
            row.clear()
        row.append(item)
        if [one.node for one in row] == list(range(nodes)) and all(_done(one) for one in row):
            purges[item.tenant].append((row[0].began, _end(row[-1])))
    return purges


def wrong_locks(history: Sequence[Operation], kills: Sequence[Kill]) -> list[str]:
    """Return operations that got a new block which another transaction had locked throughout."""
    ends = {item.tx_id: item.began for item in history if item.kind in ("commit", "abort")}
    held: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    purges = [(item.node, item.tenant, item.began, _end(item)) for item in history if item.kind == "purge"]
    wrong = []
    for item in history:
        if item.kind not in ("allocate", "put", "pull") or not _done(item):
            continue
        for name in item.hits:
            before = held[item.node, name]
            # Only a lock that surely held all the time is a violation: borders may have been crossed in between.
            if any(began < item.began and _end(item) < ended for began, ended in before):
                wrong.append(_line(item, "another transaction had locked this", [name]))
            if item.kind == "allocate":
                ended_by = [
                    max(began, item.began) for node, began, ended in kills if node == item.node and ended >= item.began
                ]
                ended_by += [
                    max(began, item.began)
                    for node, tenant, began, ended in purges
                    if node == item.node and tenant == tenant_of(name) and ended >= item.began
                ]
                until = min([ends.get(item.tx_id, inf), item.began + item.lease_s, *ended_by])
                before.append((_end(item), until))
    return wrong


def _is_explained(get: Operation, writes: Sequence[Operation], purges: Sequence[tuple[float, float]]) -> bool:
    since = max((began for began, ended in purges if ended < get.began), default=-inf)
    return any(
        get.node in (write.node, EVERY_NODE) and write.began < _end(get) and _end(write) > since for write in writes
    )


def _end(operation: Operation) -> float:
    """Return when it ended. A broken operation can still take effect on the node."""
    return inf if operation.ended is None or operation.outcome == "broken" else operation.ended


def _had_no_effect(operation: Operation) -> bool:
    """Return whether it certainly had no effect.

    A client retries when a pooled connection breaks. Its second attempt can meet blocks that the first one has locked
    and that the node is still processing.
    """
    return operation.outcome == "rejected" and operation.reason != "locked"


def _must_fail(operation: Operation) -> bool:
    """Return whether it puts data that a node must reject."""
    return operation.kind == "put" and operation.names[0].startswith(("ephemeral-", "damaged-"))


def _done(operation: Operation) -> bool:
    return operation.outcome == "done"


def _line(operation: Operation, what: str, names: Sequence[str]) -> str:
    where = "any node" if operation.node == EVERY_NODE else f"node {operation.node}"
    when = f"{operation.began:.3f}–{_end(operation):.3f}"
    return f"{operation.client} {operation.kind} at {where} {when}: {what}: {', '.join(names[:4])}"
