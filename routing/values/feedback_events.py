"""Feedback to a learning placement about its own choices, in order."""

from __future__ import annotations

import msgspec

from routing.values.inference_request import InferenceRequest


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A request was bound to an engine, for the first time or again after its engine was lost."""

    request: InferenceRequest
    engine_id: str
    hit_tokens: int
    """Prompt tokens expected to be cached on the engine."""
    at_s: float


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The first token of a bound request arrived."""

    request: InferenceRequest
    engine_id: str
    at_s: float


class Released(msgspec.Struct, frozen=True, gc=False):
    """A bound request or its binding ended: complete, failed, expired, or about to be bound again.

    Sent once for every Bound. `finished` states whether the answer was complete.
    """

    request: InferenceRequest
    engine_id: str
    at_s: float
    finished: bool


FeedbackEvent = Bound | Answered | Released
