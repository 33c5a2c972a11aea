"""The key for the start of a prompt, for rules that send equal starts to equal engines."""

from __future__ import annotations

from routing.ledger.fleet_view import id_tail
from routing.values.inference_request import InferenceRequest


def affinity_key(request: InferenceRequest, blocks: int) -> int:
    """Return the key of the prompt's first `blocks` blocks.

    A block's key represents the whole prefix up to it. A shorter prompt uses all its blocks, and one without blocks its
    request id.
    """
    keys = request.head or request.keys
    if blocks < len(keys):
        return keys[blocks - 1]
    return keys[-1] if keys else id_tail(request.request_id)
