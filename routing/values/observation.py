"""Observations that the gateway reports to the router about dispatched requests."""

from __future__ import annotations

import msgspec


class FirstToken(msgspec.Struct, frozen=True, gc=False):
    """The engine sent its first token: prefill of this request is over."""

    request_id: str


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """The prefill engine is done; the request's first token will come from its decode engine."""

    request_id: str


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The answer is complete; `cached_tokens` as the engine reports it (None if it does not)."""

    request_id: str
    cached_tokens: int | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The request ended without an answer, was cancelled by its client, or never reached the engine."""

    request_id: str


Observation = FirstToken | HandedOver | Completed | Failed
