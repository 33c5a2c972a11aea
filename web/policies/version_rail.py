"""The version history next to the policy editor, with each version's changes and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import RAIL_LENGTH, PolicyAccess
from web.policies.words import change_summary, version_facts

LIVE, PUBLISHED, DRAFT, PASSED = "live", "published", "draft", "passed"
"""Version states: live; formerly live; draft; draft older than the live version."""


def rail_of(
    state: PolicyAccess, versions: Sequence[PolicyVersion], now: datetime, *, opened: int | None = None
) -> dict[str, Any]:
    """Return the entries of these versions, which are ordered newest first."""
    shown = versions[:RAIL_LENGTH]
    documents = {version.number: completed(version.document) for version in versions}
    entries = []
    for version in shown:
        base = documents.get(version.based_on) if version.based_on is not None else None
        entries.append(
            {
                **version_facts(version, now),
                "state": _state(version, state.live_number),
                # Against its base version; empty where that is not on this page.
                "changes": "" if base is None else change_summary(changes_between(base, documents[version.number])),
                "open": version.number == opened,
            }
        )
    compare_from, compare_to = _suggested(entries, opened)
    return {
        "entries": entries,
        # Where the next page begins; None: this is all.
        "older_below": shown[-1].number if len(versions) > RAIL_LENGTH else None,
        "compare_from": compare_from,
        "compare_to": compare_to,
    }


def _suggested(entries: Sequence[Mapping[str, Any]], opened: int | None) -> tuple[int | None, int | None]:
    """Return the most likely comparison: from the live version to the opened one, or from the previous live version."""
    live = next((entry["number"] for entry in entries if entry["state"] == LIVE), None)
    to = opened if opened is not None else live if live is not None else (entries[0]["number"] if entries else None)
    before = [entry["number"] for entry in entries if entry["state"] == PUBLISHED and entry["number"] != to]
    if to != live and live is not None:
        return live, to
    return before[0] if before else next((entry["number"] for entry in entries if entry["number"] != to), None), to


def _state(version: PolicyVersion, live: int | None) -> str:
    if version.number == live:
        return LIVE
    if version.published_at is not None:
        return PUBLISHED
    return PASSED if live is not None and version.number < live else DRAFT
