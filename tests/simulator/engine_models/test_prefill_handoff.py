from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.prefill_handoff import KvLink

PROFILE = EngineProfile(layers=10, kv_bytes_per_token=1000, link_bytes_per_s=1e6)
"""1 ms per token, 0.1 ms per token and layer."""


def test_after_a_slow_prefill_only_the_last_layer_remains_to_be_sent() -> None:
    assert KvLink(PROFILE).send(0, 1000, 5.0, 15.0) == pytest.approx(15.1)


def test_a_slow_link_sends_from_the_first_layer_on() -> None:
    assert KvLink(PROFILE).send(0, 1000, 5.0, 5.5) == pytest.approx(5.05 + 1.0)


def test_cached_tokens_are_sent_immediately() -> None:
    assert KvLink(PROFILE).send(400, 100, 5.0, 5.2) == pytest.approx(5.0 + 0.4 + 0.1)
    assert KvLink(PROFILE).send(400, 100, 5.0, 8.0) == pytest.approx(8.0 + 0.01)


def test_one_sender_sends_prompts_one_after_another() -> None:
    link = KvLink(PROFILE)
    assert link.send(0, 1000, 0.0, 0.0) == pytest.approx(1.0)
    assert link.send(0, 500, 0.0, 0.2) == pytest.approx(1.5)
    assert link.send(0, 500, 9.0, 9.0) == pytest.approx(9.5)


def test_latency_is_added_to_the_transfer_time() -> None:
    link = KvLink(EngineProfile(layers=1, kv_bytes_per_token=1, link_bytes_per_s=1e6, link_latency_s=0.25))
    assert link.send(0, 1, 0.0, 1.0) == pytest.approx(1.250001)


@given(st.floats(0, 5), st.floats(0, 5), st.integers(0, 5000), st.integers(1, 5000), st.floats(0, 9))
def test_the_closed_form_equals_sending_layer_by_layer(
    started: float, took: float, hit: int, computed: int, free_at: float
) -> None:
    link = KvLink(PROFILE)
    link.free_at = free_at
    sent = max(free_at, started) + hit * 1e-3
    for layer in range(10):
        sent = max(sent, started + took * (layer + 1) / 10) + computed * 1e-4
    assert link.send(hit, computed, started, started + took) == pytest.approx(sent, abs=1e-9)
