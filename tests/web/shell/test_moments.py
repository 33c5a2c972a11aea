"""Moments read as an operator says them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from web.shell.moments import moment, relative

NOW = datetime(2026, 11, 20, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"),
        (-0.9, "just now"),
        (41, "41\u202fs ago"),
        (119, "119\u202fs ago"),
        (120, "2\u202fmin ago"),
        (7199, "119\u202fmin ago"),
        (7200, "2\u202fh ago"),
        (86_400 * 2, "2\u202fd ago"),
        (-86_400 * 30, "in 30\u202fd"),
        (-86_400 * 90 + 5, "in 90\u202fd"),
        (86_400 * 3 - 5, "2\u202fd ago"),
    ],
)
def test_lengths_get_the_unit_that_fits(seconds: float, words: str) -> None:
    assert relative(seconds) == words


def test_another_day_is_named() -> None:
    assert moment(NOW - timedelta(minutes=2), NOW).clock == "03:13:00"
    assert moment(NOW - timedelta(hours=4), NOW).clock == "2026-11-19 23:15"
    assert moment(None, NOW) is None


def test_every_moment_is_told_in_utc() -> None:
    there = datetime(2026, 11, 20, 4, 13, 2, tzinfo=timezone(timedelta(hours=1)))
    told = moment(there, NOW)
    assert (told.clock, told.iso) == ("03:13:02", "2026-11-20T03:13:02.000+00:00")
