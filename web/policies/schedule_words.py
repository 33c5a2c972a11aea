"""A publish at a chosen moment in words: its field, and what the page tells of it. Times are in UTC, as everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controlplane.platform.format import relative
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.reading import PolicyStanding

NO_TIME = "Enter date and time in UTC, for example 2027-01-31T09:00."
TOLD_FOR = timedelta(days=2)
"""For so long the page tells that an appointment failed."""


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """What the page says about the policy's newest appointment."""

    number: int
    iso: str
    exact: str
    until: str
    by: str
    waiting: bool
    words: str


def read_moment(text: str) -> datetime | None:
    """Return the moment that a datetime-local field holds, taken as UTC; None where it holds none."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix("Z"))
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def suggested(now: datetime) -> str:
    """Return the next full hour that is not too near, as a datetime-local field writes it."""
    return f"{(now + timedelta(minutes=75)).astimezone(UTC).replace(minute=0):%Y-%m-%dT%H:%M}"


def schedule_line(schedule: ScheduledPublish | None, standing: PolicyStanding, now: datetime) -> ScheduleLine | None:
    """Return what there is to tell: what waits, and for a while what could not go live."""
    if schedule is None:
        return None
    waiting = schedule.state == ScheduleState.WAITING
    number, live = schedule.version.number, standing.live_number
    failed = schedule.state == ScheduleState.FAILED and schedule.ended_at and now - schedule.ended_at < TOLD_FOR
    if not waiting and (not failed or live == number):
        return None
    at = schedule.at.astimezone(UTC)
    instead = f", instead of v{schedule.instead_of}" if schedule.instead_of else ""
    words = instead if waiting else schedule.problem
    until = relative((now - at).total_seconds())
    return ScheduleLine(number, at.isoformat(), f"{at:%Y-%m-%d %H:%M}", until, schedule.by_name, waiting, words)
