"""Valid policy documents for hypothesis, drawn from the schema."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from controlplane.policies.document.schema import (
    SWITCH,
    TEXT,
    WHOLE,
    MapSchema,
    ObjectSchema,
    SettingSchema,
    StageSchema,
    policy_schema,
)
from planning.documents.automation_document import AutomationPolicy, contradictions
from routing.policy.policy_document import RoutingPolicy
from routing.registry import pair_problem

DEFAULTS = {"placement": RoutingPolicy().placement.name, "order": RoutingPolicy().order.name}

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""A busy machine is not a failure."""

_BOUNDS = (
    ("scaling", "min_engines", "max_engines"),
    ("rebalance", "cv_low", "cv_high"),
    ("health", "ejection_s", "ejection_max_s"),
)
_TINY = 1e-12
_HUGE = 1e12


def valid_documents(*, partial: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Return documents that satisfy every rule of the schema; `partial` ones omit some settings."""
    return _object(policy_schema(), partial=partial).map(_in_order).filter(goes_together)


def goes_together(document: dict[str, Any]) -> bool:
    """Return whether placement, order, and the holdback's rule are compatible in one policy."""
    placement, order = (document.get(stage, {}).get("name", DEFAULTS[stage]) for stage in DEFAULTS)
    automation = msgspec.convert(document.get("automation", {}), AutomationPolicy)
    control = automation.holdback
    if control.share and pair_problem(control.placement, order):
        return False
    return not pair_problem(placement, order) and not contradictions(automation)


def _in_order(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with bounding settings in ascending order, which most draws violate."""
    automation = document.get("automation", {})
    for part, low, high in _BOUNDS:
        values = automation.get(part, {})
        if low in values and high in values:
            values[low], values[high] = sorted((values[low], values[high]))
    if automation.get("scaling", {}).get("budget_cost"):
        automation["scaling"]["engine_h_cost"] = 1.0
    return document


def _object(schema: ObjectSchema, *, partial: bool) -> st.SearchStrategy[dict[str, Any]]:
    members = {name: _member(member, partial=partial) for name, member in schema.members.items()}
    return st.fixed_dictionaries({}, optional=members) if partial else st.fixed_dictionaries(members)


def _member(schema: Any, *, partial: bool) -> st.SearchStrategy[Any]:
    if isinstance(schema, ObjectSchema):
        return _object(schema, partial=partial)
    if isinstance(schema, StageSchema):
        return st.one_of([_stage(name, rule, partial=partial) for name, rule in schema.rules.items()])
    if isinstance(schema, MapSchema):
        names = st.from_regex(schema.name_pattern or "[a-z]{1,8}", fullmatch=True)
        return st.dictionaries(names, _member(schema.entry, partial=partial), max_size=2)
    return _setting(schema)


def _stage(name: str, rule: ObjectSchema, *, partial: bool) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"name": st.just(name), "params": _object(rule, partial=partial)})


def _setting(schema: SettingSchema) -> st.SearchStrategy[Any]:
    if schema.kind == SWITCH:
        return st.booleans()
    if schema.kind == TEXT:
        return st.sampled_from(schema.choices)
    low = schema.low if schema.low is not None else -_HUGE
    high = schema.high if schema.high is not None else _HUGE
    if schema.kind == WHOLE:
        return st.integers(int(low), int(high))
    first = max(low, _TINY) if schema.above_low else low
    return st.floats(
        first,
        high,
        exclude_min=schema.above_low and first == low,
        exclude_max=schema.below_high,
        allow_nan=False,
        allow_subnormal=False,
    )
