"""Checks of the installation: settings, secrets, database, Redis, and the built console."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import redis
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.checks import run_checks
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.platform.environment import PROGRAM
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.outage.unwritable import Cause, cause_of
from controlplane.project.checks import weak_secrets
from controlplane.project.first_run.secrets import FILE_NAME, UnsafeSecretsError, read_secrets
from controlplane.project.processes.bus_server import NoServerError, server_program
from controlplane.project.unusable_database import fault
from routing.values.counted import count


def settings_mix(_installation: Installation) -> list[Finding]:
    """Report the errors and warnings of the start-up checks."""
    findings = [
        (problem if message.is_serious() else warning)(str(message.msg), str(message.hint or "Check the settings."))
        for message in run_checks()
    ]
    return findings or [ok("The settings are consistent.")]


def first_run(installation: Installation) -> list[Finding]:
    """Check the secrets in the environment, or the file created on the first start."""
    if weak := weak_secrets():
        return [warning(f"{name} is too weak.", "Set it to the output of `openssl rand -base64 48`.") for name in weak]
    if settings.FLEET_SECRET_ALSO or settings.SECRET_KEY_FALLBACKS:
        return [
            warning(
                "Secret rotation in progress: two secrets are accepted.", f"Run `{PROGRAM} secrets` for the next step."
            )
        ]
    if settings.SECRETS_GIVEN:
        return [ok("The secrets come from the environment.")]
    try:
        read_secrets(installation.state_dir / FILE_NAME)
    except UnsafeSecretsError as error:
        return [problem("The secrets of the first start are unusable.", str(error))]
    return [ok("The secrets of the first start are in the state directory, readable by its owner only.")]


_UNWRITABLE_REMEDY = (
    f"Free space on its disk, or make it writable; no restart is needed. Revoke API keys with `{PROGRAM} revoke_key` "
    "meanwhile."
)
_AWAY_REMEDY = "Check that the server runs, and that DATABASE_URL has the right host, user and password."


def database(_installation: Installation) -> list[Finding]:
    """Query the database. For SQLite, also check its journal mode."""
    vendor = connection.vendor
    try:
        with connection.cursor() as cursor:
            if vendor != "sqlite":
                cursor.execute("SELECT version()")
                answer = str(cursor.fetchone()[0]).split(",")[0]
                return [*_writable(), ok(f"The database answers: {answer}.")]
            cursor.execute("PRAGMA journal_mode")
            mode = str(cursor.fetchone()[0])
    except DatabaseError as error:
        # Only its type: the message may quote the address with its password.
        return [problem(f"The database ({vendor}) does not answer: {type(error).__name__}.", _AWAY_REMEDY)]
    if mode != "wal":
        return [
            problem(
                f"SQLite's journal mode is {mode}, not WAL: readers and writers block each other.",
                "Put the state directory on a local file system; network file systems do not support WAL.",
            )
        ]
    return [*_writable(), ok("SQLite answers, in WAL mode.")]


def _writable() -> list[Finding]:
    """Check that the database is writable by writing an existing value again. Return no finding on success."""
    try:
        SnapshotVersion.objects.filter(pk=SnapshotVersion.ONLY).update(version=F("version"))
    except DatabaseError as error:
        said = {Cause.FULL: "its disk is full", Cause.READ_ONLY: "it is read-only", Cause.BUSY: "other writes block it"}
        if (cause := cause_of(error)) in said:
            return [problem(f"The database is not writable: {said[cause]}.", _UNWRITABLE_REMEDY)]
    return []


def migrations(_installation: Installation) -> list[Finding]:
    """Compare the applied migrations with those of this program."""
    try:
        executor = MigrationExecutor(connection)
        executor.loader.check_consistent_history(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return [problem(f"Cannot read the migrations: {type(error).__name__}.", "Fix the database connection first.")]
    except InconsistentMigrationHistory as error:
        return [problem(f"The migrations conflict: {error}", "Restore the database from its backup.")]
    if unusable := fault():
        return [problem(*unusable)]
    unknown = set(executor.loader.applied_migrations) - set(executor.loader.graph.nodes)
    if unknown:
        app, name = min(unknown)
        return [
            problem(
                f"A newer release created the database: {app}.{name} is unknown here.",
                "Run the newer release, or restore a backup of this version.",
            )
        ]
    if waiting:
        text = f"{count(len(waiting), 'migration')} pending; the first is {waiting[0][0]}."
        return [warning(text, f"Run `{PROGRAM} migrate`; `{PROGRAM} up` does so automatically.")]
    return [ok("All migrations are applied.")]


_ALLOWED_EVICTION = "noeviction"


def redis_server(installation: Installation) -> list[Finding]:
    """Check Redis's version, and whether it may evict Headway's keys."""
    if not installation.redis_url:
        try:
            return [ok(f"REDIS_URL is empty: the bus of this machine's processes is {server_program()}.")]
        except NoServerError as error:
            return [problem("REDIS_URL is empty, and there is no server for the bus.", str(error))]
    try:
        with redis.Redis.from_url(installation.redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
            about = cast("dict[str, Any]", client.info())
            version, policy = str(about["redis_version"]), str(about.get("maxmemory_policy", ""))
    except (redis.RedisError, ValueError, OSError) as error:
        return [
            problem(
                f"The server at REDIS_URL does not answer: {type(error).__name__}.",
                "Start it, or correct REDIS_URL (redis://[:password@]host:port/number).",
            )
        ]
    if policy not in ("", _ALLOWED_EVICTION):
        return [warning(f"Redis {version} answers, but may evict keys ({policy}).", "Set maxmemory-policy noeviction.")]
    return [ok(f"Redis {version} answers.")]


_FILES = ("dist/console.js",)


def front_end(_installation: Installation) -> list[Finding]:
    """Check for the bundles that every page loads."""
    root = settings.STATIC_ROOT
    missing = [name for name in _FILES if not (_collected(root, name) if root else finders.find(name))]
    if missing and root:
        return [problem(f"{missing[0]} is not in {root}.", f"Run `{PROGRAM} collectstatic`.")]
    if missing:
        return [problem(f"The console is not built: no {missing[0]}.", "Run `make install` or `npm run build`.")]
    return [ok("The console is built.")]


def _collected(root: str, name: str) -> bool:
    path = Path(root) / name
    return any(path.parent.glob(f"{path.stem}*{path.suffix}"))
