"""Conditions of a what-if, chosen by people."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from routing.registry import BASELINES
from routing.values.prepared_struct import prepared

AUTO: Final = "auto"
ENGINE_MODELS = ("chunked", "colocated")
"""Engine models from which AUTO chooses, the more likely first, because current engines prefill in chunks. `reference`
is not included: it generates no responses, so that a placement that counts requests would see no decoding requests.
"""


class Conditions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions are the same for both policies, except `base_placement`."""

    seeds: Annotated[int, Meta(ge=1, le=10)] = 3
    """Number of runs of each policy. The first uses the recorded request times, the others slightly shifted times."""
    warmup_share: Annotated[float, Meta(ge=0, le=0.9)] = 0.2
    """Share of the first requests, which fill the caches and are not counted."""
    max_requests: Annotated[int, Meta(ge=10, le=50_000)] = 20_000
    """Maximum number of requests, from the start of the recording."""
    engines: Annotated[int, Meta(ge=1, le=512)] | None = None
    """None: the number of engines that accepted work during the recording, or the pool's number."""
    engine_model: Literal["auto", "chunked", "colocated", "reference"] = AUTO
    """How an engine mixes prefill and decode: prefill in chunks beside decodes, prefill first, or one prefill at a
    time.

    AUTO: the model closest to the recorded outcome, or ENGINE_MODELS[0] if that is unknown.
    """
    base_placement: str = ""
    """A baseline in simulator.baselines that places the base's requests; empty: the base's placement."""
    goodput: bool = False
    """Also find the highest rate with 90 % on time, which takes many more runs."""


def models_of(conditions: Conditions) -> tuple[str, ...]:
    """Return the engine models that may be simulated, most likely first."""
    return ENGINE_MODELS if conditions.engine_model == AUTO else (conditions.engine_model,)


def conditions_of(given: dict[str, Any]) -> Conditions:
    """Return the conditions. Raises InvalidFieldsError with every invalid field."""
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
