"""Checks of this machine: versions, files, disk, clock and port."""

from __future__ import annotations

import os
import resource
import stat
import sys
from datetime import UTC, datetime, timedelta
from typing import cast

import django
import redis
from django.db import DatabaseError, connection

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of
from controlplane.kv_nodes.disk_problem import disk_problem, state_disk_problem
from controlplane.platform.format import byte_size
from controlplane.platform.models.job_run import JobRun
from controlplane.project.processes.sockets import PortTakenError, listen
from kvstore.node.disk_space import DiskSpace, space_of
from routing.values.counted import count

PYTHONS = ((3, 11), (3, 12), (3, 13))
DJANGO = (5, 2)


def versions(
    _installation: Installation,
    *,
    python: tuple[int, ...] = tuple(sys.version_info[:3]),
    django_version: tuple[int, ...] = django.VERSION[:3],
) -> list[Finding]:
    """Compare both with the requirements in pyproject.toml and requirements.txt."""
    return [_python(python), _django(django_version)]


def _python(version: tuple[int, ...]) -> Finding:
    text = ".".join(str(part) for part in version)
    if version[:2] in PYTHONS:
        return ok(f"Python is {text}.")
    return problem(f"Python is {text}, not 3.11 to 3.13.", "Install Python 3.13 and run `make install` with it.")


def _django(version: tuple[int, ...]) -> Finding:
    text = ".".join(str(part) for part in version)
    if version[:2] == DJANGO:
        return ok(f"Django is {text}.")
    if version[:2] > DJANGO:
        return warning(f"Django is {text}; Headway is tested with 5.2.", "Run `make install` for the tested version.")
    return problem(f"Django is {text}, older than 5.2.", "Run `make install`.")


_PRIVATE = ("first_run.json", "headway.sqlite3", "last-known-good.snapshot", "revoked-keys")


def state_directory(installation: Installation) -> list[Finding]:
    """Check the directory and the files in it that hold secrets or hashes of them."""
    directory = installation.state_dir
    if not directory.is_dir():
        return [problem(f"The state directory {directory} does not exist.", f"Run `mkdir -m 700 {directory}`.")]
    if not os.access(directory, os.W_OK | os.X_OK):
        return [
            problem(f"The state directory {directory} is not writable.", "Make it owned by the user that runs Headway.")
        ]
    findings = []
    for path in [directory, *(directory / name for name in _PRIVATE)]:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
        if mode & 0o077:
            closed = "700" if path.is_dir() else "600"
            findings.append(warning(f"Others can read {path} (mode {mode:04o}).", f"Run `chmod {closed} {path}`."))
    return findings or [ok(f"Only its owner can access the state directory {directory}.")]


def disk_space(installation: Installation, *, space: DiskSpace | None = None) -> list[Finding]:
    """Check the free bytes of the state directory's file system, and the KV nodes on the same file system."""
    try:
        space = space or space_of(installation.state_dir)
    except OSError as error:
        return [problem(f"The state directory's disk cannot be read: {error.strerror}.", "Create the directory first.")]
    try:
        shortage = state_disk_problem(space)
    except DatabaseError:
        # The check of the database reports it.
        shortage = disk_problem(space, (), with_database=True)
    if shortage is not None:
        return [(problem if shortage.is_full else warning)(shortage.sentence, shortage.remedy)]
    free = f"{byte_size(space.free_bytes)} of {byte_size(space.total_bytes)}"
    return [ok(f"{free} are free on the disk of {installation.state_dir}.")]


_LEAST_FILES, _GOOD_FILES = 1024, 4096


def open_files(_installation: Installation, *, limit: int | None = None) -> list[Finding]:
    """Compare the open-file limit with the two descriptors needed per relayed request."""
    most = limit if limit is not None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < 0 or most >= _GOOD_FILES:
        return [ok(f"{'Any number of' if most < 0 else most} open files are allowed.")]
    do = f"Raise the limit: `ulimit -n {4 * _GOOD_FILES}`, or LimitNOFILE={4 * _GOOD_FILES} in the systemd unit."
    if most < _LEAST_FILES:
        return [problem(f"Only {most} open files are allowed, too few for engines, clients and sockets.", do)]
    return [warning(f"{most} open files are allowed: about {count(most // 2, 'request')} at a time.", do)]


_MOST_APART = timedelta(seconds=1)
_SYNCHRONIZE = "Synchronize the clock of every machine with NTP (chrony or systemd-timesyncd); leases compare clocks."


def clock(installation: Installation) -> list[Finding]:
    """Compare the clock with those of the database server and Redis, and with the newest job run."""
    findings = []
    for name, moment in (("the database's server", _database_time()), ("Redis", _redis_time(installation.redis_url))):
        if moment is not None and abs(moment - datetime.now(UTC)) > _MOST_APART:
            ahead = (moment - datetime.now(UTC)).total_seconds()
            findings.append(
                warning(f"The clock of {name} differs from this machine's by {ahead:+.1f} s.", _SYNCHRONIZE)
            )
    newest = _newest_start()
    if newest is not None and newest > installation.now + _MOST_APART:
        text = f"A job started at {newest:%Y-%m-%d %H:%M:%S} UTC, which is in the future: the clock was set back."
        findings.append(problem(text, _SYNCHRONIZE))
    return findings or [ok("The clock agrees with all references.")]


def _database_time() -> datetime | None:
    if connection.vendor != "postgresql":
        return None
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            moment: datetime = cursor.fetchone()[0]
            return moment
    except DatabaseError:
        return None


def _redis_time(url: str) -> datetime | None:
    if not url:
        return None
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            seconds, micros = cast("tuple[int, int]", client.time())
            return datetime.fromtimestamp(seconds + micros / 1e6, UTC)
    except (redis.RedisError, ValueError, OSError):
        return None


def _newest_start() -> datetime | None:
    try:
        return JobRun.objects.order_by("-started_at").values_list("started_at", flat=True).first()
    except DatabaseError:
        return None


def port(installation: Installation) -> list[Finding]:
    """Try to listen on the port. If it is in use, check whether Headway holds it."""
    where = f"{installation.host}:{installation.port}"
    try:
        listen(installation.host, installation.port).close()
    except PortTakenError as error:
        if b'"live":true' in (answer_of(installation, "/live") or b""):
            return [ok(f"Headway listens on {where}.")]
        return [problem(str(error), "Free the port, or start with another `--port`.")]
    except OSError as error:
        return [
            problem(
                f"{where} is not an address of this machine: {error.strerror}.",
                "Use an address of this machine for `--host`.",
            )
        ]
    return [ok(f"{where} is free; no server is running there.")]
