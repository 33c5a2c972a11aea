"""Numbers, durations, and times are formatted for operators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from controlplane.platform.format import (
    byte_rate,
    byte_size,
    duration,
    moment,
    rate,
    relative,
    roughly,
    setting,
    short,
    signed,
    span,
    whole,
)

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
def test_durations_get_a_fitting_unit(seconds: float, words: str) -> None:
    assert relative(seconds) == words


def test_other_days_are_named() -> None:
    assert moment(NOW - timedelta(minutes=2), NOW).clock == "03:13:00"
    assert moment(NOW - timedelta(hours=4), NOW).clock == "2026-11-19 23:15"
    assert moment(None, NOW) is None


def test_every_time_is_shown_in_utc() -> None:
    there = datetime(2026, 11, 20, 4, 13, 2, tzinfo=timezone(timedelta(hours=1)))
    shown = moment(there, NOW)
    assert (shown.clock, shown.iso) == ("03:13:02", "2026-11-20T03:13:02.000+00:00")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (640, "640"),
        (999.6, "1.0k"),
        (-3600, "−3.6k"),
        (9951, "10k"),
        (3600, "3.6k"),
        (128_000, "128k"),
        (980_000, "0.98M"),
        (8_704_000, "8.7M"),
        (12_000_000, "12M"),
    ],
)
def test_large_counts_are_shortened(number: float, words: str) -> None:
    assert short(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0\u202fs"),
        (4.8e-5, "48\u202fµs"),
        (0.0123, "12\u202fms"),
        (-0.25, "−250\u202fms"),
        (0.9999, "1.00\u202fs"),
        (2.314, "2.31\u202fs"),
        (41.24, "41.2\u202fs"),
        (59.97, "1\u202fmin"),
        (152.0, "2\u202fmin 32\u202fs"),
        (None, "—"),
    ],
)
def test_duration_has_at_most_three_digits(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_a_setting_has_no_trailing_zeros() -> None:
    assert [setting(item).replace("\u202f", " ") for item in (3.5, 5.0, 0.25, 3600)] == [
        "3.5 s",
        "5 s",
        "250 ms",
        "3,600 s",
    ]


def test_rates_keep_one_decimal_place_while_they_are_small() -> None:
    assert [rate(item) for item in (0, 0.01, 0.52, 9.94, 118.4, 1204)] == ["0.0", "<0.1", "0.5", "9.9", "118", "1,204"]
    assert whole(-1204) == "−1,204"


def test_span_has_at_most_two_units() -> None:
    assert [span(item) for item in (-3.0, 41.0, 3725.0, 186_400.0)] == [
        "0\u202fs",
        "41\u202fs",
        "1\u202fh 2\u202fmin",
        "2\u202fd 3\u202fh",
    ]


def test_estimates_are_rounded_up() -> None:
    assert [roughly(number) for number in (40.2, 125.0, 7201.0, 200_000.0)] == [
        "41\u202fs",
        "3\u202fmin",
        "3\u202fh",
        "3 days",
    ]


def test_only_changes_have_a_sign() -> None:
    assert [signed(item) for item in (5.0, -1200.0, -0.04)] == ["+5.0", "−1,200.0", "0.0"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (32 << 10, "32.0 KiB"),
        (100 << 20, "100 MiB"),
        (5 << 40, "5.00 TiB"),
    ],
)
def test_stored_bytes_have_three_digits(size: int, words: str) -> None:
    assert byte_size(size).replace("\u202f", " ") == words


def test_rates_are_decimal_and_unknown_until_learned() -> None:
    assert byte_rate(0) == ""
    assert byte_rate(12.5e9).replace("\u202f", " ") == "12.5 GB/s"
