"""Engines as the workers of other routers: registered by their URL, listed, and removed (docs/drop-in.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from controlplane.fleet.connect.address import engine_address, facts_at, may_be_asked
from controlplane.fleet.connect.connection import EngineConnection, Wishes, make_connection, plan_connection, targets
from controlplane.fleet.connect.engine_facts import ConnectedEngineFacts, ConnectRejectedError
from controlplane.fleet.engine_lifecycle import (
    EngineNotEmptyError,
    delete_idle_engine,
    engine_reading,
    set_desired_state,
)
from controlplane.fleet.engine_url import CheckedUrl
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.platform.actor import Actor
from gateway.contracts.worker_ids import worker_id, worker_name


def add_worker(url: str, *, actor: Actor, worker: Mapping[str, Any] | None = None) -> list[Engine]:
    """Register the engine at this URL, or each of its ranks, and start its preflight. Return the engines.

    `worker` has the facts that Dynamo's registration sends. An engine whose cache cannot be followed is routed by
    estimated hits. Raises ConnectRejectedError, NotAllowedError, InvalidFieldsError.
    """
    address = engine_address(url)
    if not may_be_asked(address):
        remedy = "Add its address to HEADWAY_ENGINE_NETWORKS or to the engine networks of a pool."
        raise ConnectRejectedError(f"{address.url} is in no allowed engine network.", remedy)
    facts = _with(facts_at(address), worker or {})
    try:
        plans = _plans(facts, address, Wishes())
    except ConnectRejectedError as rejection:
        if not rejection.estimable:
            raise
        plans = _plans(facts, address, Wishes(approximate=True))
    if worker and "worker_id" in worker and len(plans) == 1 and plans[0].engine is None:
        plans = [replace(plans[0], engine_name=worker_name(worker["worker_id"]))]
    return [make_connection(plan, actor=actor) for plan in plans]


def _plans(facts: ConnectedEngineFacts, address: CheckedUrl, wishes: Wishes) -> list[EngineConnection]:
    return [plan_connection(of_target, target, wishes) for of_target, target in targets(facts, address)]


def _with(facts: ConnectedEngineFacts, worker: Mapping[str, Any]) -> ConnectedEngineFacts:
    """Return the facts with the endpoints and the model of the registration; raise ConnectRejectedError."""
    model = worker.get("model_name") or "default"
    if model not in ("default", *facts.names):
        raise ConnectRejectedError(f"The engine serves {', '.join(facts.names)}, not {model}.", "Send one of them.")
    events = (worker.get("kv_events_endpoints") or {}).get("0") or worker.get("kv_events_endpoint")
    if not events:
        return facts
    return replace(facts, events=events, replay=worker.get("replay_endpoint") or facts.replay)


def remove_worker(engines: list[Engine], *, actor: Actor) -> bool:
    """Drain these engines, and delete those without requests. Return whether all were deleted."""
    gone = True
    for engine in engines:
        if engine.desired_state == DesiredState.READY:
            set_desired_state(engine, DesiredState.DRAINING, actor=actor, alone=True)
        try:
            delete_idle_engine(engine, actor=actor)
        except EngineNotEmptyError:
            gone = False
    return gone


def worker_row(engine: Engine, now: float) -> dict[str, Any]:
    """Return the engine with the names that SGLang's router and Dynamo's selection service give its facts."""
    reading = engine_reading(engine.engine_id, now)
    url, pool = engine.url.partition("#")[0], engine.pool
    return {
        "id": engine.engine_id,
        "url": url,
        "model_id": pool.served_model,
        "worker_type": {"mixed": "regular"}.get(engine.role, engine.role),
        "is_healthy": reading.in_flight is not None and not reading.lost,
        "load": -1 if reading.in_flight is None else reading.in_flight,
        "worker_id": worker_id(engine.engine_id, engine.name),
        "model_name": pool.served_model,
        "routing_group": "default",
        "endpoint": url,
        "block_size": pool.block_tokens,
        "data_parallel_start_rank": engine.rank or 0,
        "data_parallel_size": 1,
    }
