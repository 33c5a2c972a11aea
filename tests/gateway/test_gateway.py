"""The composition: active snapshot, last-known-good snapshot, keys, models, and clean shutdown."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gateway.base.settings import GatewaySettings
from gateway.bus.snapshot_store import FILE_NAME, SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, Snapshot
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.trials.arms import CANARY, ArmEntry
from routing.values.decision import Dispatched, Rejected
from tests.gateway.fake_engine import fake_engine
from tests.gateway.live_gateway import SETTINGS, LiveGateway, engine_entry, live_gateway, pool_entry, request, snapshot
from tests.patience import PATIENCE_S, until

KEY = ApiKeyEntry(key_id="k", sha256="ab" * 32, tenant_id="t")


async def test_without_a_snapshot_the_gateway_starts_empty(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        assert live.gateway.snapshot is None
        assert live.gateway.snapshot_version == 0
        assert live.gateway.service_for(KEY, "m") is None
        assert live.gateway.api_key("00") is None


async def test_idle_connections_close_before_engines_close_them(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        session = live.gateway.session
        assert session is not None
        assert session.connector is not None
        # vLLM and SGLang: uvicorn's default of 5 s. A POST sent at that moment would be lost.
        assert session.connector._keepalive_timeout < 5.0
        assert live.gateway.engine_connections.keepalive_s < 5.0


async def test_keys_and_models_come_from_the_active_snapshot(tmp_path: Path) -> None:
    first = Snapshot(version=1, published_at=1.0, pools=(pool_entry(),), api_keys=(KEY,))
    async with live_gateway(tmp_path, first) as live:
        assert live.gateway.api_key(KEY.sha256) == KEY
        service = live.gateway.service_for(KEY, "m")
        assert service is not None
        assert service.pools == (live.pool,)
        live.publish(Snapshot(version=2, published_at=2.0, pools=(pool_entry(),)))
        await until(lambda: live.gateway.snapshot_version == 2)
        assert live.gateway.api_key(KEY.sha256) is None


async def test_several_pools_of_a_model_form_one_service(tmp_path: Path) -> None:
    pools = tuple(
        pool_entry(pool_id=f"{region}-{name}", region=region, name=name)
        for region, name in [("b", "x"), ("a", "y"), ("a", "x")]
    )
    async with live_gateway(tmp_path, Snapshot(version=1, published_at=1.0, pools=pools)) as live:
        service = live.gateway.service_for(KEY, "m")
        assert service is not None
        assert [pool.entry.pool_id for pool in service.pools] == ["a-x", "a-y", "b-x"]


async def test_an_older_snapshot_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, snapshot([], version=5)) as live:
        live.publish(snapshot([], version=4))
        live.publish(snapshot([], version=6))
        await until(lambda: live.gateway.snapshot_version == 6)
        live.publish(snapshot([], version=5))
        await asyncio.sleep(0.05)
        assert live.gateway.snapshot_version == 6


async def test_the_last_known_good_snapshot_is_used_when_none_is_published(tmp_path: Path) -> None:
    async with fake_engine() as one:
        async with live_gateway(tmp_path, snapshot([engine_entry("a", one.url)], version=9)):
            await until((tmp_path / FILE_NAME).exists)
        async with live_gateway(tmp_path) as live:
            assert live.gateway.snapshot_version == 9
            assert isinstance(await live.pool.decide(request("r"), hold=False), Dispatched)


async def test_a_pool_with_a_baseline_placement_gets_the_default_placement_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    baseline = Stage(name="ray_prefix")
    arm = ArmEntry(arm=CANARY, trial_id="trial", share=0.5, placement=baseline)
    async with fake_engine() as one:
        pools = (
            pool_entry(policy=RoutingPolicy(placement=baseline, ttft_slo_s=2.5), arms=(arm,)),
            pool_entry(pool_id="other", name="other", served_model="n", arms=(arm,)),
        )
        stored = Snapshot(version=9, published_at=9.0, pools=pools, engines=(engine_entry("a", one.url),))
        SnapshotStore(tmp_path, 1e9).save(stored, time.time())
        async with live_gateway(tmp_path) as live:
            assert sorted(live.gateway.pools) == ["other", "pool"]
            followed = live.pool.router.policy
            assert (followed.placement.name, followed.ttft_slo_s) == ("least_cost", 2.5)
            assert isinstance(await live.pool.decide(request("r"), hold=False), Dispatched)
    assert caplog.text.count("baseline_replaced") == 2
    assert "Placement 'ray_prefix' is a baseline for simulation and what-if only" in caplog.text
    assert "A canary's placement is a baseline" in caplog.text


async def test_the_snapshot_version_never_decreases_across_a_restart(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, snapshot([], version=50)):
        await until((tmp_path / FILE_NAME).exists)
    # A database that was restored from a backup publishes this, and later its next version.
    older = msgspec.structs.replace(snapshot([], version=41), published_at=time.time())
    async with live_gateway(tmp_path, older) as live:
        live.publish(msgspec.structs.replace(older, version=42))
        await until(lambda: live.gateway.metrics.rejected_snapshots.value("older") >= 3)
        assert live.gateway.snapshot_version == 50
        live.publish(snapshot([], version=51))
        await until(lambda: live.gateway.snapshot_version == 51)
        store = SnapshotStore(tmp_path, 1e9)
        await until(lambda: (loaded := store.load(time.time())) is not None and loaded.version == 51)


async def test_the_published_snapshot_confirms_the_one_from_disk(tmp_path: Path) -> None:
    stored = snapshot([], version=50)
    SnapshotStore(tmp_path, 1e9).save(stored, time.time() - 3600.0)
    async with live_gateway(tmp_path) as live:
        live.publish(stored)
        store = SnapshotStore(tmp_path, 600.0)
        await until(lambda: store.load(time.time()) is not None)


async def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"garbage")
    async with live_gateway(tmp_path) as live:
        assert live.gateway.snapshot is None


async def test_an_unwritable_state_directory_does_not_stop_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    async with fake_engine() as one:
        with caplog.at_level(logging.ERROR, logger="gateway"):
            async with live_gateway(blocked, snapshot([engine_entry("a", one.url)])) as live:
                await until(lambda: "last_known_good_not_saved" in caplog.text)
                assert isinstance(await live.pool.decide(request("r"), hold=False), Dispatched)


async def test_snapshots_and_reports_can_arrive_from_any_thread(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        threads = [threading.Thread(target=_publish_much, args=(live, one.url, base)) for base in (0, 100)]
        for thread in threads:
            thread.start()
        await until(lambda: live.gateway.snapshot_version == 199)
        for thread in threads:
            thread.join()
        assert isinstance(await live.pool.decide(request("r"), hold=False), Dispatched)


def _publish_much(live: LiveGateway, url: str, base: int) -> None:
    for count in range(2, 100):
        live.publish(snapshot([engine_entry("a", url)], version=base + count))
        live.report("a")


async def test_removing_a_pool_rejects_its_waiting_requests(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, snapshot([])) as live:
        waiting = asyncio.create_task(live.pool.decide(request("r"), hold=True))
        await asyncio.sleep(0.02)
        live.publish(Snapshot(version=2, published_at=2.0))
        async with asyncio.timeout(PATIENCE_S):
            assert isinstance(await waiting, Rejected)
        assert live.gateway.pools == {}


async def test_stopping_rejects_waiting_requests_and_leaves_no_task(tmp_path: Path) -> None:
    async with fake_engine() as one:
        one.set("/health", 503, b"")
        before = len(asyncio.all_tasks())
        async with live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
            waiting = asyncio.create_task(live.pool.decide(request("r"), hold=True))
            await asyncio.sleep(0.02)
        assert isinstance(await waiting, Rejected)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before


async def test_the_gateway_can_be_restarted(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        gateway = live.gateway
        await gateway.stop()
        assert gateway.pools == {}
        await gateway.start()
        assert isinstance(await live.pool.decide(request("r"), hold=False), Dispatched)


async def test_keys_unconfirmed_for_too_long_are_rejected_until_the_bus_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(SETTINGS, snapshot_refresh_s=0.02, snapshot_max_age_s=0.5)
    first = Snapshot(version=1, published_at=1.0, pools=(pool_entry(),), api_keys=(KEY,))
    async with live_gateway(tmp_path, first, settings) as live:
        await until((tmp_path / FILE_NAME).exists)
        live.bus.connected = False
        await asyncio.sleep(0.1)
        saved_at = (tmp_path / FILE_NAME).stat().st_mtime_ns
        before = live.gateway.snapshot
        await until(lambda: live.gateway.api_key(KEY.sha256) is None)
        await until(lambda: live.gateway.snapshot is not before)
        assert (tmp_path / FILE_NAME).stat().st_mtime_ns == saved_at, "no confirmation is written to disk"
        assert "api_keys_rejected" in caplog.text
        live.bus.connected = True
        assert live.gateway.api_key(KEY.sha256) == KEY
        await until(lambda: (tmp_path / FILE_NAME).stat().st_mtime_ns > saved_at)


def test_keys_are_confirmed_within_seven_days() -> None:
    assert GatewaySettings().snapshot_max_age_s <= 7 * 86_400


async def test_a_start_from_disk_does_not_extend_the_validity_of_keys(tmp_path: Path) -> None:
    stored = Snapshot(version=1, published_at=1.0, pools=(pool_entry(),), api_keys=(KEY,))
    SnapshotStore(tmp_path, 100.0).save(stored, time.time() - 99.0)
    settings = replace(SETTINGS, snapshot_refresh_s=0.02, snapshot_max_age_s=100.0)
    async with live_gateway(tmp_path, None, settings) as live:
        assert live.gateway.api_key(KEY.sha256) == KEY
        live.bus.connected = False
        await until(lambda: live.gateway.api_key(KEY.sha256) is None)
