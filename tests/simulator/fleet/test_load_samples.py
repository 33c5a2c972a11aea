import pytest

from routing.router import Router
from routing.values.load_cv import LoadSmoother, load_cv
from simulator.fleet.load_samples import LoadSamples
from tests.routing.pools import pool, request


def sampled(*loads: list[int], every_s: float = 60.0) -> LoadSamples:
    """Sample a fleet at long intervals; each load lists the pending tokens per engine."""
    samples = LoadSamples(keep=True)
    router: Router = pool(size=4)
    for number, pending in enumerate(loads):
        router.view.load.in_flight_tokens[:] = pending
        samples.take(router.view, number * every_s)
    return samples


def test_an_idle_fleet_counts_as_even() -> None:
    assert sampled([0, 0, 0, 0]).mean_cv == 0.0
    assert LoadSamples().mean_cv == 0.0


def test_one_of_four_with_all_the_work_has_a_cv_of_root_three() -> None:
    assert sampled([8_000, 0, 0, 0]).mean_cv == pytest.approx(3**0.5)


def test_the_mean_is_over_samples_and_the_series_keeps_each_engine() -> None:
    samples = sampled([50_000] * 4, [8_000, 0, 0, 0])
    assert samples.mean_cv == pytest.approx(3**0.5 / 2, rel=1e-3)
    assert samples.series == [(0.0, [50_000] * 4), (60.0, [8_000, 0, 0, 0])]


def test_the_mean_cv_equals_the_gateways_load_cv() -> None:
    loads = [[8_000, 0, 500, 0], [0, 9_000, 500, 0], [4_000, 4_000, 0, 0]]
    smoother, shown = LoadSmoother(), []
    for second, pending in enumerate(loads):
        shown.append(load_cv(smoother.update({str(at): float(tokens) for at, tokens in enumerate(pending)}, second)))
    assert sampled(*loads, every_s=1.0).mean_cv == pytest.approx(sum(shown) / 3)


def test_engines_that_accept_no_work_do_not_count() -> None:
    router = pool(size=2)
    router.place(request(1), 0.0)
    router.set_engines([], 0.0)
    samples = LoadSamples()
    samples.take(router.view, 0.0)
    assert samples.mean_cv == 0.0


def test_an_interval_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="above 0"):
        LoadSamples(0.0)
