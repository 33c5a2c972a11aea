"""Kinds of trials of a version before it goes live, each with the source of its state.

SOURCES is the one place where a way joins the timeline of a version: its entry makes the step appear on the
policy page and in the API, between validated and approved, in the order of TRIALS.
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
    """How far one way of trying a version out has come: it goes on, or it has an answer."""

    running: bool
    at: datetime
    """When it began, or when it was answered."""
    by: str
    words: str
    """The finding in one line."""
    address: str = ""
    """The console's page about it."""
    against: bool = False
    """Its answer speaks against the version."""


Source = Callable[[Actor, Sequence[PolicyVersion]], Mapping[int, Trial]]
"""Returns by version id the newest trial that the actor may see; a version without one is left out."""

SOURCES: dict[str, Source] = {}
"""By a name of TRIALS; a way without a source does not appear in timelines. `controlplane.project.wiring` fills it."""
