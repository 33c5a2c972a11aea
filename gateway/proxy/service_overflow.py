"""Serves a request to a named service: its pools in order, then its external provider.

The next part is tried if a pool takes no work or cannot be on time, and no byte was sent to the client. The last pool's
rejection is the client's answer if nothing else can serve.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gateway.contracts.stored_decision import ServiceStory
from gateway.pools.pool.service import reject_if_observing
from gateway.pools.services.named_service import NamedService
from gateway.pools.services.provider import Provider
from gateway.proxy.api_call import ApiCall, RoutedCall
from gateway.proxy.provider_relay import ProviderRelay, provider_takes
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.rejections import PoolRejectedError
from gateway.server.http.http_exchange import while_connected
from gateway.server.http.openai_error import ApiError
from routing.regions.sovereignty import SovereigntyDocument
from routing.values.decision import Rejected
from routing.values.hop import Hop

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord

LATE = "late"
"""Reason to leave out a pool whose shortest wait exceeds the request's TTFT objective."""
_NO_RULES = SovereigntyDocument()

Route = Callable[[ApiCall, "LivePool", Hop | None], RoutedCall]
Attempt = Callable[[RoutedCall], Awaitable[None]]


class ServiceOverflow:
    """Serves one request at a time. It has no state between requests."""

    def __init__(
        self, gateway: Gateway, lifecycle: RequestLifecycle, relay: ProviderRelay, route: Route, attempt: Attempt
    ) -> None:
        self._gateway = gateway
        self._lifecycle = lifecycle
        self._relay = relay
        self._route = route
        self._attempt = attempt

    async def serve(self, call: ApiCall, service: NamedService, affinity: Callable[[], bytes]) -> None:
        """Serve a request; raise ApiError if neither a pool nor its provider does."""
        provider, withheld = self._provider(call, service)
        story = ServiceStory(service.entry.name, call.body["model"], withheld=withheld)
        tried: dict[str, str] = {}
        last: tuple[RoutedCall, Rejected | None] | None = None
        record: DecisionRecord | None = None
        while (pool := service.untried(affinity, monotonic(), tried)) is not None:
            rest = {*tried, pool.entry.pool_id}
            more = provider is not None or LATE in tried.values()
            spare = more or service.untried(affinity, monotonic(), rest) is not None
            try:
                routed = self._asked(call, service, pool, story, spare=spare)
            except ApiError as error:
                if record is not None:
                    self._lifecycle.failed(record, monotonic(), error.code)
                raise
            routed.record = record
            if spare and is_late(pool, routed.asked.ttft_slo_s):
                tried[pool.entry.pool_id], last = LATE, (routed, None)
            else:
                try:
                    await self._attempt(routed)
                except PoolRejectedError as error:
                    tried[pool.entry.pool_id] = error.rejected.code
                    last, record = (routed, error.rejected), error.record
                else:
                    return
            story = replace(story, tried=tuple(tried.items()))
            if spare:
                self._lifecycle.metrics.service_overflows.inc(story.service, *story.tried[-1])
        if last is None:
            reject_if_observing(service.pools[0])
            raise RuntimeError("a service without a pool to try")
        await self._last_resort(service, provider, story, *last, record)

    async def _last_resort(
        self,
        service: NamedService,
        provider: Provider | None,
        story: ServiceStory,
        routed: RoutedCall,
        rejected: Rejected | None,
        record: DecisionRecord | None,
    ) -> None:
        """Ask the provider. Without its answer, the first late pool is late all the same, or the rejection holds."""
        call, pool = routed.call, routed.pool
        if provider is not None:
            story = replace(story, provider=provider.host, provider_model=provider.entry.model)
            asked = replace(routed.asked, service=story)
            record = self._lifecycle.sent_out(pool, asked, story.tried[-1][1], record)
            if await while_connected(call.exchange, self._relay.relay(call, record, provider)):
                return
            self._lifecycle.metrics.provider_requests.inc(story.service, "unanswered")
            story = record.service or story
        waits = next((pool_id for pool_id, code in story.tried if code == LATE), None)
        if waits is not None:
            late = next(item for item in service.pools if item.entry.pool_id == waits)
            again = self._asked(call, service, late, story, spare=False)
            again.record = record
            await self._attempt(again)
            return
        if rejected is None:
            raise RuntimeError("no pool was late, and none rejected the request")
        raise self._lifecycle.rejected(pool, replace(routed.asked, service=story, spare=False), rejected, record)

    def _asked(
        self, call: ApiCall, service: NamedService, pool: LivePool, story: ServiceStory, *, spare: bool
    ) -> RoutedCall:
        routed = self._route(call.in_pool(pool, service), pool, None)
        routed.asked = replace(routed.asked, service=story, spare=spare)
        # A pool without engines rejects it at once instead of waiting for one.
        routed.hold = not spare or bool(pool.router.view.roster.accepting)
        return routed

    def _provider(self, call: ApiCall, service: NamedService) -> tuple[Provider | None, str]:
        """Return (the provider, why it gets no request); (None, "") if the service has none."""
        provider = service.provider
        if provider is None:
            return None, ""
        reason = provider_takes(call) or provider.unready(monotonic())
        if not reason:
            snapshot = self._gateway.snapshot
            rules = snapshot.sovereignty if snapshot is not None else _NO_RULES
            origin = self._gateway.peering.home or service.steps[0].pools[0].entry.region
            verdict = rules.outside(call.caller.tenant_id, origin, provider.entry.region)
            reason = "" if verdict.allowed else f"sovereignty: {verdict.rule}"
        return (None, reason) if reason else (provider, "")


def is_late(pool: LivePool, ttft_slo_s: float) -> bool:
    """Return whether no engine of the pool can begin within the objective. Without engines, the pool itself rejects."""
    return bool(pool.router.view.roster.accepting) and pool.router.least_wait_s(monotonic()) > ttft_slo_s
