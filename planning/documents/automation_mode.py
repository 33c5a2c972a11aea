"""How much an automation may do: nothing, say what it would do, or do it."""

from __future__ import annotations

from typing import Literal

Mode = Literal["off", "advise", "act"]

OFF: Mode = "off"
ADVISE: Mode = "advise"
ACT: Mode = "act"
