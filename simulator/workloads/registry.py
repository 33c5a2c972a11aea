"""The table that maps names of workloads to their generators and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from routing.values.prepared_struct import prepared
from simulator.workloads.conversation_like import WorkloadShape, conversation_like
from simulator.workloads.multi_turn_chat import MultiTurnChatShape, multi_turn_chat
from simulator.workloads.shared_prefix import DocumentQaShape, SharedPrefixShape, document_qa, shared_prefix
from simulator.workloads.toolagent_like import ToolagentLikeShape, toolagent_like
from simulator.workloads.trace import TraceRow


class WrongWorkloadError(ValueError):
    """No workload has this name, or a setting is invalid. The message lists the known names or the invalid setting."""


class WorkloadKind(msgspec.Struct, frozen=True):
    """A generator, the type of its settings, and the default number of requests (None for all)."""

    rows: Callable[[int, Any], Iterator[TraceRow]]
    shape: type[msgspec.Struct]
    default_rows: int | None


WORKLOADS: dict[str, WorkloadKind] = {
    # These two: as many requests as the published traces have.
    "conversation_like": WorkloadKind(conversation_like, WorkloadShape, 12_031),
    "toolagent_like": WorkloadKind(toolagent_like, ToolagentLikeShape, 23_608),
    "gsp": WorkloadKind(shared_prefix, SharedPrefixShape, None),
    "multi_turn_chat": WorkloadKind(multi_turn_chat, MultiTurnChatShape, None),
    "document_qa": WorkloadKind(document_qa, DocumentQaShape, None),
}


def generate_workload(
    name: str, *, seed: int = 0, rows: int | None = None, settings: Mapping[str, object] | None = None
) -> list[TraceRow]:
    """Return the first `rows` requests of a workload ordered by arrival; raise WrongWorkloadError."""
    kind = workload_named(name)
    wanted = kind.default_rows if rows is None else rows
    if wanted is None and getattr(shape_of(name, settings), "sessions", 1) == 0:
        raise WrongWorkloadError(f"{name} without end of sessions needs a number of rows")
    return list(islice(kind.rows(seed, shape_of(name, settings)), wanted))


def shape_of(name: str, settings: Mapping[str, object] | None = None) -> msgspec.Struct:
    """Return the settings of a workload with defaults filled in; raise WrongWorkloadError with all problems."""
    kind = workload_named(name)
    known = {field.name: field.type for field in msgspec.structs.fields(kind.shape)}
    values: dict[str, object] = {}
    faults = []
    for setting, value in (settings or {}).items():
        if setting not in known:
            faults.append(f"unknown setting {setting!r}; known are {', '.join(known)}")
            continue
        try:
            values[setting] = msgspec.convert(value, prepared(known[setting]), strict=False)
        except msgspec.ValidationError as error:
            faults.append(f"{setting}: {error}")
    if faults:
        raise WrongWorkloadError(f"workload {name}: {'; '.join(faults)}")
    return kind.shape(**values)


def workload_named(name: str) -> WorkloadKind:
    """Return the workload with that name; raise WrongWorkloadError if there is none."""
    kind = WORKLOADS.get(name)
    if kind is None:
        raise WrongWorkloadError(f"workload {name!r} is unknown; known are {', '.join(sorted(WORKLOADS))}")
    return kind
