"""Modes of an automation: off, advise, or act."""

from __future__ import annotations

from typing import Literal

Mode = Literal["off", "advise", "act"]

OFF: Mode = "off"
ADVISE: Mode = "advise"
ACT: Mode = "act"
