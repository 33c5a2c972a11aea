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
            description="off: nothing. advise: show plans. act: drain engines and restart them in the other role.",
        ),
    ] = ADVISE
    window_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            title="Window",
            description="Window of load samples to average, without the highest and lowest 10 %.",
            extra_json_schema={"x-unit": "s", "x-usual": [30, 600]},
        ),
    ] = 60.0
    min_samples: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            title="Min samples",
            description="Samples of each role in the window needed for a plan.",
            extra_json_schema={"x-unit": "samples", "x-usual": [10, 100]},
        ),
    ] = 20
    band: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            title="Tolerance",
            description="No change while the imbalance factor is between 1/(1 + this) and 1 + this.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.1, 0.5]},
        ),
    ] = 0.2
    hysteresis: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Reversal hysteresis",
            description="Extra imbalance needed to reverse the last role change.",
            extra_json_schema={"x-unit": "share", "x-usual": [0.05, 0.3]},
        ),
    ] = 0.1
    hold_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Persistence",
            description="Time the imbalance must last before an engine changes its role.",
            extra_json_schema={"x-unit": "s", "x-usual": [15, 300]},
        ),
    ] = 30.0
    max_step: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            title="Max changes at once",
            description="Maximum role changes per plan.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 2]},
        ),
    ] = 1
    min_prefill: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Min prefill engines",
            description="This automation never leaves fewer prefill engines.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 4]},
        ),
    ] = 1
    min_decode: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Min decode engines",
            description="This automation never leaves fewer decode engines.",
            extra_json_schema={"x-unit": "engines", "x-usual": [1, 4]},
        ),
    ] = 1
    cool_down_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            title="Cooldown",
            description="Time between role changes.",
            extra_json_schema={"x-unit": "s", "x-usual": [60, 1800]},
        ),
    ] = 120.0
