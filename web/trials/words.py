"""Words that the pages of all trials share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """The answer of a trial; `kind` is better, worse, mixed, even, or empty while nothing can be said."""

    kind: str
    title: str
    sentence: str
