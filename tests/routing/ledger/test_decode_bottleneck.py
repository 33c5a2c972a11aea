"""Engines whose decodes fill their memory (DualMap A.8), with hand-computed values."""

import msgspec
import pytest

from routing.router import Router
from routing.values.observation import FirstToken
from tests.routing.pools import pool, request


def stuck(*, usage: float | None = 1.0, after_s: float = 3.0) -> tuple[Router, int]:
    """Return an engine with a prefill dispatched at 0 s that is expected to take 0.93 s."""
    router = pool(size=1, prefill_window_tokens=1, lookahead_s=0.0, bottleneck_s=after_s)
    target = router.fleet.known_target("e-01")
    if usage is not None:
        router.note_memory("e-01", usage)
    router.place(request(1, range(20)), 0.0)
    return router, target


def test_an_engine_without_a_first_token_is_expected_to_stay_delayed_as_long_again() -> None:
    router, target = stuck()
    router.tick(2.9)
    assert router.view.wait_s(target, 2.9) == 0.0
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) == pytest.approx(4.0)
    router.tick(7.0)
    assert router.view.wait_s(target, 7.0) == pytest.approx(7.0)
    router.check()


@pytest.mark.parametrize("usage", [0.2, 0.84])
def test_an_engine_with_free_memory_is_slow_but_not_delayed(usage: float) -> None:
    router, target = stuck(usage=usage)
    router.tick(2.9)
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) < 1.0


def test_an_engine_without_a_report_counts_as_full() -> None:
    router, target = stuck(usage=None)
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) == pytest.approx(4.0)


def test_a_first_token_ends_the_expected_delay() -> None:
    router, target = stuck()
    router.tick(4.0)
    router.observe(FirstToken("request-00000001"), 4.1)
    assert router.view.wait_s(target, 4.1) == 0.0


def test_an_idle_engine_is_not_delayed_by_its_past() -> None:
    router, target = stuck()
    router.observe(FirstToken("request-00000001"), 1.0)
    router.place(request(2, range(100, 120), at=60.0), 60.0)
    router.tick(61.0)
    assert router.view.wait_s(target, 61.0) < 1.0


def test_a_disabled_bottleneck_changes_nothing() -> None:
    router, target = stuck(after_s=0.0)
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) == 0.0


@pytest.mark.parametrize("usage", [float("nan"), -1.0, 7.0])
def test_impossible_readings_are_ignored(usage: float) -> None:
    router, target = stuck(usage=0.1)
    router.note_memory("e-01", usage)
    router.note_memory("nobody", 1.0)
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) < 2.5


def test_enabling_the_bottleneck_by_policy_takes_effect() -> None:
    router, target = stuck(after_s=0.0)
    router.tick(4.0)
    assert router.view.wait_s(target, 4.0) < 4.0
    router.set_policy(msgspec.structs.replace(router.policy, bottleneck_s=3.0), 2, 4.1)
    router.tick(5.0)
    assert router.view.wait_s(target, 5.0) == pytest.approx(5.0)
