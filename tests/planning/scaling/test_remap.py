import pytest

from planning.scaling.remap import Remap, remap_of


def names(count: int) -> list[str]:
    return [f"e-{number:03}" for number in range(1, count + 1)]


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (8, 7), (8, 9), (16, 17), (32, 40)])
def test_rings_move_a_share_within_a_tenth_of_the_ideal(before: int, after: int) -> None:
    remap = remap_of(names(before), names(after))
    assert remap.share == pytest.approx(remap.ideal, rel=0.1)


def test_modulo_moves_nearly_everything_when_one_engine_is_removed() -> None:
    remap = remap_of(names(8), names(7))
    assert remap.modulo > 5 * remap.share


def test_nothing_moves_when_nothing_changes() -> None:
    assert remap_of(names(5), list(reversed(names(5)))) == Remap(0.0, 0.0, 0.0)
    assert remap_of([], names(3)) == Remap(0.0, 0.0, 0.0)
