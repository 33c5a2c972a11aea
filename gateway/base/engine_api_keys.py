"""Selects the API key for an engine or an external provider.

The control plane names a variable; each process reads its environment. A snapshot carries no key. Only variables that
match FLEET_KEY, OWN_KEY, or PROVIDER_KEY are read: otherwise a writer of snapshots could have any secret of the
environment sent to an address of its choice.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from gateway.base.event_log import log_event

FLEET_KEY = "HEADWAY_ENGINE_API_KEY"
OWN_KEY = r"^HEADWAY_ENGINE_KEY_[A-Z0-9_]{1,40}$"
"""Pattern of variables that a pool can name for its own key."""
PROVIDER_KEY = r"^HEADWAY_PROVIDER_KEY_[A-Z0-9_]{1,40}$"
"""Pattern of variables that a service can name for its provider's key. No engine gets their values."""
REJECTED_KEY = frozenset((401, 403))
"""Status codes with which an engine rejects the gateway's key."""


def engine_key(variable: str, fleet_key: str) -> str:
    """Return the key in the variable, or in the file that NAME_FILE names; empty if none is to be sent.

    Files are read by each call, so that a new key needs no restart. If the file cannot be read, the pool has no key,
    but other pools are not affected. `fleet_key` is the value of FLEET_KEY where no file holds it.
    """
    if variable == FLEET_KEY:
        return _own_key(FLEET_KEY, FLEET_KEY) if f"{FLEET_KEY}_FILE" in os.environ else fleet_key
    return _own_key(variable, OWN_KEY)


def provider_key(variable: str) -> str:
    """Return the key in the variable, or in the file that NAME_FILE names; empty if none is to be sent."""
    return _own_key(variable, PROVIDER_KEY)


def _own_key(variable: str, pattern: str) -> str:
    if not re.fullmatch(pattern, variable):
        return ""
    try:
        return key_in(variable)
    except (OSError, UnicodeDecodeError) as error:
        log_event("engine_key_unreadable", level=logging.ERROR, variable=variable, error=type(error).__name__)
        return ""


def key_remedy(variable: str) -> str:
    """Return the remedy if an engine rejects this variable's key; empty if no key is sent to it."""
    if variable:
        return (
            f"Set {variable} of the gateways to a key that the engines accept. With {variable}_FILE, write it to that "
            "file, and the gateways read it within a minute. Otherwise restart the gateways."
        )
    return (
        "No key is sent to this engine: its address is not an IP address in the pool's engine networks. Register it "
        "under such an address, or name a variable for the pool's key."
    )


def key_in(variable: str) -> str:
    """Return the content of the variable, or of the file that NAME_FILE names; raise OSError if it cannot be read."""
    path = os.environ.get(f"{variable}_FILE", "")
    return (Path(path).read_text(encoding="utf-8") if path else os.environ.get(variable, "")).strip()
