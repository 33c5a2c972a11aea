from planning.adviser.fleet_shape import ENGINES, PREFILL, FleetRange, FleetShape


def test_only_the_live_fleet_has_no_dimension() -> None:
    fleets = FleetRange.only(FleetShape(8, 3))
    assert fleets.dimensions() == ()
    assert fleets.shape_at({}) == FleetShape(8, 3)
    assert fleets.starting_shapes() == (FleetShape(8, 3),)


def test_every_point_is_a_fleet_with_both_roles_within_the_bounds() -> None:
    fleets = FleetRange(live=FleetShape(8, 3), engines=(4, 12), prefill=(2, 9), least_decode=2)
    for engines in range(4, 13):
        for prefill in range(2, 10):
            shape = fleets.shape_at({ENGINES: engines, PREFILL: prefill})
            assert shape.engines == engines
            assert 2 <= shape.prefill <= engines - 2


def test_a_fleet_without_roles_gets_none() -> None:
    fleets = FleetRange(live=FleetShape(8), engines=(2, 16))
    assert [item.path for item in fleets.dimensions()] == [ENGINES]
    assert fleets.starting_shapes() == (FleetShape(8), FleetShape(2), FleetShape(9), FleetShape(16))
    assert fleets.shape_at(fleets.point_of(FleetShape(5))) == FleetShape(5)
