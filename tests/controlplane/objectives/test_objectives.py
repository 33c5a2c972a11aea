"""Targets, attainment from history and ledger, and incidents that use the target."""

from __future__ import annotations

import math
from array import array
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.history.bucket import ENGINE_BYTES, ENGINE_FLOATS, POOL_FLOATS, Column
from controlplane.history.collector import FleetCollector
from controlplane.history.rollups import COARSE_S, store_finished
from controlplane.history.roster import NO_ENGINES
from controlplane.history.store import PoolHistoryFacts, write_columns
from controlplane.incidents.job import detect
from controlplane.incidents.notices import TOPIC, decode_notices
from controlplane.incidents.watch import IncidentWatch
from controlplane.objectives.attainment import (
    attainment,
    attainment_by_part,
    attainment_by_pool,
    budget_line,
    on_time_since,
    publish_effects,
)
from controlplane.objectives.objective import create_objective, target_of
from controlplane.platform import audit
from controlplane.platform.actor import command
from controlplane.platform.bus import get_bus
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.live_fleet.fleet_together import FleetTogether
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Segment
from controlplane.usage.models.usage_rows import UsageDay
from gateway.contracts.outcomes import OutcomeCounts, PoolOutcomes
from tests.controlplane.conftest import bus
from tests.web.fake_fleet import FakeFleet

