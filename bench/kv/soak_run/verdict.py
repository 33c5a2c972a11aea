"""Checks the history of a soak: every get returned what was put, or nothing, and locks were respected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from bench.kv.soak_run.history import EVERY_NODE, Operation
from bench.kv.soak_run.known_blocks import tenant_of

Kill = tuple[int, float, float]
"""Number of a node, when its killing began, and when its process was gone: it may have served in between."""

_WRITES = ("put", "pull", "commit")


def wrong_operations(history: Sequence[Operation], nodes: int, kills: Sequence[Kill]) -> list[str]:
    """Return what contradicts the contract, in words; empty: nothing."""
    wrong = [_line(each, "other bytes than were put", each.wrong) for each in history if each.wrong]
    wrong += [_line(each, "took effect", each.names) for each in history if _must_fail(each) and _done(each)]
    return wrong + wrong_hits(history, nodes) + wrong_locks(history, kills)


def wrong_hits(history: Sequence[Operation], nodes: int) -> list[str]:
    """Return gets that found a block which nobody had put there since it was purged everywhere."""
    writes: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        if each.kind in _WRITES and not _had_no_effect(each) and not _must_fail(each):
            for name in each.names:
                writes[name].append(each)
    purges = whole_purges(history, nodes)
    found = []
    for get in history:
        if get.kind != "get":
            continue
        unexplained = [name for name in get.found if not _is_explained(get, writes[name], purges[tenant_of(name)])]
        if unexplained:
            found.append(_line(get, "nobody had put this", unexplained))
    return found


def whole_purges(history: Iterable[Operation], nodes: int) -> dict[str, list[tuple[float, float]]]:
    """Return per tenant when purges began and ended that every node, one after the other, said it has done."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    rows: dict[str, list[Operation]] = defaultdict(list)
    for each in history:
        if each.kind != "purge":
            continue
        row = rows[each.client]
        if each.node == 0:
            row.clear()
        row.append(each)
        if [one.node for one in row] == list(range(nodes)) and all(_done(one) for one in row):
            found[each.tenant].append((row[0].began, _end(row[-1])))
    return found


def wrong_locks(history: Sequence[Operation], kills: Sequence[Kill]) -> list[str]:
    """Return what got a new block that another transaction had locked for all of the time."""
    ends = {each.tx_id: each.began for each in history if each.kind in ("commit", "abort")}
    held: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    purges = [(each.node, each.tenant, each.began, _end(each)) for each in history if each.kind == "purge"]
    wrong = []
    for each in history:
        if each.kind not in ("allocate", "put", "pull") or not _done(each):
            continue
        for name in each.found:
            before = held[each.node, name]
            if any(began < each.began and _end(each) < ended for began, ended in before):
                wrong.append(_line(each, "another transaction had locked this", [name]))
            if each.kind == "allocate":
                ended_by = [
                    max(began, each.began) for node, began, ended in kills if node == each.node and ended >= each.began
                ]
                ended_by += [
                    max(began, each.began)
                    for node, tenant, began, ended in purges
                    if node == each.node and tenant == tenant_of(name) and ended >= each.began
                ]
                until = min([ends.get(each.tx_id, inf), each.began + each.lease_s, *ended_by])
                before.append((_end(each), until))
    return wrong


def _is_explained(get: Operation, writes: Sequence[Operation], purges: Sequence[tuple[float, float]]) -> bool:
    since = max((began for began, ended in purges if ended < get.began), default=-inf)
    return any(
        get.node in (write.node, EVERY_NODE) and write.began < _end(get) and _end(write) > since for write in writes
    )


def _end(operation: Operation) -> float:
    """Return when it was over; what was broken off may still take effect at the node."""
    return inf if operation.ended is None or operation.outcome == "broken" else operation.ended


def _had_no_effect(operation: Operation) -> bool:
    """Return whether nothing can have come of it.

    A client asks again where a kept connection breaks. Its second attempt may find the blocks locked by the first,
    which the node is still carrying out.
    """
    return operation.outcome == "rejected" and operation.reason != "locked"


def _must_fail(operation: Operation) -> bool:
    """Return whether it puts what no node may take."""
    return operation.kind == "put" and operation.names[0].startswith(("ephemeral-", "damaged-"))


def _done(operation: Operation) -> bool:
    return operation.outcome == "done"


def _line(operation: Operation, what: str, names: Sequence[str]) -> str:
    place = "any node" if operation.node == EVERY_NODE else f"node {operation.node}"
    when = f"{operation.began:.3f}–{_end(operation):.3f}"
    return f"{operation.client} {operation.kind} at {place} {when}: {what}: {', '.join(names[:4])}"
