"""What the doctor is asked about: the address the server listens on, and the moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation, as the settings describe it."""

    state_dir: Path
    host: str
    port: int
    redis_url: str
    now: datetime
