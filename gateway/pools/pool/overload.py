"""Rejects requests with a retry time while this gateway's own event loop is late."""

from __future__ import annotations

import time

from gateway.base.loop_lag import LoopLag
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Rejected
from routing.values.inference_request import InferenceRequest


def lag_rejection(lag: LoopLag, router: Router, request_id: str) -> Rejected | None:
    """Return the rejection of a request while the loop's lag is sustained, else None."""
    retry_after_s = lag.retry_after_s(time.monotonic()) if lag.late else None
    return None if retry_after_s is None else _rejected(router, request_id, retry_after_s)


def queue_rejection(lag: LoopLag, router: Router, request: InferenceRequest) -> Rejected | None:
    """Return the rejection of a request for which no engine would be free in time, None if the queue is short.

    While the gateway is on time, the request waits and the policy decides.
    """
    if not lag.late or not router.view.roster.accepting:
        return None
    wait_s = router.least_wait_s(time.monotonic())
    if wait_s <= request.ttft_slo_s:
        return None
    return _rejected(router, request.request_id, max(1.0, wait_s - request.ttft_slo_s))


def _rejected(router: Router, request_id: str, retry_after_s: float) -> Rejected:
    rejected = Rejected(request_id, reasons.GATEWAY_LATE, retry_after_s)
    router.count_outcome(rejected)
    return rejected
