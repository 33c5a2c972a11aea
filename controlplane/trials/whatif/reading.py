"""Reads the inputs of a what-if from the database."""

from __future__ import annotations

from itertools import islice

import msgspec

from controlplane.policies import upgrade as policy_upgrade
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.recordings.kept_traces import recording_store
from controlplane.request_log.recordings.recorded_row import RecordedRow, read_recorded
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.conditions import Conditions, conditions_of, models_of
from controlplane.trials.whatif.engine_candidate import (
    as_it_would_route,
    engine_candidates,
    pool_engines,
)
from controlplane.trials.whatif.plan import WhatIfPlan
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.policy.schema_versions import SchemaError


class CannotRunError(ValueError):
    """The what-if cannot run in its current state. The message explains why."""


def plan_of(whatif: WhatIf) -> WhatIfPlan:
    """Return the plan. Raises CannotRunError, RecordingGoneError, TraceError, InvalidFieldsError."""
    if whatif.recording is None:
        raise CannotRunError("The recording was deleted; choose another one.")
    conditions = conditions_of(whatif.conditions)
    path = recording_store().path(whatif.recording.key)
    known = list(islice(read_recorded(path), conditions.max_requests))
    rows = [row for row in known if not row.unread]
    if not rows:
        raise CannotRunError("Each request of this recording was rejected before its prompt was read.")
    engines = pool_engines(whatif.pool)
    base = routing_of(whatif.base)
    if conditions.base_placement:
        base = msgspec.structs.replace(base, placement=Stage(name=conditions.base_placement))
    return WhatIfPlan(
        recording=path,
        rows=rows,
        conditions=conditions,
        base=as_it_would_route(base, engines.learned),
        draft=as_it_would_route(routing_of(whatif.draft), engines.learned),
        checked_version=(whatif.draft if conditions.base_placement else whatif.base).number,
        engines=_engines(conditions, rows, engines.ready),
        engine_candidates=engine_candidates(base, engines.learned, engines.kv_tokens, models_of(conditions)),
        block_tokens=whatif.pool.block_tokens,
        unread=tuple(row for row in known if row.unread),
        kv_nodes=engines.kv_nodes,
    )


def routing_of(version: PolicyVersion) -> RoutingPolicy:
    """Return the version's routing policy. Raises CannotRunError if this program cannot read the document."""
    try:
        return policy_upgrade.routing_of(version)
    except (msgspec.ValidationError, SchemaError) as error:
        raise CannotRunError(f"v{version.number} is unreadable: {error}.") from error


def _engines(conditions: Conditions, rows: list[RecordedRow], ready: int) -> int:
    """Return the number of engines to simulate: requested, otherwise of the median request, otherwise of the pool."""
    if conditions.engines is not None:
        return conditions.engines
    recorded = sorted(row.engines for row in rows if row.engines)
    if recorded:
        return recorded[len(recorded) // 2]
    if not ready:
        raise CannotRunError("The pool has no available engine; enter the number of engines to simulate.")
    return ready
