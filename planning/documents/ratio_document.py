"""Settings of the prefill/decode ratio in an automation document."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from planning.documents.automation_mode import ADVISE, Mode
from routing.policy.setting import about, number


class RatioDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When engines change between prefill and decode (Mooncake §5.1). Pools without roles ignore it."""

    min_samples: ClassVar[int] = 20
    """Samples of each role in the window needed for a plan."""
    hysteresis: ClassVar[float] = 0.1
    """Extra imbalance needed to reverse the last role change."""
    max_step: ClassVar[int] = 1
    """Maximum role changes per plan."""

    mode: Annotated[
        Mode,
        about(
            "Prefill/decode ratio",
            "off: nothing. advise: show plans. act: drain engines and restart them in the other role.",
        ),
    ] = ADVISE
    window_s: Annotated[
        float,
        about("Window", "Window of load samples to average, without the highest and lowest 10 %."),
        number("s", gt=0, le=86_400, usual=(30, 600)),
    ] = 60.0
    band: Annotated[
        float,
        about("Tolerance", "No change while the imbalance factor is between 1/(1 + this) and 1 + this."),
        number("share", gt=0, le=10, usual=(0.1, 0.5)),
    ] = 0.2
    hold_s: Annotated[
        float,
        about("Persistence", "Time the imbalance must last before an engine changes its role."),
        number("s", ge=0, le=86_400, usual=(15, 300)),
    ] = 30.0
    min_prefill: Annotated[
        int,
        about("Min prefill engines", "This automation never leaves fewer prefill engines."),
        number("engines", ge=1, le=10_000, usual=(1, 4)),
    ] = 1
    min_decode: Annotated[
        int,
        about("Min decode engines", "This automation never leaves fewer decode engines."),
        number("engines", ge=1, le=10_000, usual=(1, 4)),
    ] = 1
    cool_down_s: Annotated[
        float, about("Cooldown", "Time between role changes."), number("s", ge=0, le=86_400, usual=(60, 1800))
    ] = 120.0
