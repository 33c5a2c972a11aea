"""The part of a two-engine decision that callers need to send the request themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.requests.formats.handoff_bodies import PREFILL_FRAGMENT, TRANSFER
from routing.values.engine_pair import DecodeCandidate, EnginePair

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine


class EngineAddress(msgspec.Struct, frozen=True, gc=False):
    """The address of an engine. If `rank` is set, requests need the header X-data-parallel-rank."""

    id: str
    name: str
    url: str
    rank: int | msgspec.UnsetType = msgspec.UNSET


class RouteLeg(msgspec.Struct, frozen=True, gc=False):
    """One leg. Merge `body` into the request body; a null removes the field."""

    engine: EngineAddress
    incarnation: int
    body: dict[str, Any]


class RoutePair(msgspec.Struct, frozen=True, gc=False):
    """Both legs in the order in which they are sent, with times in seconds.

    The prefill leg's answer has the field named by `carry`; copy it unchanged into the decode leg's body. `POST
    …/{id}/handed_over` then frees the prefill engine. first_token, complete and fail concern the decode leg, and fail
    ends both.
    """

    pairing_id: str
    prefill: RouteLeg
    decode: RouteLeg
    carry: str
    reason: str | msgspec.UnsetType
    tpot_s: float | msgspec.UnsetType
    candidates: tuple[DecodeCandidate, ...]


def route_pair(
    pair: EnginePair, prefill: LiveEngine, incarnation: int, decode: LiveEngine, body: dict[str, Any]
) -> RoutePair:
    """Return the pair with body fragments for both legs; `body` holds the fields that both legs get."""
    return RoutePair(
        pair.pairing_id,
        RouteLeg(address_of(prefill), incarnation, {**body, **PREFILL_FRAGMENT}),
        RouteLeg(address_of(decode), pair.incarnation, body),
        TRANSFER,
        pair.reason,
        pair.tpot_s,
        pair.candidates,
    )


def address_of(engine: LiveEngine) -> EngineAddress:
    """Return the address of an engine."""
    entry = engine.entry
    rank = msgspec.UNSET if entry.rank is None else entry.rank
    return EngineAddress(entry.engine_id, entry.name, entry.url, rank)
