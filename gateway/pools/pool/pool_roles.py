"""Warns when a pool's engines cannot work together because of their roles."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gateway.base.event_log import log_event
from gateway.contracts.snapshot import EngineEntry
from routing.values.engine_pair import DECODE, PREFILL


def warn_of_roles(pool_id: str, engines: Iterable[EngineEntry]) -> None:
    """Log the missing role if a pool has only prefill engines or only decode engines."""
    roles = [engine.role for engine in engines]
    if (PREFILL in roles) == (DECODE in roles):
        return
    missing = DECODE if PREFILL in roles else PREFILL
    log_event(
        "roles_unmatched",
        level=logging.WARNING,
        pool=pool_id,
        missing=missing,
        remedy=f"register a {missing} engine, or set the others to mixed; until then they get no work",
    )
