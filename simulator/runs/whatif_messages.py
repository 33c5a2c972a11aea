"""The messages of a what-if's child process, one JSON object per line."""

from __future__ import annotations

import msgspec

from simulator.runs.run_report import RunReport


class WhatIfProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The share of the requests that have arrived, 0..1."""

    share: float


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The task cannot be run, and why."""

    reason: str


class WhatIfDone(msgspec.Struct, frozen=True, tag="done"):
    """The run is over."""

    report: RunReport


Message = WhatIfProgress | Failure | WhatIfDone
