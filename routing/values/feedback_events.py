"""Feedback that a learning placement gets about its own choices, in order."""

from __future__ import annotations

import msgspec

from routing.values.inference_request import InferenceRequest


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A request was bound to an engine, for the first time or again after its engine was lost."""

    request: InferenceRequest
    engine_id: str
    hit_tokens: int
    """Prompt tokens that the engine was expected to have cached."""
    at_s: float


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The first token of a bound request came."""

    request: InferenceRequest
    engine_id: str
    at_s: float


class Released(msgspec.Struct, frozen=True, gc=False):
    """A bound request or its binding has ended: complete, failed, expired, or about to be bound again.

    Sent once for every Bound; `finished` states whether the request was answered to its end.
    """

    request: InferenceRequest
    engine_id: str
    at_s: float
    finished: bool


FeedbackEvent = Bound | Answered | Released
