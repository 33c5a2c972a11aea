"""Timeouts of an attempt, derived from the request and its engine's history."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.pools.engines.engine_progress import PREFILL_SHARE, STARTS, EngineProgress
from gateway.proxy.attempt import ASSUMED_TPOT_S, GENEROUS, RelaySettings
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.requests.formats.endpoints import BY_PATH

SETTINGS = RelaySettings(answer_s=100.0, hang_s=30.0)
CONTEXT = 4096


def pool(progress: EngineProgress) -> Any:
    return SimpleNamespace(
        progress=SimpleNamespace(engine=lambda _name: progress), entry=SimpleNamespace(max_prompt_tokens=CONTEXT)
    )


def request(max_tokens: int = 0, path: str = "/v1/chat/completions") -> ForwardedRequest:
    return ForwardedRequest(BY_PATH[path], b"{}", {}, False, False, max_tokens)


def shown(start_s: float, tokens: int, answer_s: float) -> EngineProgress:
    """Return the progress of an engine that has served one stream like this."""
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.first_token("a", start_s)
    progress.completed("a", tokens, start_s + answer_s)
    return progress


@pytest.mark.parametrize(
    ("asked", "progress", "whole_s"),
    [
        (10, EngineProgress(), 100.0),
        (1000, EngineProgress(), GENEROUS * 1000 * ASSUMED_TPOT_S),
        (0, EngineProgress(), GENEROUS * CONTEXT * ASSUMED_TPOT_S),
        (1000, shown(40.0, 101, 50.0), GENEROUS * (40.0 + 1000 * 0.5)),
    ],
    ids=["the setting", "tokens", "all that fit", "a slow engine"],
)
def test_the_total_timeout_is_the_setting_or_generous_for_the_request(
    asked: int, progress: EngineProgress, whole_s: float
) -> None:
    limits = SETTINGS.limits(pool(progress), "e", request(asked))
    assert limits.whole_s == pytest.approx(whole_s)
    assert limits.start_s == inf


def test_a_prompt_with_a_long_prefill_adds_its_time() -> None:
    limits = SETTINGS.limits(pool(EngineProgress()), "e", request(10), 200.0)
    assert limits.whole_s == pytest.approx(GENEROUS * (200.0 + 10 * ASSUMED_TPOT_S))


def test_requests_that_generate_nothing_use_the_setting() -> None:
    assert SETTINGS.limits(pool(EngineProgress()), "e", request(0, "/v1/embeddings")).whole_s == 100.0


def test_a_leg_must_start_before_its_engine_counts_as_hung() -> None:
    slow = shown(40.0, 101, 50.0)
    assert SETTINGS.limits(pool(EngineProgress()), "e", request(), leg=True).start_s == 30.0
    assert SETTINGS.limits(pool(slow), "e", request(), 10.0, leg=True).start_s == STARTS * 40.0 + PREFILL_SHARE * 10.0


def test_non_streaming_responses_also_teach_the_time_per_token() -> None:
    progress = EngineProgress()
    progress.dispatched("a", 1.0, 0.0)
    progress.whole("a")
    progress.completed("a", 101, 50.0)
    assert progress.tpot_s == pytest.approx(0.5)
    assert progress.counts(50.0, 0).tpot_s is None, "speed is judged by streams alone"
