"""Kinds of trials of a version before it goes live, and functions that read their state.

An entry in SOURCES adds the kind to the timeline of a version, on the policy page and in the API. The step appears
between validated and approved, in the order of TRIALS.
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
    """Progress of one kind of trial of a version: running, or finished with a result."""

    running: bool
    at: datetime
    """Time at which it began or its result arrived."""
    by: str
    words: str
    """The result in one line."""
    address: str = ""
    """Console page about the trial."""
    against: bool = False
    """Whether its result argues against the version."""


Source = Callable[[Actor, Sequence[PolicyVersion]], Mapping[int, Trial]]
"""Returns the newest trial that the actor may see, by version id. Versions without a trial are omitted."""

SOURCES: dict[str, Source] = {}
"""Name in TRIALS → source. A kind without a source does not appear in timelines. `controlplane.project.wiring` fills
the table.
"""
