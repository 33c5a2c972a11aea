"""Pools as planners see them, built from facts given by a test."""

from planning.facts.fleet_facts import DemandPoint, EngineObservation, PoolFacts, PoolWindow, Role, RoleLoad

SPAN_S = 10.0


def engine(name: str = "e-1", now_s: float = 0.0, **facts: object) -> EngineObservation:
    """Return an engine that has just reported."""
    return EngineObservation(
        **{"engine_id": name, "report_s": now_s, "running": 0, "waiting": 0, "kv_usage": 0.1} | facts
    )


def engines(count: int, now_s: float = 0.0, **facts: object) -> tuple[EngineObservation, ...]:
    return tuple(engine(f"e-{number:02}", now_s, **facts) for number in range(1, count + 1))


def pool(now_s: float, members: tuple[EngineObservation, ...], **facts: object) -> PoolFacts:
    return PoolFacts(**{"pool_id": "p", "now_s": now_s, "engines": members} | facts)


def windows(
    now_s: float,
    *,
    demand: float,
    on_time: float = 1.0,
    queued_s: float = 0.0,
    growth: float = 0.0,
    count: int = 12,
    requests: int = 100,
) -> tuple[PoolWindow, ...]:
    """Return the same window repeated up to now; the queue has grown to `queued_s`."""
    return tuple(
        PoolWindow(
            from_s=now_s - SPAN_S * (count - at),
            span_s=SPAN_S,
            requests=requests,
            on_time=round(requests * on_time),
            work_s=SPAN_S * demand,
            queued_s=max(0.0, queued_s - growth * SPAN_S * (count - 1 - at)),
            prompt_tokens=1000,
        )
        for at in range(count)
    )


def history(now_s: float, demand: float, seconds: float = 120.0) -> tuple[DemandPoint, ...]:
    return tuple(DemandPoint(now_s - at, demand) for at in range(0, int(seconds), 10))


def loads(now_s: float, prefill: float, decode: float, count: int = 40) -> list[RoleLoad]:
    roles: tuple[tuple[Role, float], ...] = (("prefill", prefill), ("decode", decode))
    return [RoleLoad(now_s - at, role, load) for at in range(count) for role, load in roles]
