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
            description="off: by no load. early: by the load now. predictive_system: by the decode load expected when "
            "the request's own decode begins, averaged over the pool. predictive_instance: the same on its engine.",
        ),
    ] = "off"
    threshold: Annotated[
        float,
        Meta(
            gt=0,
            le=100,
            title="Load limit",
            description="Refuses when an expected time is more than this many times its objective.",
            extra_json_schema={"x-unit": "×", "x-usual": [0.8, 1.5]},
        ),
    ] = 1.0
    decode_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Decode time",
            description="Uniform time that every decode is expected to take; 0: decodes are expected to go on ending "
            "at the rate that is observed.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 60]},
        ),
    ] = 0.0
    defer_s: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            title="Retry after",
            description="A request that load refuses is parked this long and tried again while it can still be on "
            "time; 0: it is refused at once.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 2]},
        ),
    ] = 0.0
    refuse_hopeless: Annotated[
        bool,
        Meta(
            title="Refuse hopeless",
            description="Answers 429 at once to requests that no engine could serve on time even next; prompts that "
            "are too long for their objective on an idle engine are still served.",
        ),
    ] = False


class SloClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one class of requests may expect; 0 or left out: what the pool gives everybody."""

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
            title="TBT objective",
            description="Mean time between tokens; 0: the pool's.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.02, 0.5]},
        ),
    ] = 0.0
    deadline_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Deadline",
            description="A request that still waits this long after its arrival is refused; 0: the pool's longest "
            "wait alone counts.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 600]},
        ),
    ] = 0.0
    priority: Annotated[
        int,
        Meta(
            ge=-1_000_000,
            le=1_000_000,
            title="Priority",
            description="Lower goes first where the queue order looks at it; a request's own priority overrides it.",
            extra_json_schema={"x-usual": [-10, 10]},
        ),
    ] = 0
