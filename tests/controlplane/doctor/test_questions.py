"""Each check of the doctor: its finding for a sound installation and for each fault."""

from __future__ import annotations

import asyncio
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.utils import timezone

from controlplane.doctor import fleet, host, questions, setup
from controlplane.doctor.finding import Finding, State, ok
from controlplane.doctor.installation import Installation
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.project.first_run.secrets import secrets_of
from controlplane.project.processes import bus_server
from controlplane.project.state_lock import hold_state
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import Snapshot
from kvstore.node.disk_space import DiskSpace
from tests.certificates import certificates, tls_engine
from tests.controlplane.kv_nodes.node_words import reported
from tests.controlplane.platform.outage.unwritable_database import unwritable
from tests.private_redis import private_redis

GOOD = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    tmp_path.chmod(0o700)
    return Installation(tmp_path, "127.0.0.1", 1, "", timezone.now())


def at(here: Installation, **changes: Any) -> Installation:
    names = ("state_dir", "host", "port", "redis_url", "now")
    return Installation(**{**{name: getattr(here, name) for name in names}, **changes})


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    assert finding.says.endswith((".", "!", "."))
    assert (finding.do == "") == (finding.state is State.OK)
    return finding


def plain(text: str) -> str:
    """Return the text with ordinary spaces."""
    return text.replace("\u202f", " ")


def states(findings: list[Finding]) -> list[State]:
    return [finding.state for finding in findings]


def broken(*_: Any) -> Any:
    """Raise the error of a cursor of an unavailable database."""
    raise OperationalError("connection to postgres://user:hunter2@db failed")


