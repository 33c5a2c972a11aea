"""Sets individual policy parameters by name: of its placement, its order, or the policy itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from routing.policy.policy_document import Parameter, RoutingPolicy, Stage
from routing.values.prepared_struct import prepared
from simulator.baselines.registry import STAGES

_OWN = (
    "prefill_window_tokens",
    "lookahead_s",
    "queue_limit",
    "max_wait_s",
    "reservation_ttl_s",
    "tpot_slo_s",
    "bottleneck_s",
    "decode_weight",
    "starvation_limit_s",
)
_OBJECTS = ("admission", "decode_cost", "dispatch_limit", "fairness")
"""Objects of the policy whose members can be set as `object.member`."""


def set_parameters(
    policy: RoutingPolicy, parameters: Mapping[str, Parameter], *, lenient: bool = False
) -> tuple[RoutingPolicy, list[str]]:
    """Return the policy with the parameters set, and the resulting problems.

    Names such as `beta`, `placement.beta`, or `order.…` set a stage's parameter, `prefill_window_tokens` a field of the
    policy, and `admission.mode` a member of one of its objects. With `lenient`, a parameter that the policy's stage
    lacks is ignored if another stage of the registry has it.
    """
    problems: list[str] = []
    for key, value in parameters.items():
        stage_name, _, name = key.rpartition(".")
        homes = [stage for stage in STAGES if _knows(getattr(policy, stage), stage, name)]
        if stage_name:
            homes = [stage for stage in homes if stage == stage_name]
        if not stage_name and name in _OWN:
            policy, problem = _set_own(policy, name, value)
            problems += problem
        elif stage_name in _OBJECTS and name in getattr(policy, stage_name).__struct_fields__:
            members = msgspec.to_builtins(getattr(policy, stage_name))
            policy, problem = _set_own(policy, stage_name, {**members, name: value})
            problems += problem
        elif homes:
            for stage in homes:
                policy = _set(policy, stage, name, value)
        elif not (lenient and _known_somewhere(name)):
            problems.append(f"--param: {key} is no parameter here; there are {', '.join(_known(policy))}")
    return policy, problems


def _set(policy: RoutingPolicy, stage: str, name: str, value: Parameter) -> RoutingPolicy:
    old: Stage = getattr(policy, stage)
    # Not checked here: `stage_problems` checks the stage as a whole.
    return msgspec.structs.replace(policy, **{stage: Stage(name=old.name, params={**old.params, name: value})})


def _set_own(
    policy: RoutingPolicy, name: str, value: Parameter | dict[str, Parameter]
) -> tuple[RoutingPolicy, list[str]]:
    document = msgspec.to_builtins(policy)
    try:
        # As part of the document, so that the field's own limits apply.
        return msgspec.convert({**document, name: value}, prepared(RoutingPolicy)), []
    except msgspec.ValidationError as error:
        return policy, [f"--param: {error}"]


def _fields(stage: str, name: str) -> tuple[str, ...]:
    kind = STAGES[stage].get(name)
    return () if kind is None else tuple(field.name for field in msgspec.structs.fields(kind))


def _knows(stage: Stage, path: str, name: str) -> bool:
    return name in _fields(path, stage.name)


def _known_somewhere(name: str) -> bool:
    return any(name in _fields(stage, kind) for stage, table in STAGES.items() for kind in table)


def _known(policy: RoutingPolicy) -> list[str]:
    return [
        *(f"placement.{name}" for name in _fields("placement", policy.placement.name)),
        *(f"order.{name}" for name in _fields("order", policy.order.name)),
        *_OWN,
        *(f"{name}.{field}" for name in _OBJECTS for field in getattr(policy, name).__struct_fields__),
    ]
