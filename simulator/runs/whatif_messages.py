"""The messages of a what-if's child process, one JSON object per line."""

from __future__ import annotations

import msgspec

from simulator.runs.run_report import RunReport


class WhatIfProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The share of requests that have arrived, 0..1."""

    share: float


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Why the task cannot be run."""

    reason: str


class WhatIfDone(msgspec.Struct, frozen=True, tag="done"):
    """The report of a finished run."""

    report: RunReport


Message = WhatIfProgress | Failure | WhatIfDone
