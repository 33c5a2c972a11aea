"""The child processes of the demo: simulated engines, and a replay that sends requests to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from django.conf import settings

from controlplane.fleet.loopback_ports import engine_ports
from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.kv_nodes.simulated_scale import BYTES_PER_TOKEN
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, POOL, SERVED_MODEL
from controlplane.project.first_run.seed import ENGINES
from controlplane.project.processes.child_process import ChildSpec, parent_option, python
from simulator.replay.host_pace import PACE_SUFFIX, free_power, sized_rate

NO_NODES: Mapping[str, str] = MappingProxyType({})
GENERATED_QPS = 9.0
"""Mean arrival rate of the generated trace: about three quarters of the capacity of eight engines. Bursts with one
prefix then cause hotspots from which the fleet recovers.
"""

GENERATED_MAX_INPUT = 20_480
"""Maximum prompt length of the generated trace. A longer prompt would occupy its engine for up to half a minute."""


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    """Parameters of the demo's replayed requests."""

    target: str
    """Base URL of the gateway."""
    api_key: str
    trace: str = ""
    """Path of a trace; empty: the generated one."""
    speed: float | None = None
    """Speed relative to the original trace; None: the host sets the rate of the generated trace."""
    prefilling: int = ENGINES
    """Number of prefilling engines, to which the generated rate is proportional."""


def engine_children(engines: Sequence[Engine], kv_environment: Mapping[str, str] = NO_NODES) -> list[ChildSpec]:
    """Return the simulated engines at their addresses in the topology. Without KV variables, they use no node."""
    nodes = dict(KvNode.objects.values_list("name", "address")) if kv_environment else {}
    return [_engine_child(engine, nodes.get(engine.kv_node, ""), kv_environment) for engine in engines]


def supervised_children(*, demo: bool, kv_environment: Mapping[str, str] = NO_NODES) -> list[ChildSpec]:
    """Return the children of all supervised engines. Without `demo`, omit the demo's engines."""
    engines = Engine.objects.filter(supervised=True).select_related("pool").order_by("engine_id")
    kept = [engine for engine in engines if demo or not engine.pool.slug.startswith(POOL)]
    return engine_children(kept, kv_environment)


def replay_child(traffic: DemoTraffic) -> ChildSpec:
    """Return the client that replays the trace repeatedly."""
    argv = [*python("simulator.replay")]
    if traffic.trace:
        argv += [traffic.trace, "--speed", str(1.0 if traffic.speed is None else traffic.speed)]
    else:
        usual = GENERATED_QPS * traffic.prefilling / ENGINES
        argv += [*generated_rate("replay", usual, usual, traffic.speed), "--max-input", str(GENERATED_MAX_INPUT)]
    argv += ["--target", traffic.target, "--model", SERVED_MODEL]
    argv += ["--loop", *parent_option()]
    return ChildSpec("replay", tuple(argv), env={API_KEY_VARIABLE: traffic.api_key})


def generated_rate(name: str, usual: float, usual_of_all: float, speed: float | None) -> list[str]:
    """Return the options of a replay's rate: as usual at `speed`, or its part of what the host has the power for."""
    if speed is not None:
        return ["--qps", str(usual), "--speed", str(speed)]
    rate = round(usual * sized_rate(usual_of_all, free_power()) / usual_of_all, 2)
    return ["--qps", str(rate), "--pace-file", str(settings.STATE_DIR / f"{name}{PACE_SUFFIX}")]


def _engine_child(engine: Engine, node: str, kv_environment: Mapping[str, str]) -> ChildSpec:
    http, events, replay = engine_ports(engine)
    argv = [
        *python("simulator.engine_server"),
        *("--port", str(http), "--kv-events-port", str(events), "--kv-replay-port", str(replay)),
        *("--served-model-name", engine.pool.served_model, "--block-size", str(engine.pool.block_tokens)),
        *("--role", engine.role, "--faults"),
        *parent_option(),
    ]
    if not node:
        return ChildSpec(engine.engine_id, tuple(argv))
    argv += ["--kv-node", node, "--kv-bytes-per-token", str(BYTES_PER_TOKEN)]
    return ChildSpec(engine.engine_id, tuple(argv), env=kv_environment)
