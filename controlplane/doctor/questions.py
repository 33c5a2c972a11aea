"""The doctor's questions, in the order in which one depends on the other."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.doctor.finding import Finding, problem
from controlplane.doctor.fleet import (
    engines,
    kv_nodes,
    policies,
    probe_lease,
    queue_owners,
    snapshot_age,
    tenants,
    wake_up,
)
from controlplane.doctor.host import clock, disk_space, open_files, port, state_directory, versions
from controlplane.doctor.installation import Installation
from controlplane.doctor.setup import database, first_run, front_end, migrations, redis_server, settings_mix

QUESTIONS: dict[str, Callable[[Installation], list[Finding]]] = {
    "versions": versions.look,
    "settings": settings_mix.look,
    "state directory": state_directory.look,
    "disk space": disk_space.look,
    "secrets": first_run.look,
    "open files": open_files.look,
    "database": database.look,
    "migrations": migrations.look,
    "redis": redis_server.look,
    "clock": clock.look,
    "console": front_end.look,
    "port": port.look,
    "policies": policies.look,
    "tenants": tenants.look,
    "engines": engines.look,
    "KV nodes": kv_nodes.look,
    "snapshot": snapshot_age.look,
    "queue owners": queue_owners.look,
    "probing": probe_lease.look,
    "jobs": wake_up.look,
}


def examine(installation: Installation) -> dict[str, list[Finding]]:
    """Ask every question; one that fails by itself is a problem, and the others are still asked."""
    found = {}
    for name, look in QUESTIONS.items():
        try:
            found[name] = look(installation)
        except Exception as error:  # noqa: BLE001 - a doctor that stops at the first surprise is of no use
            text = f"The check failed: {type(error).__name__}."
            found[name] = [problem(text, "Report this with the version of Switchyard.")]
    return found
