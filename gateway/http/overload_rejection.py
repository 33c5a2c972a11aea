"""What a gateway that is late itself does not take in."""

from __future__ import annotations

import time

from gateway.base.loop_lag import LoopLag
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Refused
from routing.values.inference_request import InferenceRequest


def lag_refusal(lag: LoopLag, router: Router, request_id: str) -> Refused | None:
    """Return the refusal of a request while the loop's lag stands; None while the gateway keeps up."""
    retry_after_s = lag.retry_after_s(time.monotonic()) if lag.late else None
    return None if retry_after_s is None else _refused(router, request_id, retry_after_s)


def queue_refusal(lag: LoopLag, router: Router, request: InferenceRequest) -> Refused | None:
    """Return the refusal of a request for which no engine would be free in time; None where the queue is short enough.

    A gateway that is not late lets it wait for the policy to say.
    """
    if not lag.late or not router.view.accepting:
        return None
    wait_s = router.least_wait_s(time.monotonic())
    if wait_s <= request.ttft_slo_s:
        return None
    return _refused(router, request.request_id, max(1.0, wait_s - request.ttft_slo_s))


def _refused(router: Router, request_id: str, retry_after_s: float) -> Refused:
    refused = Refused(request_id, reasons.GATEWAY_LATE, retry_after_s)
    router.count_outcome(refused)
    return refused
