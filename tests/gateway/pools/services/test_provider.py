"""When a provider gets no requests."""

from __future__ import annotations

import pytest

from gateway.contracts.snapshot import ProviderEntry
from gateway.pools.services.provider import FAILURES, MAX_PAUSE_S, PAUSE_S, PAUSED, Provider, ProviderFailedError


@pytest.fixture
def provider() -> Provider:
    def never() -> None:
        raise AssertionError

    return Provider(ProviderEntry(url="https://api.example.com/v1", model="m"), never)  # type: ignore[arg-type]


def paused_s(provider: Provider, status: int, now: float, pause_s: float | None = None) -> float:
    """Return the pause after one more failure."""
    provider.failed(ProviderFailedError("x", status, pause_s), now)
    return max(0.0, provider._paused_until_s - now)


def test_pauses_double_up_to_a_limit_and_an_answer_resets_them(provider: Provider) -> None:
    pauses = [paused_s(provider, 500, 1000.0 * number) for number in range(1, FAILURES + 8)]
    assert pauses[: FAILURES - 1] == [0.0] * (FAILURES - 1)
    assert pauses[FAILURES - 1 : FAILURES + 1] == [PAUSE_S, 2 * PAUSE_S]
    assert pauses[-1] == MAX_PAUSE_S
    provider.succeeded()
    assert paused_s(provider, 0, 1e6) == 0.0


def test_a_rejected_key_pauses_at_once_and_a_busy_provider_for_the_time_it_names(provider: Provider) -> None:
    assert paused_s(provider, 429, 0.0, 7.0) == 7.0
    assert (provider.unready(6.9), provider.unready(7.0)) == (PAUSED, "")
    provider.succeeded()
    assert paused_s(provider, 429, 100.0, 1e9) == MAX_PAUSE_S
    provider.succeeded()
    assert paused_s(provider, 401, 1000.0) == MAX_PAUSE_S
