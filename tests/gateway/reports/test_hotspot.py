"""When an engine becomes hot, and when it cools."""

from __future__ import annotations

from gateway.reports.hotspot import HotspotDetector


def run(detector: HotspotDetector, load_s: float, *, start: float, seconds: float, median_s: float = 1.0) -> bool:
    hot = False
    for step in range(int(seconds * 2) + 1):
        hot = detector.update("e", load_s, median_s, 4.0, start + step / 2)
    return hot


def test_a_short_peak_is_not_hot() -> None:
    detector = HotspotDetector()
    assert not run(detector, 9.0, start=0.0, seconds=1.5)
    assert not run(detector, 1.0, start=2.0, seconds=0.5)
    assert not run(detector, 9.0, start=3.0, seconds=1.5)


def test_sustained_work_far_above_the_median_is_hot() -> None:
    assert run(HotspotDetector(), 9.0, start=0.0, seconds=2.0)


def test_high_work_on_all_engines_is_not_hot() -> None:
    assert not run(HotspotDetector(), 9.0, start=0.0, seconds=10.0, median_s=5.0)


def test_little_work_next_to_idle_engines_is_not_hot() -> None:
    assert not run(HotspotDetector(), 1.9, start=0.0, seconds=10.0, median_s=0.0)
    assert run(HotspotDetector(), 2.1, start=0.0, seconds=10.0, median_s=0.0)


def test_a_hot_engine_stays_hot_between_the_thresholds_and_cools_after_a_delay() -> None:
    detector = HotspotDetector()
    assert run(detector, 9.0, start=0.0, seconds=2.0)
    assert run(detector, 1.8, start=3.0, seconds=10.0)
    assert run(detector, 1.0, start=20.0, seconds=1.5)
    assert not run(detector, 1.0, start=22.0, seconds=2.0)


def test_a_forgotten_engine_starts_cold() -> None:
    detector = HotspotDetector()
    assert run(detector, 9.0, start=0.0, seconds=2.0)
    detector.forget("e")
    assert not detector.update("e", 9.0, 1.0, 4.0, 3.0)
