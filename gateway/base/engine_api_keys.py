"""Selects the key that an engine is sent: the control plane names a variable, each process reads its own environment.

A snapshot carries no key, and names outside FLEET_KEY and OWN_KEY are not read: otherwise, a writer of snapshots could
have any secret of the environment sent to an address of its choice.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from gateway.base.event_log import log_event

FLEET_KEY = "HEADWAY_ENGINE_API_KEY"
OWN_KEY = r"^HEADWAY_ENGINE_KEY_[A-Z0-9_]{1,40}$"
"""Variables that a pool may name for a key of its own."""
REJECTED_KEY = frozenset((401, 403))
"""Statuses by which an engine rejects the gateway's key."""


def engine_key(variable: str, fleet_key: str) -> str:
    """Return the key that the variable, or the file that NAME_FILE names, holds; empty: none is sent.

    A file that cannot be read costs the pool its key and holds up no other pool's snapshot.
    """
    if variable == FLEET_KEY:
        return fleet_key
    if not re.fullmatch(OWN_KEY, variable):
        return ""
    try:
        return key_in(variable)
    except (OSError, UnicodeDecodeError) as error:
        log_event("engine_key_unreadable", level=logging.ERROR, variable=variable, error=type(error).__name__)
        return ""


def key_remedy(variable: str) -> str:
    """Return the remedy where an engine rejects the key of this variable; empty: no key is sent to it."""
    if variable:
        return f"Set {variable} of the gateways to a key that the engines accept, and restart the gateways."
    return (
        "No key is sent to this engine: its address is no IP address in the pool's engine networks. Register it under "
        "such an address, or name a variable for the pool's key."
    )


def key_in(variable: str) -> str:
    """Return the content of the variable, or of the file that NAME_FILE names; a file that cannot be read raises
    OSError.
    """
    path = os.environ.get(f"{variable}_FILE", "")
    return (Path(path).read_text(encoding="utf-8") if path else os.environ.get(variable, "")).strip()