@contextmanager
def answering(status: int, body: bytes = b"", hosts: tuple[str, ...] = ()) -> Iterator[int]:
    """Run an HTTP server that always sends this response; yield its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if not hosts or self.headers["Host"] in hosts else 400)
            self.send_header("Location", "http://127.0.0.1:1/health")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_versions_are_checked(here: Installation) -> None:
    assert states(host.versions(here)) == [State.OK, State.OK]
    assert states(host.versions(here, python=(3, 13, 1), django_version=(5, 2, 0))) == [State.OK, State.OK]
    assert states(host.versions(here, python=(3, 14, 0), django_version=(6, 0, 0))) == [State.PROBLEM, State.WARNING]
    assert states(host.versions(here, python=(3, 10, 1), django_version=(4, 2, 0))) == [State.PROBLEM, State.PROBLEM]


def test_contradicting_settings_are_reported(here: Installation) -> None:
    assert only(setup.settings_mix(here)).state is State.OK
    with override_settings(PROCESSES=2):
        findings = setup.settings_mix(here)
    assert State.PROBLEM in states(findings)
    assert "REDIS_URL" in " ".join(finding.do for finding in findings)


def test_state_directory_is_checked(here: Installation) -> None:
    assert only(host.state_directory(here)).state is State.OK
    assert only(host.state_directory(at(here, state_dir=here.state_dir / "gone"))).state is State.PROBLEM
    here.state_dir.chmod(0o755)
    secrets = here.state_dir / "first_run.json"
    secrets.touch()
    secrets.chmod(0o644)  # touch's own mode is narrowed by the umask, which commands set
    findings = host.state_directory(here)
    assert states(findings) == [State.WARNING, State.WARNING]
    assert f"chmod 700 {here.state_dir}" in findings[0].do
    assert "chmod 600" in findings[1].do


def test_state_directory_of_another_user_is_reported(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.doctor.host.os.access", lambda *_: False)
    assert only(host.state_directory(here)).state is State.PROBLEM


@pytest.mark.django_db
def test_disk_space_is_checked(here: Installation) -> None:
    def finding_of(free_mib: int, total_mib: int = 100 << 10) -> Finding:
        space = DiskSpace(total_bytes=total_mib << 20, free_bytes=free_mib << 20, disk_id="d")
        return only(host.disk_space(here, space=space))

    limits = [State.OK, State.WARNING, State.WARNING, State.PROBLEM]
    assert [finding_of(free).state for free in (2560, 2559, 200, 199)] == limits
    assert [finding_of(free, 1000).state for free in (100, 99, 20, 19)] == limits
    assert "The state directory’s disk is nearly full: 199 MiB of 2.00 GiB free." in plain(finding_of(199, 2048).says)
    assert "HEADWAY_STATE_DIR" in finding_of(199, 2048).do
    assert only(host.disk_space(at(here, state_dir=here.state_dir / "gone"))).state is State.PROBLEM
    assert only(host.disk_space(here)).says


@pytest.mark.django_db
def test_kv_nodes_on_the_disk_of_the_state_directory_are_reported(here: Installation) -> None:
    def finding_of(free_mib: int, disk_id: str = "d") -> Finding:
        space = DiskSpace(total_bytes=100 << 30, free_bytes=free_mib << 20, disk_id=disk_id)
        return only(host.disk_space(here, space=space))

    tier = {"medium": "STORAGE", "slots": 8192, "used_slots": 4096}
    disk = {"disk_id": "d", "disk_reserve_bytes": 5 << 30}
    reported("kv-1", report={"tiers": [tier], **disk}, slot_bytes=1 << 20)
    reported("kv-2", report={"tiers": [], **disk})
    reported("kv-3", report={"tiers": [tier], **disk}, state="gone")
    assert finding_of(6000).state is State.OK
    shared = finding_of(1000)
    assert shared.state is State.WARNING
    assert "The SSD tiers of KV nodes share it: kv-1 with 4.00 GiB." in plain(shared.says)
    assert "lower --ssd-mib" in shared.do
    assert "KV node" not in finding_of(1000, "other").says
    reported("kv-1", report={"tiers": [tier], **disk, "disk_reserve_bytes": 0}, slot_bytes=1 << 20)
    greedy = finding_of(50_000)
    assert (greedy.state, "leave 0 B of it free: kv-1" in plain(greedy.says)) == (State.WARNING, True)
    assert "--disk-reserve-mib 5120" in greedy.do


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("database or disk is full", "its disk is full"),
        ("attempt to write a readonly database", "it is read-only"),
        ("no such table: x", ""),
    ],
)
def test_read_only_database_is_reported(here: Installation, message: str, said: str) -> None:
    with unwritable(message):
        findings = setup.database(here)
    assert [item.says for item in findings if item.state is State.PROBLEM] == (
        [f"The database is not writable: {said}."] if said else []
    )
    assert all("revoke_key" in item.do for item in findings if item.state is State.PROBLEM)


def test_open_file_limit_is_checked(here: Installation) -> None:
    assert only(host.open_files(here, limit=-1)).state is State.OK
    assert only(host.open_files(here, limit=65_536)).state is State.OK
    assert only(host.open_files(here, limit=1024)).state is State.WARNING
    assert only(host.open_files(here, limit=256)).state is State.PROBLEM


def test_secrets_are_checked(here: Installation) -> None:
    secret = secrets_of(here.state_dir)
    with override_settings(SECRET_KEY=secret.secret_key, FLEET_SECRET=secret.fleet_secret.encode()):
        assert only(setup.first_run(here)).state is State.OK
        (here.state_dir / "first_run.json").chmod(0o644)
        finding = only(setup.first_run(here))
        assert finding.state is State.PROBLEM
        assert "chmod 600" in finding.do
    with override_settings(SECRET_KEY=GOOD, FLEET_SECRET=GOOD.encode(), SECRETS_GIVEN=True):
        assert only(setup.first_run(here)).state is State.OK
    for also in ({"FLEET_SECRET_ALSO": GOOD[::-1].encode()}, {"SECRET_KEY_FALLBACKS": [GOOD[::-1]]}):
        with override_settings(SECRET_KEY=GOOD, FLEET_SECRET=GOOD.encode(), SECRETS_GIVEN=True, **also):
            finding = only(setup.first_run(here))
        assert finding.state is State.WARNING
        assert "manage.py secrets" in finding.do
    with override_settings(SECRET_KEY="changeme", FLEET_SECRET=b"aaaa" * 20, SECRETS_GIVEN=True):
        weak = setup.first_run(here)
    assert states(weak) == [State.WARNING, State.WARNING]
    assert "changeme" not in str(weak)


@pytest.mark.django_db
def test_available_database_passes(here: Installation) -> None:
    assert only(setup.database(here)).state is State.OK


@pytest.mark.django_db
def test_unavailable_database_is_reported(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "cursor", broken)
    finding = only(setup.database(here))
    assert finding.state is State.PROBLEM
    assert "hunter2" not in str(finding)


@pytest.mark.django_db
def test_sqlite_without_wal_is_reported(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cursor:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def execute(self, _sql: str) -> None: ...

        def fetchone(self) -> tuple[str]:
            return ("delete",)

    monkeypatch.setattr(connection, "cursor", Cursor)
    monkeypatch.setattr(connection, "vendor", "sqlite")
    finding = only(setup.database(here))
    assert finding.state is State.PROBLEM
    assert "WAL" in finding.says


@pytest.mark.django_db
def test_missing_migrations_are_reported(here: Installation) -> None:
    assert only(setup.migrations(here)).state is State.OK
    recorder = MigrationRecorder(connection)
    recorder.record_applied("controlplane", "9999_from_the_future")
    newer = only(setup.migrations(here))
    assert newer.state is State.PROBLEM
    assert "9999_from_the_future" in newer.says
    recorder.record_unapplied("controlplane", "9999_from_the_future")
    own = [name for app, name in recorder.applied_migrations() if app == "controlplane"]
    for name in own:
        recorder.record_unapplied("controlplane", name)
    recorder.record_applied("controlplane", "0002_roles_audit_revisions")
    pre_release = only(setup.migrations(here))
    assert pre_release.state is State.PROBLEM
    assert f"Move {connection.settings_dict['NAME']} away" in pre_release.do
    recorder.record_unapplied("controlplane", "0002_roles_audit_revisions")
    for name in own:
        recorder.record_applied("controlplane", name)
    last = max(name for app, name in recorder.applied_migrations() if app == "sessions")
    recorder.record_unapplied("sessions", last)
    waiting = only(setup.migrations(here))
    assert waiting.state is State.WARNING
    assert "manage.py migrate" in waiting.do


def test_redis_is_checked(here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(setup.redis_server(here)).state is State.OK
    away = only(setup.redis_server(at(here, redis_url="redis://user:hunter2@127.0.0.1:1/0")))
    assert away.state is State.PROBLEM
    assert "hunter2" not in str(away)
    assert only(setup.redis_server(at(here, redis_url="http://x"))).state is State.PROBLEM
    with private_redis(tmp_path) as server:
        assert only(setup.redis_server(at(here, redis_url=server.url))).state is State.OK
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        assert only(setup.redis_server(at(here, redis_url=server.url))).state is State.WARNING
    monkeypatch.setattr(bus_server, "_PACKAGE", "package_of_no_test")
    monkeypatch.setattr(bus_server, "_ON_PATH", ("a-server-of-no-test",))
    assert "apt-get install valkey" in only(setup.redis_server(here)).do


@pytest.mark.django_db
def test_clock_skew_is_reported(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(host.clock(here)).state is State.OK
    monkeypatch.setattr(host, "_database_time", lambda: timezone.now() + timedelta(seconds=90))
    monkeypatch.setattr(host, "_redis_time", lambda _url: timezone.now() - timedelta(seconds=90))
    findings = host.clock(here)
    assert states(findings) == [State.WARNING, State.WARNING]
    assert "+90" in findings[0].says
    assert "-90" in findings[1].says


@pytest.mark.django_db
def test_clock_that_was_set_back_is_reported(here: Installation) -> None:
    JobRun.objects.create(job="probe", started_at=here.now + timedelta(hours=1))
    assert only(host.clock(here)).state is State.PROBLEM


def test_console_without_build_is_reported(here: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup.finders, "find", lambda _name: None)
    assert "npm run build" in only(setup.front_end(here)).do
    with override_settings(STATIC_ROOT=str(tmp_path)):
        assert "collectstatic" in only(setup.front_end(here)).do
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist" / "console.0a1b.js").touch()
        assert only(setup.front_end(here)).state is State.OK


def test_port_of_another_program_is_reported(here: Installation) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        free = other.getsockname()[1]
        other.listen()
        taken = only(host.port(at(here, port=free)))
        assert taken.state is State.PROBLEM
        assert "--port" in taken.do
    assert only(host.port(at(here, port=free))).state is State.OK
    public = ("headway.example.com", "127.0.0.1")
    with answering(200, b'{"live":true}', public) as ours, override_settings(ALLOWED_HOSTS=list(public)):
        assert "Headway listens" in only(host.port(at(here, port=ours))).says
    with answering(200, b"<html>") as stranger:
        assert only(host.port(at(here, port=stranger))).state is State.PROBLEM


def test_engines_are_checked(here: Installation, pool: Pool) -> None:
    assert "No engine" in only(fleet.engines(here)).says
    with answering(200) as sound, answering(503) as sick, answering(302) as moved:
        for number, port in enumerate((sound, sick, moved, 1)):
            address = f"http://127.0.0.1:{port}"
            Engine.objects.create(
                engine_id=f"e{number}", name=f"e{number}", pool=pool, url=address, connect_url=address
            )
        finding = only(fleet.engines(here))
        assert finding.state is State.WARNING
        for part in (
            "3 of 4",
            "e1 (health check answers 503)",
            "e2 (health check answers 302)",
            "(Connection refused)",
        ):
            assert part in finding.says
        Engine.objects.exclude(engine_id="e0").update(desired_state="maintenance")
        assert only(fleet.engines(here)).state is State.OK
        Engine.objects.filter(engine_id="e1").update(role="prefill")
        assert "no decode engine" in fleet.engines(here)[-1].says


def test_engines_that_reject_the_gateways_key_are_named(here: Installation, pool: Pool) -> None:
    metrics = b'headway_engine_rejects_key{engine="e"} 1.0\nheadway_engine_rejects_key{engine="gone"} 1.0\n'
    with answering(200) as engine, answering(200, metrics) as gateway:
        address = f"http://127.0.0.1:{engine}"
        Engine.objects.create(engine_id="e", name="e", pool=pool, url=address, connect_url=address)
        Pool.objects.update(engine_api_key_env="HEADWAY_ENGINE_KEY_A")
        assert only(fleet.engines(here)).state is State.OK
        sound, wrong = fleet.engines(at(here, port=gateway))
    assert (sound.state, wrong.state) == (State.OK, State.PROBLEM)
    assert wrong.says == "1 engine rejects the gateway's key: e (HEADWAY_ENGINE_KEY_A)."
    assert "Set HEADWAY_ENGINE_KEY_A of the gateways" in wrong.do


async def test_untrusted_certificate_is_reported_with_the_setting(tmp_path: Path) -> None:
    async with tls_engine(certificates(tmp_path)) as url:
        why = await asyncio.to_thread(fleet._why_not, url)
    assert why == "certificate not trusted; HEADWAY_ENGINE_CA names further authorities"


def test_engine_with_another_block_size_than_its_pool_is_reported(here: Installation, pool: Pool) -> None:
    metrics = b'vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:cache_config_info{block_size="32"} 1\n'
    with answering(200, metrics) as engine:
        address = f"http://127.0.0.1:{engine}"
        Engine.objects.create(engine_id="e", name="e", pool=pool, url=address, connect_url=address)
        sound, wrong = fleet.engines(here)
        assert (sound.state, wrong.state) == (State.OK, State.WARNING)
        assert "blocks of 512 tokens, but e has 32" in wrong.says
        assert "block size to 32" in wrong.do
        pool.block_tokens = 32
        pool.save()
        assert only(fleet.engines(here)).state is State.OK


@pytest.mark.django_db
def test_snapshot_on_disk_is_checked(here: Installation) -> None:
    assert only(fleet.snapshot_age(here)).state is State.WARNING
    store = SnapshotStore(here.state_dir, 1e9)
    store.save(Snapshot(version=3, published_at=0.0), here.now.timestamp())
    assert only(fleet.snapshot_age(here)).state is State.OK
    SnapshotVersion.objects.create(pk=SnapshotVersion.ONLY, version=5)
    behind = only(fleet.snapshot_age(here))
    assert behind.state is State.WARNING
    assert "version 3" in behind.says
    assert "has 5" in behind.says
    SnapshotVersion.objects.update(version=2)
    restored = only(fleet.snapshot_age(here))
    assert restored.state is State.WARNING
    assert "database is at 2" in restored.says
    assert "After a restore" in restored.do
    store.path.write_bytes(b"damaged")
    assert "damaged" in only(fleet.snapshot_age(here)).says


@pytest.mark.django_db
def test_missing_probe_lease_is_reported(here: Installation, pool: Pool) -> None:
    assert "no engines" in only(fleet.probe_lease(here)).says
    Engine.objects.create(engine_id="e", name="e", pool=pool, url="http://e", connect_url="http://e")
    assert only(fleet.probe_lease(here)).state is State.OK
    with hold_state(here.state_dir):
        assert only(fleet.probe_lease(here)).state is State.WARNING
    hold_state.cache_clear()
    assert "manage.py worker" in only(fleet.probe_lease(at(here, redis_url="redis://r"))).do
    run = JobRun.objects.create(job="probe", started_at=here.now, lease_owner="vm:1:2")
    JobRun.objects.filter(pk=run.pk).update(lease_until=here.now + timedelta(seconds=1))
    assert "vm:1:2" in only(fleet.probe_lease(here)).says
    JobRun.objects.filter(pk=run.pk).update(progress={"shards": 3})
    assert "1 of 3 engine shards" in only(fleet.probe_lease(here)).says


@pytest.mark.django_db
@pytest.mark.parametrize("check", [fleet.engines, fleet.probe_lease, setup.migrations, host.clock, fleet.snapshot_age])
def test_checks_of_the_database_report_its_outage_without_its_password(
    here: Installation, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "cursor", broken)
    monkeypatch.setattr(connection, "chunked_cursor", broken)
    assert "hunter2" not in str(check(here))


def test_failing_check_is_a_problem_and_the_others_run(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_installation: Installation) -> list[Finding]:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(questions, "QUESTIONS", {"a": failing, "b": lambda _: [ok("fine.")]})
    findings = questions.examine(here)
    assert only(findings["a"]).state is State.PROBLEM
    assert "hunter2" not in str(findings)
    assert findings["b"] == [ok("fine.")]


@pytest.mark.parametrize(("age", "state"), [(b"0.7", State.OK), (b"3600.0", State.PROBLEM)])
def test_idle_job_schedule_of_a_running_server_is_reported(here: Installation, age: bytes, state: State) -> None:
    with answering(200, b"# TYPE x gauge\nheadway_jobs_wake_up_age_seconds " + age + b"\n") as taken:
        assert only(fleet.wake_up(at(here, port=taken))).state is state
    assert only(fleet.wake_up(here)).state is State.OK, "without a server, jobs are not checked"
