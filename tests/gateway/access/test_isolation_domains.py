"""Isolation domains: which callers share cached prefixes, and how engines' events name the owners of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zmq.asyncio
from msgspec.structs import replace

from gateway.access.isolation_domains import SHARED, IsolationDomains, cache_salt
from gateway.events.event_salts import ENOUGH
from kvstore.keys.block_keys import token_block_keys
from kvstore.keys.keyring import Keyring
from routing.values.observation import Completed, FirstToken
from tests.gateway.fake_engine import FakePublisher, fake_engine
from tests.gateway.live_gateway import LiveGateway, engine_entry, live_gateway, pool_entry, request, snapshot
from tests.gateway.pool.test_live_pool import held_blocks, stored
from tests.patience import until


def domains(**pool: Any) -> IsolationDomains:
    return IsolationDomains(Keyring.of(b"secret").used, pool_entry(**pool))


def test_a_cache_salt_depends_only_on_tenant_and_secret() -> None:
    salt = cache_salt(b"secret", "tenant")
    assert salt == cache_salt(b"secret", "tenant")
    assert len({salt, cache_salt(b"secret", "tenant2"), cache_salt(b"other", "tenant")}) == 3
    assert len(salt) == 32


def test_block_key_seeds_depend_on_the_secret() -> None:
    seeds = {
        IsolationDomains(Keyring.of(secret).used, pool_entry()).seed(domain)
        for secret in (b"secret", b"other")
        for domain in ("", "d")
    }
    assert len(seeds) == 4


def test_tenants_share_a_domain_only_in_pools_without_isolation() -> None:
    shared, apart = domains(), domains(isolated=True)
    assert shared.of("a") == shared.of("b") == SHARED
    assert len({apart.of("a"), apart.of("b"), SHARED}) == 3
    assert shared.seed(shared.of("a")) != apart.seed(apart.of("a"))


def test_the_unsalted_tenant_keeps_its_domain_when_isolation_is_enabled() -> None:
    before, after = domains(), domains(isolated=True, unsalted_tenant="a")
    assert after.of("a") == before.of("a") == SHARED
    assert after.of("b") != SHARED


def test_a_callers_salt_is_scoped_to_its_tenant_and_never_reaches_the_engine() -> None:
    for item in (domains(), domains(isolated=True, unsalted_tenant="a")):
        salts = {item.of("a"), item.of("a", "mine"), item.of("a", "other"), item.of("b", "mine")}
        assert len(salts) == 4
        assert "mine" not in salts
        assert item.of("a", "") == item.of("a", None)


def test_cached_domains_are_bounded() -> None:
    isolated = domains(isolated=True)
    first = isolated.seed(isolated.of("t0"))
    assert len({isolated.seed(isolated.of(f"t{number}")) for number in range(5000)}) == 5000
    assert isolated.seed(isolated.of("t0")) == first
    assert max(len(isolated._salts), len(isolated._seeds)) <= 4096


async def _answered(live: LiveGateway, name: str, tokens: list[int]) -> None:
    """Complete a prompt of tenant b on the only engine."""
    keys = token_block_keys(live.pool.seed(live.pool.domains.of("b")), tokens, 2)
    await live.pool.decide(replace(request(name, keys), proves_salts=True), hold=False)
    live.pool.observe(FirstToken(name))
    live.pool.observe(Completed(name, 0))


async def test_an_isolating_pool_attributes_blocks_to_tenants_by_event_salts(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    publisher = FakePublisher(context)
    try:
        async with fake_engine() as one:
            entry = engine_entry(
                "a", one.url, kv_events_endpoint=publisher.endpoint, kv_replay_endpoint=publisher.replay_endpoint
            )
            async with live_gateway(tmp_path, snapshot([entry], isolated=True, unsalted_tenant="a")) as live:
                pool, tokens = live.pool, [1, 2, 3, 4]
                mine, theirs = (token_block_keys(pool.seed(pool.domains.of(who)), tokens, 2) for who in ("b", "a"))
                await publisher.publish(stored(tokens, extra=[[["cache_salt", pool.domains.of("b")]], None]))
                await until(lambda: held_blocks(live, "a", mine) == 2)
                assert held_blocks(live, "a", theirs) == 0
                for number in range(2 * ENOUGH):
                    await _answered(live, f"r{number}", [9, number])
                await until(lambda: live.shown("a").index_trust == "exact")
    finally:
        await publisher.close()
        context.destroy(linger=0)


async def test_the_index_is_fed_by_dispatches_until_events_carry_salts(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    publisher = FakePublisher(context)
    try:
        async with fake_engine() as one:
            entry = engine_entry(
                "a", one.url, kv_events_endpoint=publisher.endpoint, kv_replay_endpoint=publisher.replay_endpoint
            )
            async with live_gateway(tmp_path, snapshot([entry], isolated=True, unsalted_tenant="a")) as live:
                pool = live.pool
                await publisher.publish(stored([1, 2]))
                await until(lambda: live.shown("a").index_trust == "exact")
                for number in range(ENOUGH):
                    await _answered(live, f"r{number}", [9, number])
                await until(lambda: live.shown("a").index_trust == "degraded")
                assert "salt" in live.shown("a").index_trust_reason
                salted = token_block_keys(pool.seed(pool.domains.of("b")), [9, ENOUGH - 1], 2)
                assert held_blocks(live, "a", salted) == 1
                await publisher.publish(stored([7, 7], extra=[[pool.domains.of("b")]]))
                await until(lambda: live.engine("a").intake.ledger.counts["salted"] == 1)  # type: ignore[union-attr]
                assert held_blocks(live, "a", token_block_keys(pool.seed(""), [1, 2], 2)) == 0
                await _answered(live, "last", [9, 99])
                await until(lambda: live.shown("a").index_trust == "exact")
                await until(lambda: held_blocks(live, "a", token_block_keys(pool.seed(""), [1, 2], 2)) == 1)
    finally:
        await publisher.close()
        context.destroy(linger=0)
