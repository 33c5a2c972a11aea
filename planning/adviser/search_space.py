"""The settings that the adviser varies, with their ranges, as the policy document declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from routing.policy.dispatch_limit_document import IN_FLIGHT, PENDING
from routing.policy.policy_document import Parameter, RoutingPolicy, Stage
from routing.policy.setting import fixed_values
from routing.registry import CENTRAL_PLACEMENT, PLACEMENTS, QUEUE_ORDERS, STAGES, stage_pairs
from routing.values.prepared_struct import prepared

Point = Mapping[str, Parameter]
"""Values by path. Settings that have no effect beside the others are absent."""

_PLACEMENT, _ORDER = "placement.name", "order.name"
_OWN = ("prefill_window_tokens", "lookahead_s", "starvation_limit_s")
_OBJECTS = ("dispatch_limit", "admission")
# Simulated reports have no age, and a simulated fleet observes its completion rate.
_LEFT_OUT = frozenset({"schema_version", "dispatch_limit.report_ttl_s", "admission.decode_s"})
_REJECTS = ("early", "predictive_system", "predictive_instance")
_ONLY_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "dispatch_limit.in_flight_limit": ("dispatch_limit.mode", (IN_FLIGHT,)),
    "dispatch_limit.wait_for_memory": ("dispatch_limit.mode", (PENDING,)),
    "admission.threshold": ("admission.mode", _REJECTS),
    "admission.defer_s": ("admission.mode", _REJECTS),
}
"""Setting → the setting and its values with which it has an effect."""
_LOG_RATIO = 10.0
"""A range whose ends differ by this factor is searched on a logarithmic scale."""


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its choices, or its range. It applies only if the setting `parent` has one of the values `when`."""

    path: str
    choices: tuple[Parameter, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    parent: str = ""
    when: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The path and its condition: one path has other choices under another condition."""
        return f"{self.path} if {self.parent} in {','.join(self.when)}" if self.parent else self.path

    @property
    def log(self) -> bool:
        """Whether the range is searched on a logarithmic scale."""
        return self.low > 0 and self.high >= self.low * _LOG_RATIO

    def applies(self, point: Point) -> bool:
        """Return whether the setting has an effect beside the values of `point`."""
        return not self.parent or point.get(self.parent) in self.when


def search_space(live: RoutingPolicy) -> tuple[Dimension, ...]:
    """Return the settings in an order in which each follows the one that it depends on.

    A range is the usual one of the document, extended to its default and to the value of the live policy.
    """
    return (
        *_stages(),
        *(item for name in _OBJECTS for item in _fields(type(getattr(live, name)), f"{name}.", live)),
        *(item for item in _fields(RoutingPolicy, "", live) if item.path in _OWN),
        *(
            item
            for stage, table in STAGES.items()
            for name, kind in table.items()
            for item in _fields(kind, f"{stage}.params.", live, (f"{stage}.name", (name,)))
        ),
    )


def point_of(policy: RoutingPolicy, space: Sequence[Dimension]) -> Point:
    """Return the policy's values of the settings that have an effect in it."""
    point: dict[str, Parameter] = {}
    for item in space:
        if item.applies(point):
            point[item.path] = _value(policy, item.path)
    return point


def policy_at(point: Point, live: RoutingPolicy) -> RoutingPolicy:
    """Return the live policy with the values of `point`. A stage with another rule keeps no parameter of the old."""
    document = msgspec.to_builtins(live)
    for stage in STAGES:
        if point[f"{stage}.name"] != document[stage]["name"]:
            document[stage] = {"name": point[f"{stage}.name"], "params": {}}
    for path, value in point.items():
        *parents, name = path.split(".")
        home = document
        for parent in parents:
            home = home[parent]
        home[name] = value
    return msgspec.convert(document, prepared(RoutingPolicy))


def starting_points(live: RoutingPolicy, space: Sequence[Dimension]) -> list[Point]:
    """Return where the search starts: each placement with the live, the default, or its only order, the rest live."""
    default = RoutingPolicy()
    placements = {stage.name: stage for stage in (default.placement, live.placement)}
    orders = {stage.name: stage for stage in (default.order, live.order)}
    points: list[Point] = []
    for placement, order in stage_pairs():
        if order in orders or placement == CENTRAL_PLACEMENT:
            stages = placements.get(placement, Stage(name=placement)), orders.get(order, Stage(name=order))
            points.append(point_of(replace(live, placement=stages[0], order=stages[1]), space))
    return points


def _stages() -> Iterator[Dimension]:
    pairs = stage_pairs()
    yield Dimension(path=_PLACEMENT, choices=tuple(PLACEMENTS))
    by_orders: dict[tuple[str, ...], list[str]] = {}
    for placement in PLACEMENTS:
        orders = tuple(order for one, order in pairs if one == placement)
        by_orders.setdefault(orders, []).append(placement)
    for orders, placements in by_orders.items():
        yield Dimension(path=_ORDER, choices=orders, parent=_PLACEMENT, when=tuple(placements))


def _fields(
    kind: type[msgspec.Struct], prefix: str, live: RoutingPolicy, when: tuple[str, tuple[str, ...]] | None = None
) -> Iterator[Dimension]:
    """Yield the settings of a document or rule that live pools can vary."""
    info = inspect.type_info(prepared(kind))
    if not isinstance(info, inspect.StructType):
        return
    fixed = fixed_values(kind)
    for field in info.fields:
        path = prefix + field.encode_name
        if path in _LEFT_OUT or field.encode_name in fixed:
            continue
        parent, values = when or _ONLY_WITH.get(path, ("", ()))
        made = _dimension(field, Dimension(path=path, parent=parent, when=values), live)
        if made is not None:
            yield made


def _dimension(field: inspect.Field, empty: Dimension, live: RoutingPolicy) -> Dimension | None:
    kind, usual = field.type, ()
    while isinstance(kind, inspect.Metadata):
        usual = (kind.extra_json_schema or {}).get("x-usual", usual)
        kind = kind.type
    if isinstance(kind, inspect.LiteralType):
        # msgspec sorts them, so that the order is the same everywhere.
        return replace(empty, choices=tuple(str(value) for value in kind.values))
    if isinstance(kind, inspect.BoolType):
        return replace(empty, choices=(False, True))
    if not isinstance(kind, inspect.IntType | inspect.FloatType) or not usual:
        return None
    known = [*usual, field.default]
    if not empty.path.startswith(tuple(f"{stage}." for stage in STAGES)) or _value(live, empty.parent) in empty.when:
        known.append(_value(live, empty.path))
    whole = isinstance(kind, inspect.IntType)
    return replace(empty, low=min(known), high=max(known), whole=whole)


def _value(policy: RoutingPolicy, path: str) -> Any:
    """Return the policy's value at the path; of a rule's parameter that it does not name, the default."""
    stage, _, name = path.partition(".params.")
    if name:
        chosen: Stage = getattr(policy, stage)
        kind = (PLACEMENTS if stage == "placement" else QUEUE_ORDERS)[chosen.name]
        defaults = {field.encode_name: field.default for field in msgspec.structs.fields(kind)}
        return chosen.params.get(name, defaults[name])
    value: Any = policy
    for part in path.split("."):
        value = getattr(value, part)
    return value
