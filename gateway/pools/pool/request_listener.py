"""Interface for code that counts, learns from, records, or releases requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.values.inference_request import InferenceRequest


class RequestListener:
    """Called at each event of a request, after its record is updated. `now` is monotonic seconds.

    A listener overrides the events that it needs; others cost nothing.
    """

    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        """Handle the choice of an engine, `took_s` seconds after the router was asked. `again`: another engine had
        failed.
        """

    def first_token(self, record: DecisionRecord, now: float) -> None:
        """Handle the engine's first token."""

    def handed_over(self, record: DecisionRecord, now: float, prefilled: bool) -> None:
        """Handle the hand-over to the decode engine. Without `prefilled`, that engine computes the prompt itself."""

    def left(self, record: DecisionRecord, failed: bool) -> None:
        """Handle the request's departure to another engine. `failed`: this engine was at fault."""

    def ended(self, record: DecisionRecord, now: float) -> None:
        """Handle the end of a request, as in the record. Called once per request."""

    def forward_ended(self, record: DecisionRecord, now: float) -> None:
        """Handle the end, or the failed try, of a request in another region, whose listeners handle its other events.

        After a failed try, `record.outcome` is empty.
        """

    def sent_out(self, record: DecisionRecord, now: float) -> None:
        """Handle that the request goes to an external provider."""

    def provider_ended(self, record: DecisionRecord, now: float) -> None:
        """Handle the end of a request that went to an external provider. No engine or pool served it."""


class WhenReported(RequestListener):
    """Calls a function with the decision's id when the end of a request is reported. The proxy sees its own ends."""

    def __init__(self, call: Callable[[str], None]) -> None:
        self._call = call

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        if not record.proxied:
            self._call(record.decision.decision_id)


class RequestListeners:
    """The listeners of each event, in order."""

    def __init__(self, listeners: Iterable[RequestListener]) -> None:
        known = tuple(listeners)
        self.dispatched = _handlers(known, "dispatched")
        self.first_token = _handlers(known, "first_token")
        self.handed_over = _handlers(known, "handed_over")
        self.left = _handlers(known, "left")
        self.ended = _handlers(known, "ended")
        self.forward_ended = _handlers(known, "forward_ended")
        self.sent_out = _handlers(known, "sent_out")
        self.provider_ended = _handlers(known, "provider_ended")


def _handlers(listeners: Iterable[RequestListener], moment: str) -> tuple[Callable[..., Any], ...]:
    silent = getattr(RequestListener, moment)
    return tuple(getattr(listener, moment) for listener in listeners if getattr(type(listener), moment) is not silent)
