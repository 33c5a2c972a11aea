"""The table of measurements, by the name of their result."""

from __future__ import annotations

from collections.abc import Callable

from bench.evidence.measure.automation import elasticity, health, paired_simulation, pd_ratio, rebalance
from bench.evidence.measure.capacity import (
    admission,
    defaults,
    effective_capacity,
    kv_store,
    limits,
    overload,
    scale,
    transfer,
)
from bench.evidence.measure.routing import (
    ablations,
    choices,
    end_to_end,
    goodput,
    key_length,
    knowledge,
    lbgr_workloads,
    load_curves,
    pending,
    readings,
    rlt,
    shared_prefix,
)
from bench.evidence.measure.sessions import (
    session_agents,
    session_headlines,
    session_limits,
    session_loads,
    session_priorities,
)
from bench.evidence.store import Result

_MODULES = (
    goodput,
    readings,
    defaults,
    knowledge,
    load_curves,
    end_to_end,
    limits,
    pending,
    key_length,
    rlt,
    ablations,
    choices,
    scale,
    transfer,
    kv_store,
    effective_capacity,
    shared_prefix,
    lbgr_workloads,
    admission,
    overload,
    paired_simulation,
    elasticity,
    pd_ratio,
    health,
    rebalance,
    session_loads,
    session_headlines,
    session_limits,
    session_agents,
    session_priorities,
)

MEASURES: dict[str, Callable[[int], Result]] = {
    module.__name__.rpartition(".")[2]: module.measure for module in _MODULES
}
