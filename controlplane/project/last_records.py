"""Records of ended requests at the start and the end of the process that stores them."""

from __future__ import annotations

import logging

from controlplane.request_log.job import keep, request_intake

logger = logging.getLogger(__name__)


def hear_records() -> None:
    """Hear from now on what gateways send; the job that stores it may start later."""
    request_intake()


def store_last_records() -> None:
    """Store what came since the job ran last."""
    try:
        keep(request_intake())
    except Exception:
        # The edge of the process: it ends in any case, and the server must still hear that it did.
        logger.exception("what came last could not be stored")
