"""The child processes of the demo: simulated engines and a replay that sends them traffic."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.supervised_ports import engine_ports
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, POOL, SERVED_MODEL
from controlplane.project.first_run.seed import ENGINES
from controlplane.project.processes.child_process import ChildSpec

GENERATED_QPS = 9.0
"""Mean arrival rate of the generated trace: about three quarters of what eight engines carry, so that bursts
of one prefix make hotspots that the fleet recovers from."""

GENERATED_MAX_INPUT = 20_480
"""Longer prompts of the generated trace are cut: one would occupy its engine for up to half a minute."""


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    """What the demo replays."""

    target: str
    """Base URL of the gateway."""
    api_key: str
    trace: str = ""
    """Path of a trace; empty: the generated one."""
    speed: float = 1.0
    """How much faster than recorded."""
    prefilling: int = ENGINES
    """Engines that prefill, which the generated rate is made for."""


def engine_children(engines: Sequence[Engine]) -> list[ChildSpec]:
    """Return the simulated engines, at the addresses that the topology names."""
    return [_engine_child(engine) for engine in engines]


def supervised_children(*, demo: bool) -> list[ChildSpec]:
    """Return the children of all engines that the supervisor is to keep; without `demo` those of the demo rest."""
    engines = Engine.objects.filter(supervised=True).select_related("pool").order_by("engine_id")
    return engine_children([engine for engine in engines if demo or engine.pool.slug != POOL])


def replay_child(traffic: DemoTraffic) -> ChildSpec:
    """Return the client that replays the trace for ever."""
    argv = _python("simulator.replay")
    if traffic.trace:
        argv += [traffic.trace]
    else:
        argv += ["--qps", str(GENERATED_QPS * traffic.prefilling / ENGINES), "--max-input", str(GENERATED_MAX_INPUT)]
    argv += ["--target", traffic.target, "--model", SERVED_MODEL, "--speed", str(traffic.speed)]
    argv += ["--loop", *_parent()]
    return ChildSpec("replay", tuple(argv), env={API_KEY_VARIABLE: traffic.api_key})


def _engine_child(engine: Engine) -> ChildSpec:
    http, events, replay = engine_ports(engine)
    argv = [
        *_python("simulator.engine_server"),
        *("--port", str(http), "--kv-events-port", str(events), "--kv-replay-port", str(replay)),
        *("--served-model-name", engine.pool.served_model, "--block-size", str(engine.pool.block_tokens)),
        *("--role", engine.role),
        *_parent(),
    ]
    return ChildSpec(engine.engine_id, tuple(argv))


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _parent() -> list[str]:
    return ["--parent-pid", str(os.getpid())]
