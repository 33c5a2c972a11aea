"""Conditions of a what-if, as people choose them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from routing.registry import BASELINES
from routing.values.prepared_struct import prepared

AUTO: Final = "auto"
ENGINE_MODELS = ("chunked", "colocated")
"""Those that AUTO chooses from, the likelier first: today's engines prefill in chunks. `reference` is not among them:
it makes no answers, so that a placement that counts requests would see none that decode.
"""


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same for both policies, except `base_placement`."""

    seeds: Annotated[int, Meta(ge=1, le=10)] = 3
    """Runs of each policy. The first has the requests at their recorded times, the others slightly moved."""
    warmup_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.2
    """First share of the requests, which fills the caches and is not counted."""
    max_requests: Annotated[int, Meta(ge=10, le=50_000)] = 20_000
    """Limit of requests taken from the start of the recording."""
    engines: Annotated[int, Meta(ge=1, le=512)] | None = None
    """None: as many as took work during the recording, or as the pool has."""
    engine_model: Literal["auto", "chunked", "colocated", "reference"] = AUTO
    """How an engine mixes prefill and decode: in chunks beside decodes, prefills first, or one prefill at a time.

    AUTO: the one closest to what happened, and ENGINE_MODELS[0] where that is unknown.
    """
    base_placement: str = ""
    """A baseline of simulator.baselines that places the base's requests; empty: the base's own placement."""
    goodput: bool = False
    """Also search the largest rate with 90 % on time, which takes many more runs."""


def models_of(conditions: Conditions) -> tuple[str, ...]:
    """Return the engine models that may be simulated, the likelier first."""
    return ENGINE_MODELS if conditions.engine_model == AUTO else (conditions.engine_model,)


def conditions_of(given: dict[str, Any]) -> Conditions:
    """Return the conditions; raises InvalidFieldsError with every wrong field."""
    known = {field.name: field.type for field in msgspec.structs.fields(Conditions)}
    problems = []
    for name, value in given.items():
        if name not in known:
            problems.append(FieldProblem(name, f"Is unknown; known are {', '.join(known)}."))
            continue
        try:
            msgspec.convert(value, prepared(known[name]))
        except msgspec.ValidationError as error:
            problems.append(FieldProblem(name, f"{error}."))
    baseline = given.get("base_placement", "")
    if isinstance(baseline, str) and baseline and baseline not in BASELINES:
        known_ones = ", ".join(sorted(BASELINES))
        problems.append(FieldProblem("base_placement", f"Is not a baseline; known are {known_ones}."))
    if problems:
        raise InvalidFieldsError(problems)
    return msgspec.convert(given, prepared(Conditions))


def plain(conditions: Conditions) -> dict[str, Any]:
    """Return the conditions as JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(conditions)
    return fields
