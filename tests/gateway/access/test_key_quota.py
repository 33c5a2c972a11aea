"""A key never exceeds its limits and gets back all that it releases."""

from __future__ import annotations

import contextlib
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.key_quota import KeyQuotas
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.openai_error import ApiError


class Limited:
    """Count rejections."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()

    def inc(self, *values: str, amount: float = 1.0) -> None:
        """Count one."""
        self.counts[values] += int(amount)


def entry(key_id: str = "k", rate: int | None = None, in_flight: int | None = None) -> ApiKeyEntry:
    return ApiKeyEntry(key_id=key_id, sha256="", tenant_id="t", rate_per_min=rate, max_in_flight=in_flight)


def quotas() -> KeyQuotas:
    return KeyQuotas(Limited())


def test_a_key_without_limits_is_not_tracked() -> None:
    kept = quotas()
    for number in range(100):
        kept.spend(entry(), 0.0)
        kept.enter(entry(), str(number), 0.0)
    assert kept.in_flight("k", 0.0) == 0
    kept.check()


def test_a_minutes_allowance_can_be_spent_at_once_and_refills_evenly() -> None:
    kept, key = quotas(), entry(rate=60)
    for _ in range(60):
        kept.spend(key, 0.0)
    with pytest.raises(ApiError) as rejected:
        kept.spend(key, 0.0)
    assert (rejected.value.status, rejected.value.code) == (429, "key_rate_limit")
    assert dict(rejected.value.headers)[b"retry-after"] == b"1"
    kept.spend(key, 1.0)
    with pytest.raises(ApiError):
        kept.spend(key, 1.0)
    for _ in range(60):
        kept.spend(key, 1000.0)


def test_waiting_for_retry_after_is_enough() -> None:
    kept, key = quotas(), entry(rate=7)
    for _ in range(7):
        kept.spend(key, 0.0)
    with pytest.raises(ApiError) as rejected:
        kept.spend(key, 3.0)
    kept.spend(key, 3.0 + (rejected.value.retry_after_s or 0.0))


def test_a_batch_counts_each_entry_and_is_accepted_or_rejected_whole() -> None:
    kept, key = quotas(), entry(rate=10)
    kept.spend(key, 0.0, 6)
    with pytest.raises(ApiError):
        kept.spend(key, 0.0, 6)
    kept.spend(key, 0.0, 4)
    with pytest.raises(ApiError, match="at most that many"):
        kept.spend(key, 1000.0, 11)


def test_a_lowered_limit_applies_immediately() -> None:
    kept = quotas()
    kept.spend(entry(rate=1000), 0.0)
    kept.spend(entry(rate=2), 0.0)
    kept.spend(entry(rate=2), 0.0)
    with pytest.raises(ApiError):
        kept.spend(entry(rate=2), 0.0)


def test_a_clock_that_stops_or_goes_back_adds_no_allowance() -> None:
    kept, key = quotas(), entry(rate=1)
    kept.spend(key, 100.0)
    for now in (100.0, 50.0, 0.0, 100.0):
        with pytest.raises(ApiError):
            kept.spend(key, now)


def test_a_full_key_rejects_until_a_slot_is_released() -> None:
    limited = Limited()
    kept, key = KeyQuotas(limited), entry(in_flight=2)
    kept.enter(key, "a", 0.0)
    kept.enter(key, "b", 0.0)
    with pytest.raises(ApiError) as rejected:
        kept.enter(key, "c", 0.0)
    assert (rejected.value.status, rejected.value.code) == (429, "key_in_flight_limit")
    assert limited.counts == {("in_flight",): 1}
    kept.release("a")
    kept.release("a")
    kept.enter(key, "c", 0.0)
    assert kept.in_flight("k", 0.0) == 2
    kept.check()


def test_an_unreleased_slot_expires_with_its_reservation() -> None:
    kept, key = quotas(), entry(in_flight=1)
    kept.enter(key, "a", 0.0)
    kept.end_by("a", 30.0)
    with pytest.raises(ApiError):
        kept.enter(key, "b", 29.9)
    kept.enter(key, "b", 30.0)
    kept.release("a")
    assert kept.in_flight("k", 30.0) == 1
    kept.check()


def test_a_removed_key_is_forgotten_with_its_slots() -> None:
    kept, gone, stays = quotas(), entry("gone", in_flight=1), entry("stays", in_flight=1)
    kept.enter(gone, "a", 0.0)
    kept.enter(stays, "b", 0.0)
    kept.keep_only([stays])
    kept.release("a")
    kept.check()
    assert (kept.in_flight("gone", 0.0), kept.in_flight("stays", 0.0)) == (0, 1)


spends = st.lists(st.tuples(st.floats(0, 20, allow_nan=False), st.integers(1, 5)), max_size=150)


@settings(max_examples=100, deadline=None)
@given(rate=st.integers(1, 300), steps=spends)
def test_no_interval_exceeds_its_share_of_the_rate(rate: int, steps: list[tuple[float, int]]) -> None:
    kept, key, now = quotas(), entry(rate=rate), 0.0
    granted: list[tuple[float, int]] = []
    for pause, requests in steps:
        now += pause
        with contextlib.suppress(ApiError):
            kept.spend(key, now, requests)
            granted.append((now, requests))
        kept.check()
    for start, (begin, _) in enumerate(granted):
        total = 0
        for at, requests in granted[start:]:
            total += requests
            assert total <= rate * (1 + (at - begin) / 60) + 1e-6


names = st.sampled_from("abcdefgh")
moves = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), names, st.floats(0, 3, allow_nan=False)),
        st.tuples(st.just("release"), names, st.just(0.0)),
        st.tuples(st.just("end_by"), names, st.floats(0, 5, allow_nan=False)),
        st.tuples(st.just("gone"), names, st.just(0.0)),
    ),
    max_size=120,
)


@settings(max_examples=100, deadline=None)
@given(limit=st.integers(1, 4), steps=moves)
def test_slots_match_a_simple_model_and_never_leak(limit: int, steps: list[tuple[str, str, float]]) -> None:
    kept, key, now = quotas(), entry(in_flight=limit), 0.0
    model: dict[str, float] = {}
    for number, (verb, name, pause) in enumerate(steps):
        if verb == "enter":
            now += pause
            model = {held: end for held, end in model.items() if end > now}
            request_id = f"{name}{number}"
            try:
                kept.enter(key, request_id, now)
                model[request_id] = math.inf
            except ApiError:
                assert len(model) == limit
        elif verb == "gone":
            kept.keep_only([])
            model = {}
        else:
            held = next((request_id for request_id in model if request_id.startswith(name)), name)
            if verb == "release":
                kept.release(held)
                model.pop(held, None)
            else:
                kept.end_by(held, now + pause)
                if held in model:
                    model[held] = now + pause
        kept.check()
        assert kept.in_flight("k", now) == sum(1 for end in model.values() if end > now) <= limit
    for held in list(model):
        kept.release(held)
    assert kept.in_flight("k", now) == 0
