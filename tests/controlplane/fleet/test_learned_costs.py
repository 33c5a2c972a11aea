"""Changed costs are stored and published, at most once a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controlplane.fleet.learned_costs import CostIntake, has_moved, store_costs
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus
from gateway.reports.cost_reports import TOPIC, CostReport
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost

pytestmark = pytest.mark.django_db
NOW = datetime(2030, 1, 1, tzinfo=UTC)
COST = FittedCost(prefill=PrefillCost(), samples=100, error=0.1, policy_error=0.5, speeds={"e-1": 1.2})


def cost(**changes: Any) -> FittedCost:
    return msgspec.structs.replace(COST, **changes)


def publish_cost(bus: Bus, fitted: FittedCost, pool: str = "chat", kind: str = "") -> None:
    bus.append(TOPIC, msgspec.msgpack.encode(CostReport({pool: {kind: fitted}})))


def test_cost_reported_over_the_bus_is_stored_published_and_audited(bus: Bus, pool: Pool) -> None:
    intake = CostIntake(bus)
    publish_cost(bus, COST, kind="h100")
    publish_cost(bus, COST, pool="gone")
    bus.append(TOPIC, b"no report")
    assert intake.store(NOW) == 1
    snapshot = build_snapshot(1.0)
    assert snapshot.pools[0].costs == {"h100": COST}
    assert snapshot.version == SnapshotVersion.objects.get().version == 1
    assert AuditEvent.objects.get().verb == "cost.learn"
    assert intake.store(NOW) == 0
    intake.stop()


def test_unchanged_cost_is_not_published_again(pool: Pool) -> None:
    store_costs({("chat", ""): COST}, NOW)
    same = cost(samples=900, error=0.11)
    assert store_costs({("chat", ""): same}, NOW + timedelta(hours=1)) == ({("chat", "")}, 0)
    assert SnapshotVersion.objects.get().version == 1


def test_change_within_a_minute_is_delayed(pool: Pool) -> None:
    store_costs({("chat", ""): COST}, NOW)
    moved = cost(prefill=PrefillCost(per_token_s=1e-3))
    assert store_costs({("chat", ""): moved}, NOW + timedelta(seconds=30)) == (set(), 0)
    assert store_costs({("chat", ""): moved}, NOW + timedelta(seconds=61)) == ({("chat", "")}, 1)
    assert LearnedCost.objects.get().fitted["prefill"]["per_token_s"] == 1e-3


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"samples": 10_000, "error": 0.2}, False),
        ({"error": 0.6}, True),
        ({"prefill": PrefillCost(per_token_s=0.0801e-3)}, False),
        ({"prefill": PrefillCost(per_hit_token_s=20e-6)}, True),
        ({"speeds": {"e-1": 1.25}}, False),
        ({"speeds": {"e-1": 1.4}}, True),
        ({"speeds": {}}, True),
        ({"decode": DecodeCost()}, True),
    ],
)
def test_only_changed_estimates_count_as_moved(changes: dict[str, Any], moved: bool) -> None:
    assert has_moved(COST, cost(**changes)) is moved


def test_nothing_to_store_takes_no_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert store_costs({}, NOW) == (set(), 0)
