"""Settings of admission and SLO classes in a policy document."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from routing.policy.setting import about, number

OFF, EARLY, PREDICTIVE_SYSTEM, PREDICTIVE_INSTANCE = "off", "early", "predictive_system", "predictive_instance"

ClassName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,31}$")]
"""Allowed names of an SLO class."""

MAX_CLASSES = 32


class AdmissionDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules for rejecting requests on arrival that the fleet cannot serve within their objectives."""

    mode: Annotated[
        Literal["off", "early", "predictive_system", "predictive_instance"],
        about(
            "Early rejection",
            "off: never. early: by current load. predictive_system: by the decode load expected when the request's "
            "own decode begins, averaged over the pool. predictive_instance: the same, on its own engine.",
        ),
    ] = "off"
    threshold: Annotated[
        float,
        about("Load limit", "Rejects a request when an expected time exceeds its objective by this factor."),
        number("×", gt=0, le=100, usual=(0.8, 1.5)),
    ] = 1.0
    decode_s: Annotated[
        float,
        about("Decode time", "Expected time of every decode; 0: use the observed completion rate."),
        number("s", ge=0, le=3600, usual=(0, 60)),
    ] = 0.0
    defer_s: Annotated[
        float,
        about(
            "Defer for",
            "Defers a request that is rejected for load by this long and retries while it can still be on time; 0: "
            "rejects at once.",
        ),
        number("s", ge=0, le=600, usual=(0, 2)),
    ] = 0.0
    # Off: the pool's objective need not be the client's (docs/decisions/0011-infeasible-requests.md).
    reject_infeasible: Annotated[
        bool,
        about(
            "Reject SLO-infeasible",
            "Answers 429 at once to requests that no engine can serve on time. Prompts too long for their objective "
            "even on an idle engine are still served.",
        ),
    ] = False


class SloClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objectives of one class of requests. Values of 0 or omitted ones default to the pool's."""

    ttft_slo_s: Annotated[
        float,
        about("TTFT objective", "Time to first token; 0: the pool's."),
        number("s", ge=0, le=3600, usual=(0.2, 60)),
    ] = 0.0
    tpot_slo_s: Annotated[
        float,
        about("TPOT objective", "Mean time per output token; 0: the pool's."),
        number("s", ge=0, le=60, usual=(0.02, 0.5)),
    ] = 0.0
    deadline_s: Annotated[
        float,
        about("Deadline", "Rejects a request that has waited this long; 0: only the pool's maximum wait applies."),
        number("s", ge=0, le=86_400, usual=(0, 600)),
    ] = 0.0
    priority: Annotated[
        int,
        about(
            "Priority", "Lower goes first, if the queue order uses priorities. A request's own priority overrides it."
        ),
        number(ge=-1_000_000, le=1_000_000, usual=(-10, 10)),
    ] = 0
