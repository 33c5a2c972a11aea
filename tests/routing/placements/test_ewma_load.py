import pytest

from routing.placements.ewma_load import DecayingLoad


def test_a_cost_halves_with_its_half_life() -> None:
    load = DecayingLoad(0.5, 2.0)
    load.add(8.0, 10.0)
    assert [load.at(10.0), load.at(12.0), load.at(16.0)] == pytest.approx([8.0, 4.0, 1.0])


def test_only_the_undecayed_part_of_a_cost_is_released() -> None:
    load = DecayingLoad(0.5, 1.0)
    load.add(8.0, 0.0)
    load.add(4.0, 1.0)
    load.release(8.0, 0.0, 2.0)
    assert load.at(2.0) == pytest.approx(2.0)
    load.release(4.0, 1.0, 2.0)
    assert load.at(2.0) == pytest.approx(0.0)


def test_reading_the_load_changes_nothing() -> None:
    asked, silent = DecayingLoad(31 / 32, 0.02), DecayingLoad(31 / 32, 0.02)
    for load in (asked, silent):
        load.add(1.0, 0.0)
    for step in range(100):
        asked.at(step / 100)
    assert asked.at(1.0) == silent.at(1.0)


def test_a_pending_cost_is_kept_until_it_is_released() -> None:
    load = DecayingLoad(0.5, 1.0, keeps_pending=True)
    load.add(8.0, 0.0)
    assert load.at(100.0) == 8.0
    load.release(8.0, 0.0, 100.0)
    assert load.at(100.0) == pytest.approx(0.0)
