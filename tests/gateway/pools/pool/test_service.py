"""The choice among several pools of one model."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.pools.pool.service import PATIENCE_S, Service
from tests.gateway.live_gateway import pool_entry

NOW = 100.0


def pool(name: str, weight: int = 100, *, wait_s: float = 0.0, engines: int = 1, mode: str = "route") -> Any:
    entry = pool_entry(pool_id=name, name=name, weight=weight, mode=mode)
    router = SimpleNamespace(
        view=SimpleNamespace(roster=SimpleNamespace(accepting=tuple(range(engines)))), least_wait_s=lambda now: wait_s
    )
    return SimpleNamespace(entry=entry, observes=mode == "observe", router=router)


def chosen(service: Service, count: int = 4000) -> dict[str, str]:
    return {f"s{number}": service.choose(f"s{number}".encode, NOW).entry.pool_id for number in range(count)}


def test_each_pool_gets_its_share_and_sessions_stay() -> None:
    service = Service([pool("old", 90), pool("new", 10)])
    first = chosen(service)
    shares = Counter(first.values())
    assert shares["new"] / len(first) == pytest.approx(0.1, abs=0.02)
    assert chosen(service) == first


def test_a_new_weight_moves_the_minimum_of_sessions() -> None:
    before = chosen(Service([pool("old", 90), pool("new", 10)]))
    after = chosen(Service([pool("old", 80), pool("new", 20)]))
    moved = Counter((before[name], after[name]) for name in before if before[name] != after[name])
    assert set(moved) == {("old", "new")}
    assert moved["old", "new"] / len(before) == pytest.approx(0.1, abs=0.02)


def test_a_new_pool_takes_sessions_and_moves_none_between_the_others() -> None:
    before = chosen(Service([pool("a"), pool("b")]))
    after = chosen(Service([pool("a"), pool("b"), pool("c")]))
    assert {after[name] for name in before if before[name] != after[name]} == {"c"}


def test_an_overloaded_pool_gives_sessions_away_and_a_slightly_busier_one_does_not() -> None:
    assert set(chosen(Service([pool("a", wait_s=PATIENCE_S + 0.1), pool("b")])).values()) == {"b"}
    assert set(chosen(Service([pool("a", wait_s=PATIENCE_S), pool("b")])).values()) == {"a", "b"}


def test_a_pool_without_engines_gets_nothing_while_another_has_some() -> None:
    assert set(chosen(Service([pool("a", engines=0), pool("b")])).values()) == {"b"}
    assert set(chosen(Service([pool("a", engines=0), pool("b", engines=0)])).values()) == {"a", "b"}


def test_a_pool_of_weight_zero_is_used_only_without_an_alternative() -> None:
    assert set(chosen(Service([pool("a", 0), pool("b", wait_s=60.0)])).values()) == {"b"}
    assert set(chosen(Service([pool("a", 0), pool("b", engines=0)])).values()) == {"a"}
    assert set(chosen(Service([pool("a", 0), pool("c", 0)])).values()) == {"a", "c"}


def test_observing_pools_are_not_chosen_while_one_routes() -> None:
    watched = pool("a", mode="observe")
    service = Service([watched, pool("b")])
    assert set(chosen(service).values()) == {"b"}
    assert service.observing() == (watched,)
    assert Service([watched]).choose(bytes, NOW) is watched


def test_an_only_pool_is_chosen_without_reading_the_prompt() -> None:
    only = pool("a", engines=0)

    def never() -> bytes:
        raise AssertionError("nothing depends on the prompt")

    assert Service([only]).choose(never, NOW) is only


def on_trial(weight: float, **changes: Any) -> Any:
    made = pool("new", 0, **changes)
    made.entry = msgspec.structs.replace(made.entry, weight=weight, arm="canary")
    return made


def test_a_pool_on_trial_gets_its_share_and_no_overflow_of_others() -> None:
    before = chosen(Service([pool("a"), pool("b", 300)]))
    small = chosen(Service([pool("a"), pool("b", 300), on_trial(400 * 0.1 / 0.9)]))
    large = chosen(Service([pool("a"), pool("b", 300), on_trial(400 * 0.5 / 0.5)]))
    share = Counter(small.values())["new"] / len(small)
    assert share == pytest.approx(0.1, abs=0.02)
    assert {name for name in small if small[name] == "new"} <= {name for name in large if large[name] == "new"}
    assert {before[name] for name in small if small[name] != "new"} == {"a", "b"}
    assert all(before[name] == at for name, at in small.items() if at != "new")
    busy = chosen(Service([pool("a", wait_s=60.0), pool("b", 300, wait_s=60.0), on_trial(400 * 0.1 / 0.9)]))
    assert busy == small


def test_an_overloaded_pool_on_trial_gives_its_requests_away() -> None:
    busy = chosen(Service([pool("a"), on_trial(100.0, wait_s=PATIENCE_S + 0.1)]))
    assert set(busy.values()) == {"a"}
