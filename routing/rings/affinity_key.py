"""The key for the start of a prompt, under rules that send equal starts to equal engines."""

from __future__ import annotations

from routing.ledger.fleet_view import id_tail
from routing.values.inference_request import InferenceRequest


def affinity_key(request: InferenceRequest, blocks: int) -> int:
    """Return the key of the prompt's first `blocks` blocks, of all where it has fewer, of its id where it has none.

    A block's key represents the whole prefix that ends with it.
    """
    keys = request.head or request.keys
    if blocks < len(keys):
        return keys[blocks - 1]
    return keys[-1] if keys else id_tail(request.request_id)
