"""Keys of requests on hash rings: of the start of the prompt, or of the session."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

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


def session_hash(request: InferenceRequest) -> int:
    """Return the hash of the request's session, of its id if it has none."""
    return xxh3_64_intdigest((request.session_id or request.request_id).encode())
