"""The history of a policy beside its editor: every version with what it changed and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.platform.format import Moment, moment_of
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import RAIL_LENGTH, PolicyStanding
from web.policies.words import author_of, change_summary

LIVE, PUBLISHED, DRAFT, PASSED = "live", "published", "draft", "passed"


@dataclass(frozen=True, slots=True)
class RailEntry:
    """One version."""

    number: int
    state: str
    """LIVE, PUBLISHED (was live once), DRAFT, or PASSED (a draft that a newer version went live over)."""
    author: str
    at: Moment
    message: str
    changes: str
    """What it changed against the version it was based on; empty where that is not on this page."""
    open: bool
    """Whether the editor shows it."""
    copies: int | None
    """Number of the version that a rollback copied."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One page of the history, newest first."""

    entries: tuple[RailEntry, ...]
    older_below: int | None
    """Where the next page begins; None: this is all."""
    compare_from: int | None
    compare_to: int | None


def rail_of(
    standing: PolicyStanding, versions: Sequence[PolicyVersion], now: datetime, *, opened: int | None = None
) -> Rail:
    """Return the rail of these versions, which come newest first."""
    shown = versions[:RAIL_LENGTH]
    documents = {version.number: completed(version.document) for version in versions}
    entries = []
    for version in shown:
        base = documents.get(version.based_on) if version.based_on is not None else None
        changes = "" if base is None else change_summary(changes_between(base, documents[version.number]))
        at = moment_of(version.published_at or version.created_at, now)
        state = _state(version, standing.live_number)
        entries.append(
            RailEntry(
                version.number,
                state,
                author_of(version),
                at,
                version.message,
                changes,
                version.number == opened,
                version.copies,
            )
        )
    older = shown[-1].number if len(versions) > RAIL_LENGTH else None
    return Rail(tuple(entries), older, *_suggested(entries, opened))


def _suggested(entries: list[RailEntry], opened: int | None) -> tuple[int | None, int | None]:
    """Return what a comparison most likely wants: from what is live to what is open, or from what was live before."""
    live = next((entry.number for entry in entries if entry.state == LIVE), None)
    to = opened if opened is not None else live if live is not None else (entries[0].number if entries else None)
    before = [entry.number for entry in entries if entry.state == PUBLISHED and entry.number != to]
    if to != live and live is not None:
        return live, to
    return before[0] if before else next((entry.number for entry in entries if entry.number != to), None), to


def _state(version: PolicyVersion, live: int | None) -> str:
    if version.number == live:
        return LIVE
    if version.published_at is not None:
        return PUBLISHED
    return PASSED if live is not None and version.number < live else DRAFT
