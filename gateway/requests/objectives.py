"""What one request may expect: its own words first, then its SLO class, then the pool's policy."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from gateway.http.openai_error import ApiError
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy

if TYPE_CHECKING:
    from gateway.requests.wanted import Wanted

_NO_CLASS = SloClass()


class Objectives(msgspec.Struct, frozen=True, gc=False):
    """Times in seconds; `give_up_s` is a monotonic moment."""

    ttft_slo_s: float
    tbt_slo_s: float
    give_up_s: float
    priority: int
    slo_class: str
    """Empty: none."""


def objectives(wanted: Wanted, policy: RoutingPolicy) -> Objectives:
    """Return what the request may expect in a pool of this policy.

    Raises ApiError 400 where the request names a class that the pool does not have. An API key's class
    holds in the pools that have it; keys may serve several.
    """
    name = wanted.slo_class
    slo_class = _NO_CLASS
    if name:
        slo_class = _named(name, policy)
    elif wanted.key_class:
        name = wanted.key_class if wanted.key_class in policy.slo_classes else ""
        slo_class = policy.slo_classes.get(wanted.key_class, _NO_CLASS)
    return Objectives(
        wanted.ttft_slo_s or slo_class.ttft_slo_s or policy.ttft_slo_s,
        wanted.tbt_slo_s or slo_class.tbt_slo_s or policy.tbt_slo_s,
        wanted.arrived_s + slo_class.deadline_s if slo_class.deadline_s else inf,
        slo_class.priority if wanted.priority is None else wanted.priority,
        name,
    )


def _named(name: str, policy: RoutingPolicy) -> SloClass:
    slo_class = policy.slo_classes.get(name)
    if slo_class is None:
        known = ", ".join(sorted(policy.slo_classes))
        remedy = f"this pool has {known}" if known else "this pool has none"
        raise ApiError(400, f"This SLO class is unknown; {remedy}.", "unknown_slo_class", param="slo_class")
    return slo_class
