"""Requests deferred because of load, to be retried later (Mooncake §4.3)."""

from __future__ import annotations

from collections.abc import Iterator

from routing.queue.slo_expiry import LastChances
from routing.values.inference_request import InferenceRequest


class Deferred:
    """Deferred requests and their retry times. Mutable state: the requests by id, and their times."""

    def __init__(self) -> None:
        self.requests: dict[str, InferenceRequest] = {}
        """Requests by id. Only this class changes it."""
        self._moments = LastChances()

    def __len__(self) -> int:
        return len(self.requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.requests

    def defer(self, request: InferenceRequest, until: float) -> None:
        """Keep a request until this time."""
        self.requests[request.request_id] = request
        self._moments.set(request.request_id, until)

    def drop(self, request_id: str) -> bool:
        """Drop a request that is no longer wanted. Return False if it is not deferred."""
        self._moments.forget(request_id)
        return self.requests.pop(request_id, None) is not None

    def next_moment(self) -> float:
        """Return when the next request is due, NEVER if there is none."""
        return self._moments.next_moment()

    def due(self, now: float) -> Iterator[InferenceRequest]:
        """Yield the requests to retry now, and drop them."""
        # A list, because a request that is tried again may be deferred again meanwhile.
        for request_id in list(self._moments.due(now)):
            yield self.requests.pop(request_id)

    def check(self) -> None:
        """Raise AssertionError unless every deferred request will be retried."""
        self._moments.check()
        if len(self._moments) != len(self.requests):
            raise AssertionError("a deferred request is forgotten")
