import pytest

from routing.cost.load_rate import LoadRate


def learned(size: int, true_latency_s: float, true_s_per_byte: float, *, loads: int = 200) -> LoadRate:
    rate = LoadRate(0.002, 1e-9)
    for _ in range(loads):
        rate.observe(size, true_latency_s + size * true_s_per_byte)
    return rate


@pytest.mark.parametrize("size", [4096, 1 << 20, 64 << 20])
@pytest.mark.parametrize(("latency_s", "s_per_byte"), [(0.0005, 1e-10), (0.05, 1e-8)])
def test_a_link_with_constant_load_times_is_predicted_to_keep_them(
    size: int, latency_s: float, s_per_byte: float
) -> None:
    rate = learned(size, latency_s, s_per_byte)
    assert rate.seconds(size) == pytest.approx(latency_s + size * s_per_byte, rel=0.02)


def test_small_loads_teach_the_latency_and_large_ones_the_rate() -> None:
    small = learned(1024, 0.02, 1e-9)
    assert small.latency_s == pytest.approx(0.02, rel=0.05)
    assert small.s_per_byte == pytest.approx(1e-9, rel=0.05)
    large = learned(1 << 30, 0.002, 5e-9)
    assert large.s_per_byte == pytest.approx(5e-9, rel=0.05)
    assert large.latency_s == pytest.approx(0.002, rel=0.05)


def test_mixed_sizes_teach_latency_and_rate() -> None:
    rate = LoadRate(0.002, 1e-9)
    for _ in range(300):
        for size in (8192, 64 << 20):
            rate.observe(size, 0.01 + size * 4e-9)
    assert (rate.latency_s, rate.s_per_byte) == (pytest.approx(0.01, rel=0.1), pytest.approx(4e-9, rel=0.1))


def test_one_stuck_load_does_not_disqualify_a_link() -> None:
    rate = LoadRate(0.002, 1e-9)
    before_s = rate.seconds(1 << 20)
    rate.observe(1 << 20, 3600.0)
    assert before_s < rate.seconds(1 << 20) <= 3 * before_s


def test_loads_that_alternate_between_slow_and_fast_teach_what_lies_between() -> None:
    rate = LoadRate(1e-6, 1e-9)
    for _ in range(300):
        rate.observe(1 << 30, 4.0)
        rate.observe(1 << 30, 1.0)
    assert rate.seconds(1 << 30) == pytest.approx(2.0, rel=0.2)


def test_the_first_loads_correct_a_wrong_prior_faster() -> None:
    fresh, known = LoadRate(1e-6, 8e-9), learned(1 << 30, 1e-6, 8e-9)
    fresh.observe(1 << 30, 1.0)
    known.observe(1 << 30, 1.0)
    assert fresh.seconds(1 << 30) < 0.7 * known.seconds(1 << 30)


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (1024, 0.0), (-1, 1.0), (1024, -1.0)])
def test_an_empty_load_teaches_nothing(size: int, seconds: float) -> None:
    rate = LoadRate(0.002, 1e-9)
    rate.observe(size, seconds)
    assert (rate.latency_s, rate.s_per_byte, rate.loads) == (0.002, 1e-9, 0)


@pytest.mark.parametrize("figures", [(0.0, 1e-9), (0.001, 0.0)])
def test_a_link_rejects_nonpositive_latency_or_rate(figures: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        LoadRate(*figures)
