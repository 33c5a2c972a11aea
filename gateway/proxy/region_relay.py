"""Relays another region's answer, unchanged and without delay, to the client whose first contact is this gateway.

Until the first byte is sent to the client, another region can still serve the request. After that, a stream whose
region fails ends with an error event.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from gateway.base.event_log import log_event
from gateway.peers.regions.forward_client import ForwardFailedError, signed_head
from gateway.pools.engines.breaker import BROKEN_STREAM
from gateway.pools.engines.engine_rejection import passed_headers
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import CANCELLED, COMPLETED, FAILED
from gateway.proxy.api_call import ApiCall
from gateway.proxy.engine_relay import MAX_WHOLE_ANSWER
from gateway.proxy.forwarded_request import PASSED_HEADERS
from gateway.requests.caller_facts import CLIENT_HEADERS
from gateway.requests.lifecycle import CLIENT_ERROR, RequestLifecycle
from gateway.server.http.http_exchange import Exchange
from routing.values.decision import Elsewhere

if TYPE_CHECKING:
    import aiohttp

    from gateway.peers.regions.regions import Regions

_PASSED = frozenset((b"content-type", b"x-request-id", *PASSED_HEADERS, *CLIENT_HEADERS))
"""All headers that a gateway uses or sends to engines. The client's credentials are not forwarded."""


class RegionRelay:
    """Forwards one request at a time. It has no state between requests."""

    def __init__(self, regions: Regions, lifecycle: RequestLifecycle) -> None:
        self._regions = regions
        self._lifecycle = lifecycle

    async def relay(self, call: ApiCall, record: DecisionRecord, elsewhere: Elsewhere) -> bool:
        """Relay one answer. Return False if the region did not serve the request and nothing was sent to the client."""
        exchange, hop = call.exchange, elsewhere.hop
        gateway = self._regions.peers.gateways[elsewhere.gateway]
        age_s = monotonic() - record.arrived_s + gateway.one_way_s
        head = await signed_head(call.decision_id, hop, call.caller, call.original, age_s=age_s, stamp=gateway.stamp)
        outcome: str | None = CANCELLED
        self._regions.traffic.forwarded(hop)
        log_event(
            "forwarded",
            level=logging.DEBUG,
            decision_id=record.decision.decision_id,
            client_request_id=record.client_request_id,
            destination=hop.destination,
            heartbeat_age_s=round(elsewhere.heartbeat_age_s, 3),
        )
        try:
            trace = call.spans.carried() if call.spans is not None else {}
            headers = {**passed_on(exchange.head.headers), **trace}
            async with self._regions.client.answer(
                gateway, call.endpoint.path, call.original, headers, head
            ) as response:
                await self._pass_on(exchange, record, response)
                outcome = COMPLETED if response.status == 200 else CLIENT_ERROR
        except ForwardFailedError as error:
            outcome = FAILED if exchange.started else None
            log_event(
                "forward_failed",
                decision_id=record.decision.decision_id,
                client_request_id=record.client_request_id,
                destination=hop.destination,
                cause=str(error),
                begun=exchange.started,
            )
            if not exchange.started:
                if not error.settled:
                    # It may still be at work there, and must not run twice (decision 47).
                    await self._regions.client.settle(gateway, call.decision_id)
                return False
            message = "The region that serves the request failed during the answer; retry the request."
            await exchange.chunk(call.endpoint.errors.event(502, message, BROKEN_STREAM))
            await exchange.end()
        finally:
            if outcome is not None:
                self._lifecycle.forward_ended(record, outcome, monotonic())
        return True

    async def _pass_on(self, exchange: Exchange, record: DecisionRecord, response: aiohttp.ClientResponse) -> None:
        headers = passed_headers(response.headers)
        if response.status != 200 or response.content_type != "text/event-stream":
            await exchange.answer(response.status, await _whole(response), headers)
            return
        async for chunk in response.content.iter_any():
            if not exchange.started:
                self._lifecycle.forward_begun(record, monotonic())
                await exchange.start(200, headers)
            await exchange.chunk(chunk)
        if not exchange.started:
            # The region ended its answer by itself, so that no work is left there.
            raise ForwardFailedError("empty", settled=True)
        await exchange.end()


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_WHOLE_ANSWER:
            raise ForwardFailedError("too_long", settled=False)
    return bytes(body)


def passed_on(client_headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the headers that are forwarded to another region."""
    passed = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in client_headers.items() if name in _PASSED
    }
    return {**passed, "accept-encoding": "identity", "user-agent": "headway"}
