"""The steps of a named service, and which of them a key or a region gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gateway.contracts.snapshot import ProviderEntry, ServiceEntry
from gateway.pools.services.named_service import NamedService, Services
from tests.gateway.live_gateway import pool_entry

NOW = 100.0
PROVIDER = ProviderEntry(url="https://api.example.com/v1", model="big")


def pool(name: str, model: str, *, region: str = "here", engines: int = 1, mode: str = "route") -> Any:
    entry = pool_entry(pool_id=name, name=name, served_model=model, region=region, mode=mode)
    router = SimpleNamespace(
        view=SimpleNamespace(roster=SimpleNamespace(accepting=tuple(range(engines)))), least_wait_s=lambda now: 0.0
    )
    names = SimpleNamespace(engines=lambda name: frozenset())
    return SimpleNamespace(entry=entry, observes=mode == "observe", router=router, names=names)


def service(*pools: Any, home: str | None = None) -> NamedService:
    entry = ServiceEntry(name="chat", aliases=("gpt-x",), pools=tuple(item.entry.pool_id for item in pools))
    return NamedService(entry, pools, home)


def order(of: NamedService) -> list[str]:
    """Return the pools in the order in which a request tries them."""
    tried: list[str] = []
    while (pool := of.untried(lambda: b"key", NOW, tried)) is not None:
        tried.append(pool.entry.pool_id)
    return tried


def test_neighbors_of_one_model_share_and_the_rest_is_tried_in_order() -> None:
    made = service(pool("b", "large"), pool("a", "large"), pool("z", "small"), pool("y", "large"))
    shared = {made.choose(f"s{number}".encode, NOW).entry.pool_id for number in range(50)}
    assert shared == {"a", "b"}
    assert sorted(order(made)[:2]) == ["a", "b"]
    assert order(made)[2:] == ["z", "y"]


def test_the_first_step_with_an_engine_is_chosen_and_observing_pools_are_never_tried() -> None:
    made = service(pool("a", "large", engines=0), pool("w", "small", mode="observe"), pool("b", "tiny"))
    assert made.choose(bytes, NOW).entry.pool_id == "b"
    assert order(made) == ["a", "b"]
    assert service(pool("a", "large", engines=0), pool("b", "tiny", engines=0)).choose(bytes, NOW).entry.pool_id == "a"


def test_a_gateway_of_a_region_tries_its_own_pools_and_can_serve_an_adopted_one() -> None:
    made = service(
        pool("eu", "m", region="eu"), pool("us", "m", region="us"), pool("eu-2", "n", region="eu"), home="eu"
    )
    assert order(made) == ["eu", "eu-2"]
    adopted = made.in_region("us")
    assert adopted is not None
    assert order(adopted) == ["us"]
    assert made.in_region("asia") is None


def test_a_key_of_some_models_gets_their_pools_unless_it_lists_the_service() -> None:
    pools = {"a": pool("a", "large"), "b": pool("b", "small")}
    services = Services()
    entry = ServiceEntry(name="chat", aliases=("gpt-x",), pools=("b", "a"), provider=PROVIDER)
    services.rebuild(pools, [entry, ServiceEntry(name="gone", pools=("none",))], None)

    def of(model: str, *granted: str) -> Any:
        return services.of(model, granted, pools.values(), None)

    assert order(of("gpt-x")) == order(of("chat", "chat")) == order(of("chat", "gpt-x")) == ["b", "a"]
    assert of("chat", "chat").provider is not None
    assert (order(of("chat", "large")), of("chat", "large").provider) == (["a"], None)
    assert of("chat", "other") is None
    assert of("gone") is None
    assert [item.entry.pool_id for item in of("large").pools] == ["a"]
    assert of("large", "small") is None
    assert (services.model_in(pools["b"], "gpt-x"), services.model_in(pools["b"], "small")) == ("small", "small")


def test_a_provider_keeps_its_pause_until_it_changes() -> None:
    pools, services = {"a": pool("a", "large")}, Services()

    def provider(entry: ProviderEntry) -> Any:
        services.rebuild(pools, [ServiceEntry(name="chat", pools=("a",), provider=entry)], None)
        return services.names()["chat"].provider

    first = provider(PROVIDER)
    assert provider(PROVIDER) is first
    assert provider(ProviderEntry(url=PROVIDER.url, model="other")) is not first
