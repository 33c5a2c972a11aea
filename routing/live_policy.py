"""Make a stored policy one that live pools can follow: replace baselines, and drop fixed parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from routing.policy.policy_document import ROUTING_SCHEMA, RoutingPolicy, Stage
from routing.policy.setting import fixed_values
from routing.registry import BASELINES, NEAREST, PLACEMENTS, STAGES, nearest_live
from routing.values.prepared_struct import prepared

PolicyT = TypeVar("PolicyT", bound=RoutingPolicy)


def live_placement(stage: Stage) -> Stage:
    """Return the placement of a live pool, replacing a baseline with the nearest live one.

    A live policy with a baseline cannot be saved, but a stored one can name one and must keep routing. Parameters that
    both rules have are kept.
    """
    if stage.name not in BASELINES:
        return stage
    name = nearest_live(stage.name)
    known = PLACEMENTS[name].__struct_fields__
    return Stage(name=name, params={key: value for key, value in stage.params.items() if key in known})


def as_live(policy: PolicyT) -> tuple[PolicyT, str]:
    """Return the policy that a live pool follows, and how it differs from the document ("" if equal)."""
    placement = live_placement(policy.placement)
    said = list(_fixed_notes(policy))
    if placement != policy.placement:
        said.append(
            f"Placement {policy.placement.name!r} is a baseline for simulation and what-if only; requests use "
            f"{placement.name!r}, the nearest live placement."
        )
    return without_fixed(msgspec.structs.replace(policy, placement=placement)), " ".join(said)


def without_fixed(policy: PolicyT) -> PolicyT:
    """Return the policy without parameters that live pools use at their defaults."""
    stages = {path: _without_fixed(path, getattr(policy, path)) for path in STAGES}
    return msgspec.structs.replace(policy, **stages)


def live_document(written: Any, current: Any) -> Any:
    """Return `current`, the upgraded document, with rules of live pools if `written` is of the previous schema.

    Such a document could name textbook rules and set fixed parameters. Rules of other routers are kept for the check to
    reject, because no policy of that schema could name them.
    """
    if not isinstance(written, Mapping) or not ROUTING_SCHEMA.is_previous(written):
        return current
    stages = {}
    for path in STAGES:
        try:
            stage = msgspec.convert(current.get(path), prepared(Stage))
        except msgspec.ValidationError:
            continue
        stages[path] = msgspec.to_builtins(
            _without_fixed(path, live_placement(stage) if stage.name in NEAREST else stage)
        )
    return {**current, **stages}


def _without_fixed(path: str, stage: Stage) -> Stage:
    fixed = _fixed(path, stage)
    params = {name: value for name, value in stage.params.items() if name not in fixed}
    return msgspec.structs.replace(stage, params=params)


def _fixed_notes(policy: RoutingPolicy) -> list[str]:
    return [
        f"{path}.params.{name} {stage.params[name]} is no longer a setting; {value} applies."
        for path in STAGES
        for stage in [getattr(policy, path)]
        for name, value in _fixed(path, stage).items()
        if stage.params.get(name, value) != value
    ]


def _fixed(path: str, stage: Stage) -> dict[str, Any]:
    kind = STAGES[path].get(stage.name)
    return fixed_values(kind) if kind is not None else {}
