"""Requests that wait for the first engine of a pool, as gateways report them to the scaler."""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm

TOPIC = "unserved_requests"
"""Stream topic of the reports of all gateways."""
WAKE_JOBS = "wake_jobs"
"""Stream topic with names of jobs, separated by commas. Processes that run the schedule subscribe to it."""
SCALING = b"scaling"
GOOD_S = 5.0
"""A report that is not renewed for this long is void. Gateways renew it each second while requests wait."""


class UnservedRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Number of requests that lack an engine in a pool that starts engines for them."""

    pool_id: str
    at: float
    """Unix seconds."""
    requests: int


_unserved = WireForm(UnservedRequests, "a report of unserved requests", limit=MIB)
encode_unserved, decode_unserved = _unserved.encode, _unserved.decode
