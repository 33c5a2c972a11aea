"""Problems of the state directory's disk, with numbers and the fix, for the doctor and the Fleet page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from django.db import connection

from controlplane.kv_nodes.models.kv_node import LIVE, KvNodeReport
from controlplane.platform.format import byte_size, some_names
from kvstore.node.disk_space import DiskSpace, usual_reserve
from kvstore.node.node_report import NodeReport
from routing.values.prepared_struct import prepared

MIB = 1 << 20
FULL_BYTES, FULL_PART = 200 * MIB, 50
"""A disk is full if less space is free: this many bytes or this fraction (1/50), whichever is smaller."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class DiskProblem:
    """One sentence about the problem, and one about the fix."""

    is_full: bool
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SharingNode:
    """A KV node whose SSD tier is on the same file system."""

    name: str
    held_bytes: int
    reserve_bytes: int


def is_full(space: DiskSpace) -> bool:
    """Return whether the next write may fail."""
    return space.free_bytes < min(FULL_BYTES, space.total_bytes // FULL_PART)


def is_nearly_full(space: DiskSpace) -> bool:
    """Return whether less than half of the node managers' reserve is free, so that they cannot free enough space."""
    return space.free_bytes < usual_reserve(space.total_bytes) // 2


def state_disk_problem(space: DiskSpace) -> DiskProblem | None:
    """Return the problem of the state directory's disk, based on the nodes' reports; None: no problem."""
    return disk_problem(space, _nodes_on(space.disk_id), with_database=connection.vendor == "sqlite")


def disk_problem(space: DiskSpace, sharing: Iterable[SharingNode], *, with_database: bool) -> DiskProblem | None:
    """Return the problem of a disk that these nodes share; None: no problem."""
    nodes = sorted(sharing, key=lambda node: (-node.held_bytes, node.name))
    names, held = some_names([node.name for node in nodes], _NAMED), sum(node.held_bytes for node in nodes)
    free = f"{byte_size(space.free_bytes)} of {byte_size(space.total_bytes)} free"
    if is_nearly_full(space):
        full = is_full(space)
        holds = "the database, the logs" if with_database else "the logs"
        sentence = f"The state directory’s disk is {'full' if full else 'nearly full'}: {free}. "
        sentence += f"It holds {holds} and the gateway’s snapshot."
        if nodes:
            sentence += f" The SSD tiers of KV nodes share it: {names} with {byte_size(held)}."
        return DiskProblem(full, sentence, _cure(nodes))
    wanted = usual_reserve(space.total_bytes)
    greedy = [node for node in nodes if node.reserve_bytes < wanted // 2]
    if not greedy:
        return None
    names, least = some_names([node.name for node in greedy], _NAMED), min(node.reserve_bytes for node in greedy)
    return DiskProblem(
        False,
        f"The SSD tiers of KV nodes share the state directory’s disk and leave {byte_size(least)} of it free: {names}.",
        f"Start them with --disk-reserve-mib {wanted // MIB}, or with --directory on a disk of its own.",
    )


def _cure(nodes: list[SharingNode]) -> str:
    if nodes:
        return (
            "Free space, lower --ssd-mib of these nodes, or start them with --directory on a disk of its own. "
            "No restart of Headway is needed."
        )
    return "Free space, or set HEADWAY_STATE_DIR to a larger disk. Once there is space, no restart is needed."


def _nodes_on(disk_id: str) -> list[SharingNode]:
    """Return the nodes that report an SSD tier on this file system."""
    if not disk_id:
        return []
    reports = KvNodeReport.objects.filter(node__state__in=LIVE, content__disk_id=disk_id)
    rows = reports.values_list("node__name", "node__slot_bytes", "content")
    return [node for name, slot_bytes, content in rows if (node := _sharing(name, slot_bytes, content)) is not None]


def _sharing(name: str, slot_bytes: int, content: object) -> SharingNode | None:
    try:
        report = msgspec.convert(content, prepared(NodeReport))
    except msgspec.ValidationError:
        return None
    used = [tier.used_slots for tier in report.tiers if tier.medium == "STORAGE" and tier.slots]
    return SharingNode(name, sum(used) * slot_bytes, report.disk_reserve_bytes) if used else None
