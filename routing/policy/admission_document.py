"""The settings of admission and of SLO classes, as a policy document holds them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OFF, EARLY, PREDICTIVE_SYSTEM, PREDICTIVE_INSTANCE = "off", "early", "predictive_system", "predictive_instance"

ClassName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,31}$")]
"""What an SLO class may be called."""

MAX_CLASSES = 32


class AdmissionDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests are refused at once, because the fleet cannot serve them within their objectives."""

    mode: Annotated[
        Literal["off", "early", "predictive_system", "predictive_instance"],
        Meta(
            title="Early rejection",
            description="off: never. early: by current load. predictive_system: by the decode load expected when the "
            "request's own decode begins, averaged over the pool. predictive_instance: the same, on its own "
            "engine.",
        ),
    ] = "off"
    threshold: Annotated[
        float,
        Meta(
            gt=0,
            le=100,
            title="Load limit",
            description="Rejects a request when an expected time exceeds its objective by this factor.",
            extra_json_schema={"x-unit": "×", "x-usual": [0.8, 1.5]},
        ),
    ] = 1.0
    decode_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Decode time",
            description="Expected time of every decode; 0: use the observed completion rate.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 60]},
        ),
    ] = 0.0
    defer_s: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            title="Defer for",
            description="Defers a request that is rejected for load by this long and retries while it can still be on "
            "time; 0: rejects at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 2]},
        ),
    ] = 0.0
    refuse_hopeless: Annotated[
        bool,
        Meta(
            title="Reject SLO-infeasible",
            description="Answers 429 at once to requests that no engine can serve on time. Prompts too long for their "
            "objective even on an idle engine are still served.",
        ),
    ] = False


class SloClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objectives of one class of requests; 0 or omitted: the pool's."""

    ttft_slo_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="TTFT objective",
            description="Time to first token; 0: the pool's.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.2, 60]},
        ),
    ] = 0.0
    tbt_slo_s: Annotated[
        float,
        Meta(
            ge=0,
            le=60,
            title="TPOT objective",
            description="Mean time per output token; 0: the pool's.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.02, 0.5]},
        ),
    ] = 0.0
    deadline_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Deadline",
            description="Rejects a request that has waited this long; 0: only the pool's maximum wait applies.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 600]},
        ),
    ] = 0.0
    priority: Annotated[
        int,
        Meta(
            ge=-1_000_000,
            le=1_000_000,
            title="Priority",
            description="Lower goes first, if the queue order uses priorities. A request's own priority overrides it.",
            extra_json_schema={"x-usual": [-10, 10]},
        ),
    ] = 0
