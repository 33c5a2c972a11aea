"""The fleet as a part of the search: how many engines, and how many of them prefill."""

from __future__ import annotations

import msgspec

from planning.adviser.search_space import Dimension, Point
from routing.policy.policy_document import Parameter, RoutingPolicy

ENGINES, PREFILL = "fleet.engines", "fleet.prefill"


class FleetShape(msgspec.Struct, frozen=True):
    """The engines of a pool."""

    engines: int
    prefill: int = 0
    """Number of prefill engines; the others decode. 0 if every engine does both."""


class FleetPolicy(msgspec.Struct, frozen=True):
    """What a simulation runs: a policy on a fleet."""

    policy: RoutingPolicy
    fleet: FleetShape


class FleetRange(msgspec.Struct, frozen=True, kw_only=True):
    """The fleets that can be proposed. A fleet with roles keeps them."""

    live: FleetShape
    engines: tuple[int, int]
    """Minimum and maximum number of engines; the minimum has room for `prefill[0]` and `least_decode`."""
    prefill: tuple[int, int] = (0, 0)
    """Minimum and maximum number of prefill engines; 0 if every engine does both."""
    least_decode: int = 1

    @classmethod
    def only(cls, live: FleetShape) -> FleetRange:
        """Return the range that contains the live fleet alone."""
        return cls(live=live, engines=(live.engines, live.engines), prefill=(live.prefill, live.prefill))

    def dimensions(self) -> tuple[Dimension, ...]:
        """Return the settings that vary."""
        ranges = ((ENGINES, self.engines), (PREFILL, self.prefill))
        return tuple(Dimension(path=path, low=low, high=high, whole=True) for path, (low, high) in ranges if low < high)

    def shape_at(self, point: Point) -> FleetShape:
        """Return the fleet at the point. Where too few engines would be left to decode, fewer prefill."""
        engines = int(point.get(ENGINES, self.live.engines))
        prefill = int(point.get(PREFILL, self.live.prefill))
        return FleetShape(engines, min(prefill, engines - self.least_decode) if prefill else 0)

    def point_of(self, shape: FleetShape) -> Point:
        """Return the shape's values of the settings that vary."""
        values: dict[str, Parameter] = {ENGINES: shape.engines, PREFILL: shape.prefill}
        return {item.path: values[item.path] for item in self.dimensions()}

    def starting_shapes(self) -> tuple[FleetShape, ...]:
        """Return the ends and the middle of each range, the other setting as in the live fleet; the live one first."""
        live = self.point_of(self.live)
        points = [
            {**live, item.path: value}
            for item in self.dimensions()
            for value in (int(item.low), int(item.low + item.high) // 2, int(item.high))
        ]
        return tuple(dict.fromkeys([self.live, *(self.shape_at(point) for point in points)]))
