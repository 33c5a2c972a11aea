"""Runs transfers of KV blocks between simulated engines (Mooncake Alg. 1).

A transfer begins when its request is dispatched, that is, when its prefill would start. Only blocks that the sender
holds then are sent. A sender's transfers run one after another over its link. The prefill starts when the blocks have
arrived; they stay in the receiver's cache.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch
from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.simulated_engine import TransferringEngine
from simulator.fleet.engine_slots import Station


class BlockTransfer(msgspec.Struct, frozen=True, gc=False):
    """Leading blocks of a prompt, and the time of their arrival in seconds."""

    blocks: int
    lands_s: float


class BlockTransfers:
    """The links of all senders. Mutable state: `sending_until`."""

    def __init__(self, bytes_per_token: int = 57_344, bytes_per_s: float = 12.5e9) -> None:
        self._seconds_per_token = bytes_per_token / bytes_per_s
        self.sending_until: dict[str, float] = {}
        """When each sender's link is free, in seconds. Placements read it (FleetView.sending_until)."""

    def start(
        self, fetch: Fetch, request: InferenceRequest, sender: Station | None, receiver: Station, now: float
    ) -> BlockTransfer | None:
        """Send the blocks that the receiver lacks; return None if the sender holds no more than the receiver."""
        if sender is None or sender is receiver:
            return None
        keys = request.keys[: fetch.blocks]
        blocks, own = _transferring(sender).held_blocks(keys), _transferring(receiver).held_blocks(keys)
        if blocks <= own:
            return None
        starts_s = max(now, self.sending_until.get(sender.engine_id, 0.0))
        lands_s = starts_s + _tokens(request, own, blocks) * self._seconds_per_token
        self.sending_until[sender.engine_id] = lands_s
        return BlockTransfer(blocks, lands_s)


def land(
    receiver: Station,
    request: InferenceRequest,
    blocks: int,
    now: float,
    take_in: Callable[[Station, list[EngineEvent]], None],
) -> int:
    """Put the blocks into the receiver's cache; return the number of prompt tokens that are new there."""
    engine = _transferring(receiver)
    # Blocks that the receiver computed meanwhile were not gained by the transfer.
    own = engine.held_blocks(request.keys[:blocks])
    take_in(receiver, engine.receive_blocks(request.keys[:blocks], now))
    return _tokens(request, own, blocks)


def _tokens(request: InferenceRequest, first_block: int, blocks: int) -> int:
    end = min(blocks * request.block_tokens, request.prompt_tokens)
    return end - min(first_block * request.block_tokens, end)


def _transferring(station: Station) -> TransferringEngine:
    engine = station.engine
    if not isinstance(engine, TransferringEngine):
        raise TypeError(f"{type(engine).__name__} cannot transfer blocks")
    return engine
