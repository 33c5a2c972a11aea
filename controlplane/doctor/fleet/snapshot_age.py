"""Would a gateway that starts alone serve the current state?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.platform.models.snapshot_version import SnapshotVersion
from gateway.base.settings import GatewaySettings
from gateway.bus.snapshot_store import FILE_NAME, SnapshotStore


def look(installation: Installation) -> list[Finding]:
    """Compare the last-known-good snapshot on disk with the database, and its age with what is served at most."""
    path = installation.state_dir / FILE_NAME
    settings = GatewaySettings()
    if not path.exists():
        text = "No last-known-good snapshot yet."
        return [warning(text, "Start the server once; until then it cannot serve without its database.")]
    age = installation.now - datetime.fromtimestamp(path.stat().st_mtime, UTC)
    snapshot = SnapshotStore(installation.state_dir, settings.snapshot_max_age_s).load(installation.now.timestamp())
    if snapshot is None:
        return [warning(f"{path} is damaged or too old.", "Start the server: it writes a new one.")]
    wanted = _version()
    if wanted is not None and snapshot.version < wanted:
        text = f"The last-known-good snapshot is version {snapshot.version}, the database has {wanted}."
        return [warning(text, "Start the server, or `manage.py up` on this state directory, to load the newer one.")]
    if wanted is not None and snapshot.version > wanted:
        text = f"The last-known-good snapshot is version {snapshot.version}, but the database is at {wanted}."
        return [warning(text, "After a restore, start the server: versions continue above what gateways have served.")]
    return [ok(f"The last-known-good snapshot is version {snapshot.version}, confirmed {_ago(age)} ago.")]


def _version() -> int | None:
    try:
        return SnapshotVersion.objects.values_list("version", flat=True).first()
    except DatabaseError:
        return None


def _ago(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
