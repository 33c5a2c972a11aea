"""Observations of dispatched requests that the gateway reports to the router."""

from __future__ import annotations

import msgspec


class FirstToken(msgspec.Struct, frozen=True, gc=False):
    """The engine sent the first token: the request's prefill is complete."""

    request_id: str


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """The prefill engine is done. The request's first token will come from its decode engine."""

    request_id: str


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The answer is complete. `cached_tokens` is the engine's figure (None if it reports none)."""

    request_id: str
    cached_tokens: int | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The request ended without an answer, was cancelled by its client, or never reached the engine."""

    request_id: str


class ForwardFailed(msgspec.Struct, frozen=True, gc=False):
    """The region that got the request did not serve it, and the client has received nothing."""

    request_id: str


Observation = FirstToken | HandedOver | Completed | Failed | ForwardFailed
