"""The banner on the Fleet page about the installation: its disk, its database, and revocations not yet stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from controlplane.kv_nodes.disk_problem import state_disk_problem
from controlplane.platform.actor import Actor
from controlplane.platform.outage.bus_revocations import bus_revocations
from controlplane.platform.outage.unwritable import Cause, database_writes
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from kvstore.node.disk_space import space_of, usual_reserve
from routing.values.counted import count


@dataclass(frozen=True, slots=True)
class InstallationProblem:
    """One line of the banner; `shape` is the symbol in front of it."""

    shape: str
    sentence: str
    remedy: str


_UNWRITABLE = {
    Cause.FULL: "The database is not writable: its disk is full.",
    Cause.READ_ONLY: "The database is not writable: it is read-only.",
}
"""Sentences for lasting causes of an unwritable database."""
_READ_ONLY = (
    "You can sign in, read, and revoke API keys. Other changes are rejected until it is writable. No restart is needed."
)
_LATER = "The jobs store the revocation when the database is writable."


def installation_problems(actor: Actor) -> list[InstallationProblem]:
    """Return the installation's problems for people with a role in all pools, the most urgent first."""
    return list(_problems()) if may(actor, Role.VIEWER) else []


def _problems() -> Iterator[InstallationProblem]:
    cause = database_writes().failing
    if cause in _UNWRITABLE:
        yield InstallationProblem("lost", _UNWRITABLE[cause], _READ_ONLY)
    if waiting := len(bus_revocations().waiting()):
        keys = count(waiting, "API key is revoked at the gateways", "API keys are revoked at the gateways")
        yield InstallationProblem("hot", f"{keys}; the database has not stored the revocation.", _LATER)
    yield from _disk(settings.STATE_DIR)


def _disk(state_dir: Path) -> Iterator[InstallationProblem]:
    try:
        space = space_of(state_dir)
    except OSError as error:
        yield InstallationProblem("lost", f"The state directory’s disk cannot be read: {error.strerror}.", "Check it.")
        return
    # With free space, no problem is possible that would cost a query.
    if space.free_bytes >= usual_reserve(space.total_bytes):
        return
    if (problem := state_disk_problem(space)) is not None:
        yield InstallationProblem("lost" if problem.is_full else "hot", problem.sentence, problem.remedy)