__all__ = ["bus"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = command("test")
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def past(ago_s: float, **pools: tuple[float, float]) -> None:
    """Store a column that began `ago_s` before NOW, with the on-time share and requests per second of each pool."""
    floats, codes = [array("f") for _ in ENGINE_FLOATS], [bytearray() for _ in ENGINE_BYTES]
    column = Column(int((NOW.timestamp() - ago_s) // COARSE_S), NO_ENGINES, 1, floats, codes)
    for pool, (on_time, per_s) in pools.items():
        values = [0.0] * len(POOL_FLOATS)
        values[-2:] = [math.nan, math.nan]
        values[POOL_FLOATS.index("on_time")], values[POOL_FLOATS.index("requests_per_s")] = on_time, per_s
        column.pools[pool] = values
    facts = {pool: PoolHistoryFacts(pool, pool, "here", "m", "p", "o", 1, 1.0, 1.0) for pool in pools}
    write_columns(COARSE_S, [column], [], facts)


def counted(*steps: tuple[float, int, int]) -> None:
    """Store the history of `chat` whose gateway reported (seconds before NOW, on time, rejected)."""
    together, collector, fleet = FleetTogether(), FleetCollector(), FakeFleet(4, 2)
    for seq, (ago_s, on_time, rejected) in enumerate(steps):
        whole = fleet.sample_at(seq / 2, NOW.timestamp())
        outcomes = PoolOutcomes(total=OutcomeCounts(on_time=on_time, rejected=rejected))
        pool = msgspec.structs.replace(whole.pools[0], pool_id="chat", outcomes=outcomes, on_time_share=1.0)
        at = NOW.timestamp() - ago_s
        merged = together.sample({"gw": msgspec.structs.replace(whole, at=at, pools=(pool,))})
        assert merged is not None
        if finished := collector.finished(at):
            store_finished(collector, finished, at)
        collector.take(merged)
    store_finished(collector, collector.finished(NOW.timestamp()), NOW.timestamp())


def used(pool: str, days_ago: int, **counts: int) -> None:
    UsageDay.objects.create(day=(NOW - timedelta(days=days_ago)).date(), tenant="acme", pool=pool, model="m", **counts)


def test_attainment_is_weighted_by_requests_and_the_budget_is_of_30_days(pool: Pool) -> None:
    objective = create_objective(slug="chat", pool=pool.slug, target=90.0, actor=ACTOR)
    for ago_s, on_time, per_s in ((240, 0.5, 3.0), (600, 1.0, 1.0), (4 * 3600, 1.0, 4.0), (24.5 * 3600, 0.75, 1.0)):
        past(ago_s, chat=(on_time, per_s), other=(0.0, 9.0))
    used("chat", 0, requests=110, late=2, failed=2, rejected=1, client_ended=10)
    used("chat", 29, requests=100)
    used("chat", 30, requests=100, late=100)
    used("other", 0, requests=100, late=100)
    shown = attainment(objective, NOW)
    assert (shown.hour, shown.six_hours, shown.day, shown.yesterday) == (0.625, 0.8125, 0.8125, 0.75)
    assert shown.window == pytest.approx(195 / 200)
    assert shown.budget_left == pytest.approx(0.75)
    assert shown.burn(shown.hour) == pytest.approx(3.75)


def test_the_budget_falls_where_requests_missed_and_ends_at_what_is_left(pool: Pool) -> None:
    for ago_s, on_time in ((600, 1.0), (360, 0.5), (240, 1.0)):
        past(ago_s, chat=(on_time, 1.0))
    used("chat", 0, requests=360, late=9)
    reached = attainment_by_pool(["chat"], NOW)["chat"]
    assert reached.since is not None
    assert timedelta(seconds=480) < NOW - reached.since < timedelta(seconds=720), "the first requests, not the day"
    line = [left for _, left in budget_line("chat", reached, NOW)]
    assert line == pytest.approx([1.0, 1.0, 0.75, 0.75, 0.75])
    used("chat", 3, requests=360, late=27)
    reached = attainment_by_pool(["chat"], NOW)["chat"]
    line = budget_line("chat", reached, NOW)
    assert [left for _, left in line] == pytest.approx([1.0, 0.625, 0.5, 0.5])
    assert line[0][0].date() == (NOW - timedelta(days=3)).date()


def test_share_since_a_time_leaves_out_earlier_columns_and_is_unknown_without_one(pool: Pool) -> None:
    for ago_s, on_time in ((240, 0.9), (480, 0.5), (720, 0.1)):
        past(ago_s, chat=(on_time, 1.0), other=(0.3, 1.0))
    since = {"chat": NOW - timedelta(seconds=500), "other": NOW - timedelta(seconds=60)}
    assert on_time_since(since, NOW) == {"chat": pytest.approx(0.7), "other": None}


def test_requests_of_a_gap_in_the_history_count_in_the_next_column() -> None:
    counted(
        (1500, 5000, 100), (1499, 5100, 100), (1440, 5100, 100), (240, 5100, 1100), (239, 5200, 1100), (60, 5200, 1100)
    )
    shown = attainment_by_pool(["chat"], NOW)["chat"]
    assert shown.hour == pytest.approx(200 / 1200)
    assert shown.burn(shown.day) == pytest.approx((1000 / 1200) / 0.1)


def test_a_restarted_gateway_counts_from_zero_and_only_once() -> None:
    counted((400, 900, 100), (399, 910, 100), (390, 30, 10), (389, 40, 10), (60, 40, 10))
    assert attainment_by_pool(["chat"], NOW)["chat"].hour == pytest.approx(50 / 60)


def test_the_objective_of_all_pools_leaves_out_those_with_their_own(pool: Pool) -> None:
    create_objective(slug="chat", pool=pool.slug, actor=ACTOR)
    rest = create_objective(slug="rest", target=99.0, actor=ACTOR)
    past(240, chat=(0.0, 5.0), other=(1.0, 1.0))
    used("chat", 0, requests=10, late=10)
    shown = attainment(rest, NOW)
    assert (shown.hour, shown.window, shown.budget_left) == (1.0, None, None)


def test_a_pool_without_an_objective_has_the_target_of_all_pools(pool: Pool) -> None:
    past(240, chat=(0.8, 3.0))
    used("chat", 0, requests=100, late=5)
    shown = attainment_by_pool(["chat", "silent"], NOW)
    assert (shown["chat"].target, shown["chat"].hour, shown["chat"].window) == (0.9, pytest.approx(0.8), 0.95)
    assert shown["chat"].budget_left == pytest.approx(0.5)
    assert (shown["silent"].target, shown["silent"].hour, shown["silent"].budget_left) == (0.9, None, None)
    create_objective(slug="chat", pool="chat", target=80.0, actor=ACTOR)
    assert attainment_by_pool(["chat"], NOW)["chat"].budget_left == pytest.approx(0.75)


def publish(pool: Pool, number: int, ago_s: float) -> None:
    audit.record_for(ACTOR, "policy.publish", pool.policy, after={"number": number}, pool=pool.slug)
    AuditEvent.objects.filter(pk=AuditEvent.objects.latest("pk").pk).update(at=NOW - timedelta(seconds=ago_s))


def test_a_publish_is_compared_over_equal_spans_that_contain_no_other(pool: Pool) -> None:
    publish(pool, 1, 3600)
    publish(pool, 2, 1200)
    for ago_s, on_time in ((3000, 0.2), (1920, 0.9), (1320, 0.7), (1200, 0.4), (240, 0.6)):
        past(ago_s, chat=(on_time, 1.0))
    second, first = publish_effects(pool, NOW)
    assert (second.version, second.by, second.span) == (2, "test", timedelta(seconds=1200))
    (before, low, high), (after, *_) = second.both
    assert (before, after) == (pytest.approx(0.8), pytest.approx(0.5))
    # Wilson's interval of 192 of 240 requests.
    assert (low, high) == (pytest.approx(0.745, abs=0.001), pytest.approx(0.846, abs=0.001))
    assert (first.version, first.span, first.both[0]) == (1, timedelta(seconds=2400), (None, None, None))
    assert first.both[1][0] == pytest.approx(0.6)


def test_an_objective_needs_a_pool_and_a_target_below_100() -> None:
    for wrong in ({"pool": "none"}, {"target": 100.0}, {"target": 0.0}):
        with pytest.raises(InvalidFieldsError):
            create_objective(slug="x", actor=ACTOR, **wrong)


def test_incidents_use_the_target_of_the_pool_else_that_of_all_pools(pool: Pool) -> None:
    assert target_of(pool.slug) == 0.9
    create_objective(slug="rest", target=99.0, actor=ACTOR)
    create_objective(slug="chat", pool=pool.slug, target=80.0, actor=ACTOR)
    watch, sample = IncidentWatch(), FakeFleet(4, 2).sample_at(0.0, NOW.timestamp())
    first, second = (msgspec.structs.replace(item, outcomes=PoolOutcomes()) for item in sample.pools)
    first = msgspec.structs.replace(first, pool_id=pool.slug)
    detect(watch, NOW)
    value = get_bus().latest(TOPIC)
    assert value is not None
    assert decode_notices(value).targets == {"": 0.99, "chat": 0.8}
    watch.take(msgspec.structs.replace(sample, pools=(first, second)))
    assert watch.log.newest is not None
    assert {name: signs.target for name, signs in watch.log.newest.pools.items()} == {"chat": 0.8, second.pool_id: 0.99}


def logged(ago_s: float, tenant: str, tokens: int, outcome: str = "completed", **more: Any) -> None:
    """Store the index row of a request that arrived `ago_s` before NOW."""
    number = DecisionIndex.objects.count()
    segment = Segment.objects.create(retention="decisions", batch=f"b{number}", at_ms=1, data=b"", size=0)
    fields = {"pool": "chat", "late": False, "share": 1.0, **more}
    at_ms = int((NOW.timestamp() - ago_s) * 1000)
    DecisionIndex.objects.create(
        decision_id=segment.batch, at_ms=at_ms, tenant=tenant, prompt_tokens=tokens, outcome=outcome, engine="e",
        policy_version=1, predicted_tokens=0, position=0, segment=segment, **fields,
    )  # fmt: skip


def test_attainment_by_tenant_and_prompt_length_counts_what_was_late_failed_and_rejected() -> None:
    logged(60, "acme", 100)
    logged(60, "acme", 2_000, late=True)
    logged(60, "acme", 2_000, "cancelled", late=True)
    # One of ten requests like it was recorded.
    logged(7_200, "acme", 70_000, share=0.1)
    logged(7_200, "lumen", 100, "failed", late=True)
    logged(7_200, "lumen", 100, "rejected", late=True)
    logged(25 * 3_600, "lumen", 100)
    logged(60, "lumen", 100, pool="code")
    UsageDay.objects.create(day=NOW.date(), tenant="lumen", pool="chat", requests=10, late=1, failed=1, client_ended=2)
    parts = attainment_by_part("chat", NOW)
    assert [(part.tenant, part.hour, part.day, part.window, part.requests) for part in parts[:2]] == [
        ("acme", 0.5, pytest.approx(11 / 12), None, 12.0),
        ("lumen", None, 0.0, 0.75, 2.0),
    ]
    assert [(part.prompt_from, part.prompt_below, part.hour, part.day) for part in parts[2:]] == [
        (0, 1_024, 1.0, pytest.approx(1 / 3)),
        (1_024, 4_096, 0.0, 0.0),
        (65_536, None, None, 1.0),
    ]
