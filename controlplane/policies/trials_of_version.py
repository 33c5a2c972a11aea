"""Kinds of trials of a version before it goes live, each with the source of its state.

SOURCES is where a kind joins the timeline of a version: its entry makes the step appear on the policy page and in the
API, between validated and approved, in the order of TRIALS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.platform.actor import Actor
from controlplane.policies.models.policy_version import PolicyVersion

WHAT_IF, SHADOW, CANARY = "what_if", "shadow", "canary"
TRIALS = (WHAT_IF, SHADOW, CANARY)


@dataclass(frozen=True, slots=True)
class Trial:
    """Progress of one kind of trial of a version: it runs, or it has a result."""

    running: bool
    at: datetime
    """When it began, or when its result came."""
    by: str
    words: str
    """The finding in one line."""
    address: str = ""
    """The console's page about it."""
    against: bool = False
    """Its result argues against the version."""


Source = Callable[[Actor, Sequence[PolicyVersion]], Mapping[int, Trial]]
"""Returns by version id the newest trial that the actor may see; a version without one is left out."""

SOURCES: dict[str, Source] = {}
"""By a name of TRIALS; a kind without a source does not appear in timelines. `controlplane.project.wiring` fills it."""
