import pytest

from routing.router import Router
from simulator.load_samples import LoadSamples
from tests.routing.pools import pool, request


def sampled(*loads: list[float]) -> LoadSamples:
    """Sample a fleet once a second; each load is the seconds of work left at each engine."""
    samples = LoadSamples(keep=True)
    router: Router = pool(size=4)
    for number, left_s in enumerate(loads):
        router.view.ready_at[:] = [number + each for each in left_s]
        router.view.outstanding_tokens[:] = [int(each * 10_000) for each in left_s]
        samples.take(router.view, float(number))
    return samples


def test_an_idle_fleet_counts_as_even() -> None:
    assert sampled([0, 0, 0, 0]).mean_cv == 0.0
    assert LoadSamples().mean_cv == 0.0


def test_one_of_four_with_all_the_work_varies_by_the_root_of_three() -> None:
    assert sampled([0.8, 0, 0, 0]).mean_cv == pytest.approx(3**0.5)


def test_the_mean_is_over_samples_and_the_series_keeps_each_engine() -> None:
    samples = sampled([5, 5, 5, 5], [0.8, 0, 0, 0])
    assert samples.mean_cv == pytest.approx(3**0.5 / 2)
    assert samples.series == [(0.0, [50_000] * 4), (1.0, [8_000, 0, 0, 0])]


def test_work_that_should_be_over_counts_as_none() -> None:
    assert sampled([-1.0, -2.0, 0.0, 0.0]).mean_cv == 0.0


def test_engines_that_take_no_work_do_not_count() -> None:
    router = pool(size=2)
    router.submit(request(1), 0.0)
    router.set_engines([], 0.0)
    samples = LoadSamples()
    samples.take(router.view, 0.0)
    assert samples.mean_cv == 0.0


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        LoadSamples(0.0)
