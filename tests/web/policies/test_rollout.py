"""The progress of a publish, from the reports of gateways."""

from __future__ import annotations

import pytest

from tests.web.policies.policy_scene import sample_of
from web.policies.rollout import Reach, VersionWatch


class FakePool:
    """The fields of a pool that a sample requires."""

    slug, name, served_model = "chat", "chat", "m"


def report(watch: VersionWatch, at: float, version: int, gateway: str = "") -> None:
    watch.take(gateway, sample_of(FakePool(), at=at, policy_version=version))  # type: ignore[arg-type]


@pytest.fixture
def watch() -> VersionWatch:
    """Return a watch that has followed version 1 since second 10."""
    watch = VersionWatch()
    report(watch, 10.0, 1)
    return watch


def test_version_without_gateways_has_reached_none() -> None:
    assert VersionWatch().reach(["chat"], 1, 0.0) == Reach(0, 0, None)


def test_version_arrives_with_the_first_sample_that_carries_it(watch: VersionWatch) -> None:
    report(watch, 10.5, 1)
    assert watch.reach(["chat"], 2, 10.6) == Reach(1, 0, None)
    for at in (11.0, 11.5, 90.0):
        report(watch, at, 2)
    reach = watch.reach(["chat"], 2, 10.6)
    assert reach.everywhere
    assert reach.after_s == pytest.approx(0.4)


def test_version_from_before_the_watch_has_no_time(watch: VersionWatch) -> None:
    assert watch.reach(["chat"], 1, 5.0) == Reach(1, 1, None)


def test_return_to_an_earlier_version_counts_from_its_new_arrival(watch: VersionWatch) -> None:
    report(watch, 11.0, 2)
    report(watch, 20.0, 1)
    assert watch.reach(["chat"], 1, 19.5).after_s == pytest.approx(0.5)


def test_pools_of_other_policies_are_ignored(watch: VersionWatch) -> None:
    assert watch.reach(["other"], 1, 0.0) == Reach(0, 0, None)


def test_version_is_everywhere_once_every_gateway_runs_it(watch: VersionWatch) -> None:
    report(watch, 10.2, 1, "second")
    report(watch, 11.0, 2)
    assert watch.reach(["chat"], 2, 10.6) == Reach(2, 1, pytest.approx(0.4))
    report(watch, 12.0, 2, "second")
    assert watch.reach(["chat"], 2, 10.6) == Reach(2, 2, pytest.approx(1.4))
