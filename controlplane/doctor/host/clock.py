"""Does this machine's clock agree with the servers' and with what was written before?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import redis
from django.db import DatabaseError, connection

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.platform.models.job_run import JobRun

_MOST = timedelta(seconds=1)
_DO = "Synchronize the clock of every machine with NTP (chrony or systemd-timesyncd); leases compare clocks."


def look(installation: Installation) -> list[Finding]:
    """Compare with the database's server, with Redis, and with the newest job run."""
    found = []
    for name, moment in (("the database's server", _database_time()), ("Redis", _redis_time(installation.redis_url))):
        if moment is not None and abs(moment - datetime.now(UTC)) > _MOST:
            ahead = (moment - datetime.now(UTC)).total_seconds()
            found.append(warning(f"The clock of {name} differs from ours by {ahead:+.1f} s.", _DO))
    newest = _newest_start()
    if newest is not None and newest > installation.now + _MOST:
        text = f"A job started at {newest:%Y-%m-%d %H:%M:%S} UTC, which is in the future: the clock was set back."
        found.append(problem(text, _DO))
    return found or [ok("The clock agrees with all references.")]


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
