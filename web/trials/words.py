"""Words that the pages of all trials share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """The result of a trial; `kind` is better, worse, mixed, or even, and empty while there is no verdict."""

    kind: str
    title: str
    sentence: str
