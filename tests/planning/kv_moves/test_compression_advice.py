import pytest

from planning.kv_moves.compression_advice import MEASURED, compression_advice


@pytest.mark.parametrize(("disk_busy", "ratio"), [*MEASURED, (0.0, 1.04), (0.695, 0.90), (1.0, 0.84)])
def test_it_expects_what_was_measured_and_what_lies_between(disk_busy: float, ratio: float) -> None:
    assert compression_advice(disk_busy).latency_ratio == pytest.approx(ratio)


def test_idle_disks_are_no_reason_and_saturated_ones_are() -> None:
    assert not compression_advice(0.3).pays
    assert not compression_advice(0.5).pays
    assert compression_advice(0.65).pays
