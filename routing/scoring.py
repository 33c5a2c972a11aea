"""Scores of one engine for one request, as every placement reports them."""

from __future__ import annotations

from routing.decision import Candidate
from routing.fleet import FleetView
from routing.inference_request import InferenceRequest


def candidate(
    request: InferenceRequest, view: FleetView, target: int, blocks: int, now: float, cost: float | None = None
) -> Candidate:
    """Return the target's scores with `blocks` matched; cost defaults to the estimated TTFT in seconds."""
    hit_tokens = view.hit_tokens(request, target, blocks)
    wait_s = view.wait_s(target, now)
    compute_s = view.compute_s(request, target, hit_tokens)
    return Candidate(
        view.engine_ids[target], hit_tokens, wait_s, compute_s, wait_s + compute_s if cost is None else cost, blocks
    )
