from __future__ import annotations

import pytest
from django.utils import timezone

from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.kv_nodes import registration
from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeState
from controlplane.kv_nodes.registration import OlderIncarnationError, delete_kv_node
from controlplane.kv_nodes.silence import note_silent_nodes
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.recorded_change import InUseError
from controlplane.publication.continued_versions import version_in_database
from controlplane.publication.snapshot import build_snapshot
from gateway.contracts.snapshot import KvNodeEntry
from tests.controlplane.kv_nodes.node_words import NODES, REPORT, reported, seconds_later

pytestmark = pytest.mark.django_db


def events() -> list[str]:
    return list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))


def test_registered_node_is_published() -> None:
    reported()
    assert build_snapshot(0.0).kv_nodes == (
        KvNodeEntry(
            name="kv-1",
            address="127.0.0.1:8470",
            events_endpoint="tcp://127.0.0.1:8471",
            replay_endpoint="tcp://127.0.0.1:8472",
            slot_bytes=4096,
        ),
    )
    assert events() == ["kv_node.register"]


def test_repeated_report_is_stored_and_not_published() -> None:
    now = timezone.now()
    first = reported(now=now)
    version = version_in_database()
    later = reported(now=seconds_later(now, 5), report={**REPORT, "misses": 9})
    assert (later.revision, version_in_database(), events()) == (first.revision, version, ["kv_node.register"])
    later.refresh_from_db()
    assert later.report.content["misses"] == 9
    assert later.report.received_at == seconds_later(now, 5)


def test_draining_node_is_published_as_draining_and_a_removed_one_is_not_published() -> None:
    reported()
    reported(state="draining")
    assert [node.state for node in build_snapshot(0.0).kv_nodes] == ["draining"]
    reported(state="gone")
    assert build_snapshot(0.0).kv_nodes == ()
    assert events() == ["kv_node.register", "kv_node.change", "kv_node.change"]


def test_restarted_node_supersedes_reports_of_its_earlier_incarnation() -> None:
    reported()
    reported(incarnation=2, address="127.0.0.1:9470")
    with pytest.raises(OlderIncarnationError):
        reported(state="gone")
    node = KvNode.objects.get(name="kv-1")
    assert (node.state, node.address) == ("serving", "127.0.0.1:9470")
    assert events() == ["kv_node.register", "kv_node.register"]


def test_transfers_use_the_certificate_name_and_events_the_checked_address() -> None:
    node = reported(address="localhost:8470", events_endpoint="tcp://localhost:8471")
    assert node.address == "localhost:8470"
    assert node.events_endpoint in ("tcp://127.0.0.1:8471", "tcp://[::1]:8471")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("address", "169.254.169.254:80"),
        ("address", "192.0.2.1:8470"),
        ("events_endpoint", "tcp://192.0.2.1:1"),
        ("replay_endpoint", "http://127.0.0.1:1"),
        ("metrics_url", "javascript:alert(1)"),
        ("metrics_url", "http://169.254.169.254/latest/meta-data"),
        ("metrics_url", "http://metadata.google.internal/metrics"),
        ("metrics_url", "http://192.0.2.1:8472/metrics"),
        ("metrics_url", "http://127.0.0.1@192.0.2.1:8472/metrics"),
        ("metrics_url", "http://2130706433:8472/metrics"),
        ("metrics_url", "tcp://127.0.0.1:8472/metrics"),
    ],
)
def test_address_not_allowed_for_engines_is_rejected(field: str, value: str) -> None:
    with pytest.raises(RejectedUrlError) as rejected:
        reported(**{field: value})
    assert rejected.value.field == field
    assert not KvNode.objects.exists()


@pytest.mark.parametrize("report", [{"tiers": 1}, {"blocks": -1}, {"links": [{"peer": "x" * 65}]}, {"misses": 1 << 70}])
def test_report_with_another_schema_is_rejected(report: object) -> None:
    with pytest.raises(InvalidFieldsError):
        reported(report=report)
    assert not KvNode.objects.exists()


def test_number_of_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_NODES", 2)
    for name in ("kv-1", "kv-2"):
        reported(name)
    with pytest.raises(InvalidFieldsError):
        reported("kv-3")
    reported("kv-2", state="draining")


def test_node_that_misses_three_reports_is_silent_until_the_next_one() -> None:
    now = timezone.now()
    reported("kv-1", now=now)
    reported("kv-2", now=seconds_later(now, 10))
    assert note_silent_nodes(seconds_later(now, 14)) == []
    assert note_silent_nodes(seconds_later(now, 16)) == ["kv-1"]
    assert note_silent_nodes(seconds_later(now, 17)) == []
    assert [node.name for node in build_snapshot(0.0).kv_nodes] == ["kv-2"]
    assert events()[-1] == "kv_node.silent"
    assert reported("kv-1").state == KvNodeState.SERVING
    assert events()[-1] == "kv_node.register"


def test_node_that_reported_its_removal_is_not_silent() -> None:
    now = timezone.now()
    reported(now=now, state="gone")
    assert note_silent_nodes(seconds_later(now, 1000)) == []


def test_only_a_node_without_recent_reports_can_be_deleted() -> None:
    node = reported()
    with pytest.raises(InUseError):
        delete_kv_node(node, actor=NODES)
    node = reported(state="gone")
    delete_kv_node(node, actor=NODES, expected=node.revision, why="scrapped")
    assert not KvNode.objects.exists()
    assert AuditEvent.objects.latest("pk").why == "scrapped"
