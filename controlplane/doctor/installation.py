"""Inputs of the doctor: the server's address, and the current time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation, as configured in the settings."""

    state_dir: Path
    host: str
    port: int
    redis_url: str
    now: datetime
