"""Release timeline of a version, from draft to live and replaced, as completed or pending steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.policies.models.scheduled_publish import ScheduleState
from controlplane.policies.trials_of_version import Trial
from routing.values.counted import count

DONE, NOW, NEXT, SKIPPED = "done", "now", "next", "skipped"

DRAFTED, VALIDATED, APPROVED, SCHEDULED, LIVE = "drafted", "validated", "approved", "scheduled", "live"
REPLACED, ROLLED_BACK = "replaced", "rolled_back"


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of one version."""

    step: str
    state: str
    """DONE; NOW: the version is at this step; NEXT: a possible next step; SKIPPED: not or no longer possible."""
    at: datetime | None = None
    by: str = ""
    words: str = ""
    address: str = ""
    """Console page about the step."""
    against: bool = False
    """Whether its result argues against the version."""
    by_rollback: bool = False
    """Whether a rollback created the version. `words` then describes the step."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A version that went live: the person and the version number."""

    at: datetime
    by: str
    number: int
    rolled_back: bool


@dataclass(frozen=True, slots=True)
class Appointment:
    """The newest scheduled publish of a version."""

    state: str
    at: datetime
    by: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """The facts from which a release timeline is built."""

    number: int
    author: str
    created_at: datetime
    based_on: int | None
    live_number: int | None
    published_at: datetime | None
    errors: int
    """Number of errors of its document in this program."""
    needs_approval: bool
    approvals: tuple[tuple[str, datetime], ...] = ()
    """Name and time of each valid approval."""
    ways: tuple[str, ...] = ()
    """The available kinds of trials."""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    appointment: Appointment | None = None
    went_live: Passage | None = None
    successor: Passage | None = None
    """The version that replaced this one."""
    copies: int | None = None
    """Number of the version that a rollback copied."""

    @property
    def is_live(self) -> bool:
        """Return whether the version is live."""
        return self.number == self.live_number

    @property
    def is_open(self) -> bool:
        """Return whether the version can still go live unchanged: it was never live, and no newer version is live."""
        return self.published_at is None and (self.live_number is None or self.live_number < self.number)


def timeline_of(facts: VersionFacts) -> tuple[TimelineStep, ...]:
    """Return all steps in order. Steps that a version does not take are marked as skipped."""
    return (
        TimelineStep(
            DRAFTED,
            DONE,
            facts.created_at,
            facts.author,
            _base_words(facts),
            by_rollback=facts.copies is not None,
        ),
        _validated(facts),
        *(_tried(facts, way) for way in facts.ways),
        _approved(facts),
        _scheduled(facts),
        _live(facts),
        _ended(facts),
    )


def _base_words(facts: VersionFacts) -> str:
    if facts.copies is not None:
        return f"copies v{facts.copies}"
    return "from the program's defaults" if facts.based_on is None else f"from v{facts.based_on}"


def _ahead(facts: VersionFacts) -> str:
    return NEXT if facts.is_open else SKIPPED


def _validated(facts: VersionFacts) -> TimelineStep:
    if facts.errors:
        return TimelineStep(VALIDATED, NOW, words=count(facts.errors, "error"))
    return TimelineStep(VALIDATED, DONE, facts.created_at, facts.author, "no errors")


def _tried(facts: VersionFacts, way: str) -> TimelineStep:
    trial = facts.trials.get(way)
    if trial is None:
        return TimelineStep(way, _ahead(facts), words="not yet" if facts.is_open else "left out")
    return TimelineStep(
        way, NOW if trial.running else DONE, trial.at, trial.by, trial.words, trial.address, trial.against
    )


def _approved(facts: VersionFacts) -> TimelineStep:
    if facts.approvals:
        person, at = facts.approvals[0]
        more = len(facts.approvals) - 1
        return TimelineStep(APPROVED, DONE, at, person, f"and {more} more" if more else "")
    if facts.needs_approval and facts.is_open:
        return TimelineStep(APPROVED, NEXT, words="needs approval")
    return TimelineStep(APPROVED, SKIPPED, words="not required" if not facts.needs_approval else "went live without")


def _scheduled(facts: VersionFacts) -> TimelineStep:
    scheduled = facts.appointment
    if scheduled is None:
        return TimelineStep(SCHEDULED, SKIPPED)
    states = {ScheduleState.WAITING.value: NOW, ScheduleState.PUBLISHED.value: DONE}
    return TimelineStep(SCHEDULED, states.get(scheduled.state, SKIPPED), scheduled.at, scheduled.by, scheduled.problem)


def _live(facts: VersionFacts) -> TimelineStep:
    passage = facts.went_live
    at = facts.published_at if passage is None else passage.at
    by = "" if passage is None else passage.by
    rolled_back = passage is not None and passage.rolled_back
    if facts.published_at is not None or facts.is_live:
        words = "rolled back" if rolled_back else ""
        return TimelineStep(LIVE, NOW if facts.is_live else DONE, at, by, words, by_rollback=rolled_back)
    if facts.is_open:
        replaces = "would be the first" if facts.live_number is None else f"would replace v{facts.live_number}"
        return TimelineStep(LIVE, NEXT, words=replaces)
    return TimelineStep(LIVE, SKIPPED, words=f"v{facts.live_number} is live")


def _ended(facts: VersionFacts) -> TimelineStep:
    passage = facts.successor
    if passage is None or facts.is_live:
        return TimelineStep(REPLACED, NEXT if facts.is_live else SKIPPED)
    step = ROLLED_BACK if passage.rolled_back else REPLACED
    return TimelineStep(step, DONE, passage.at, passage.by, f"by v{passage.number}")
