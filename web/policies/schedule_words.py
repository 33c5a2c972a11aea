"""A scheduled publish in words: its form field and its line on the page. All times are in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controlplane.platform.format import date_time, relative
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.reading import PolicyAccess

NO_TIME = "Enter date and time in UTC, for example 2027-01-31T09:00."
SHOWN_FOR = timedelta(days=2)
"""How long the page reports a failed scheduled publish."""


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """The page's line about the policy's newest scheduled publish."""

    number: int
    instead_of: int | None
    iso: str
    exact: str
    until: str
    by: str
    waiting: bool
    problem: str


def read_moment(text: str) -> datetime | None:
    """Return the UTC time in a datetime-local field; None if the field is empty or invalid."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix("Z"))
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def suggested(now: datetime) -> str:
    """Return the next allowed full hour in the format of a datetime-local field."""
    return f"{(now + timedelta(minutes=75)).astimezone(UTC).replace(minute=0):%Y-%m-%dT%H:%M}"


def schedule_line(schedule: ScheduledPublish | None, state: PolicyAccess, now: datetime) -> ScheduleLine | None:
    """Return the pending publish, or one that failed recently; None if there is neither."""
    if schedule is None:
        return None
    waiting = schedule.state == ScheduleState.WAITING
    number, live = schedule.version.number, state.live_number
    failed = schedule.state == ScheduleState.FAILED and schedule.ended_at and now - schedule.ended_at < SHOWN_FOR
    if not waiting and (not failed or live == number):
        return None
    at = schedule.at.astimezone(UTC)
    until = relative((now - at).total_seconds())
    exact = date_time(at)
    return ScheduleLine(
        number, schedule.instead_of, at.isoformat(), exact, until, schedule.by_name, waiting, schedule.problem
    )
