"""The settings of the prefill/decode ratio, as an automation document holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from planning.documents.automation_mode import ADVISE, Mode


class RatioDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When engines change between prefill and decode (Mooncake §5.1). Pools without roles ignore it."""

    mode: Annotated[
        Mode,
        Meta(
            title="Prefill/decode ratio",
            description="off: nothing. advise: plans are shown. act: engines are drained and come back in the other "
            "role.",
        ),
    ] = ADVISE
    window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Judged over",
            description="The last seconds whose load samples are averaged, the highest and lowest tenth left out.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
    min_samples: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="Judged from",
            description="Samples of each role within the window without which nothing is planned.",
            extra_json_schema={"x-unit": "samples", "x-usual": [10, 100]},
        ),
    ] = 20
    band: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            title="Balanced within",
            description="An imbalance factor between 1/(1 + this) and 1 + this is left as it is.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.5]},
        ),
    ] = 0.2
    hysteresis: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Turning back",
            description="A flip against the direction of the last one needs an imbalance this much further out.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.3]},
        ),
    ] = 0.1
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Persistent after",
            description="The imbalance must last this long before an engine changes its role.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 300]},
        ),
    ] = 30.0
    max_step: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            title="Flips at once",
            description="Engines that one plan may give the other role.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 2]},
        ),
    ] = 1
    min_prefill: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Prefill engines at least",
            description="The prefill role never has fewer engines by this automation's doing.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 4]},
        ),
    ] = 1
    min_decode: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Decode engines at least",
            description="The decode role never has fewer engines by this automation's doing.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 4]},
        ),
    ] = 1
    cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Pause after a flip",
            description="Time after a change of roles before the next one.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 1800]},
        ),
    ] = 120.0
