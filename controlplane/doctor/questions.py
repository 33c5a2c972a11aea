"""All checks of the doctor, in the order of their dependencies."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.doctor import fleet, host, setup
from controlplane.doctor.finding import Finding, problem
from controlplane.doctor.installation import Installation

QUESTIONS: dict[str, Callable[[Installation], list[Finding]]] = {
    "versions": host.versions,
    "settings": setup.settings_mix,
    "state directory": host.state_directory,
    "disk space": host.disk_space,
    "secrets": setup.first_run,
    "open files": host.open_files,
    "database": setup.database,
    "migrations": setup.migrations,
    "redis": setup.redis_server,
    "clock": host.clock,
    "console": setup.front_end,
    "port": host.port,
    "policies": fleet.policies,
    "tenants": fleet.tenants,
    "engines": fleet.engines,
    "rotation": fleet.rotation,
    "KV nodes": fleet.kv_nodes,
    "snapshot": fleet.snapshot_age,
    "queue owners": fleet.queue_owners,
    "probing": fleet.probe_lease,
    "jobs": fleet.wake_up,
}


def examine(installation: Installation) -> dict[str, list[Finding]]:
    """Run every check. A check that raises becomes a problem finding, and the others still run."""
    findings = {}
    for name, check in QUESTIONS.items():
        try:
            findings[name] = check(installation)
        except Exception as error:  # noqa: BLE001 - a doctor that stops at the first surprise is of no use
            text = f"The check failed: {type(error).__name__}."
            findings[name] = [problem(text, "Report this with the version of Headway.")]
    return findings
