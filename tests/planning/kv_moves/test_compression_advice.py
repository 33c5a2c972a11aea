import pytest

from planning.kv_moves.compression_advice import MEASURED, compression_advice


@pytest.mark.parametrize(("disk_busy", "ratio"), [*MEASURED, (0.0, 1.04), (0.695, 0.90), (1.0, 0.84)])
def test_the_latency_ratio_is_interpolated_between_measurements(disk_busy: float, ratio: float) -> None:
    assert compression_advice(disk_busy).latency_ratio == pytest.approx(ratio)


def test_only_saturated_disks_justify_compression() -> None:
    assert not compression_advice(0.3).pays
    assert not compression_advice(0.5).pays
    assert compression_advice(0.65).pays
