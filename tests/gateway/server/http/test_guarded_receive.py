"""Time limits of a body, with a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.server.http.edge import EdgeSettings
from gateway.server.http.guarded_receive import SWEEP_S, BodyWatch, GuardedReceive
from gateway.server.http.http_protocol import HEAD_TIMEOUT_S, REST_TIMEOUT_S

MOST_S = 10.0


async def receive() -> Any:
    raise AssertionError("nothing is received here")


@pytest.mark.parametrize(("bytes_of_sweep", "closed"), [(0, True), (1, True), (100, True), (16_000, False)])
def test_a_slow_body_ends_within_ten_seconds(bytes_of_sweep: int, closed: bool) -> None:
    settings = EdgeSettings()
    read = GuardedReceive(receive, settings.body_limit, BodyWatch(settings.stall_s, settings.min_bytes_per_s))
    now_s = 0.0
    while now_s < MOST_S and now_s < read.deadline(now_s):
        if bytes_of_sweep:
            read.received += bytes_of_sweep
            read._last_seen = None
        now_s += SWEEP_S
    assert (now_s < MOST_S) is closed


def test_heads_and_data_after_a_response_have_no_longer_limit() -> None:
    assert max(HEAD_TIMEOUT_S, REST_TIMEOUT_S) <= MOST_S
