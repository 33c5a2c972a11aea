"""The gateway's ASGI app: decision API, feedback, explanations, the OpenAI-compatible proxy, health, metrics.

In front of Django, `handles` defines which paths the gateway serves; without Django the app runs alone. It expects to
be wrapped by the Edge.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING

import msgspec

from gateway.access.authentication import (
    FORWARD,
    INFER,
    UnauthenticatedError,
    authenticate,
    authorization_of,
    decides_for,
    has_expired,
    require_scope,
)
from gateway.access.authentication import ROUTE as ROUTE_SCOPE
from gateway.access.key_quota import KeyQuotas
from gateway.api import advisory_api, explain_api, feedback_api
from gateway.api.advisory_api import AdvisoryApi
from gateway.api.explain_api import ExplainApi
from gateway.api.feedback_api import FeedbackApi
from gateway.api.observe_api import ObserveApi
from gateway.api.route_api import RouteApi
from gateway.api.selection_api import BELOW as RESERVATION
from gateway.api.selection_api import RESERVATIONS, SELECTING, SelectionApi
from gateway.api.untracked_requests import ReportingKeys
from gateway.base.asgi_types import Receive, Scope, Send
from gateway.base.event_log import log_event
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.regions.forward_server import SCOPE_KEY as FORWARDED
from gateway.peers.regions.forward_server import ForwardedCall
from gateway.pools.pool.pool_accounts import PoolAccounts
from gateway.pools.pool.request_listener import RequestListener, WhenReported
from gateway.proxy.attempt import RelaySettings
from gateway.proxy.model_list import MODELS, ModelList
from gateway.proxy.openai_proxy import Proxy
from gateway.proxy.reported_spans import ReportedSpans
from gateway.reports.request_metrics import RequestMetrics
from gateway.requests.caller_facts import TRACE, DecisionCaller, among_of, facts_of_headers
from gateway.requests.formats.endpoints import BY_PATH
from gateway.requests.lifecycle import RequestLifecycle
from gateway.requests.prompt_keys import PromptKeys
from gateway.server.http.engine_paths import BATCH, ROUTE
from gateway.server.http.error_formats import format_of
from gateway.server.http.guarded_receive import RejectedAtEdgeError
from gateway.server.http.http_exchange import JSON, NOSNIFF, ClientGoneError, Exchange
from gateway.server.http.json_body import BadBodyError
from gateway.server.http.openai_error import ApiError, error_body
from gateway.server.http.request_head import RequestHead
from gateway.server.http.sync_fast_path import NO_WAIT, ORIGINAL_PATH, FastAnswer, KnownHead, header_lines
from gateway.server.process.drain import SHUTDOWN, Drain, ShuttingDownError
from kvstore.transfer.tls import is_loopback

if TYPE_CHECKING:
    from gateway.gateway import Gateway
    from gateway.proxy.request_spans import Tracing

OBSERVE = "/api/v1/observe"
NOTHING_HERE = f"Unknown path. Send requests to {', '.join(BY_PATH)}; {MODELS} lists the models. See docs/requests.md."
_ENGINES_OWN = ("/v1/", "/v2/", "/inference/", "/invocations", "/generate", "/encode")
"""Path prefixes of engines' APIs, whether the gateway serves them or not. No console page uses them."""
_PLACING = frozenset((ROUTE, BATCH, *SELECTING, *BY_PATH))
"""Paths that create new work. A gateway that shuts down rejects them."""

_DECISION_HEAD = header_lines((JSON, NOSNIFF, (b"x-headway-decision", b"%s"), (b"x-request-id", b"%s")))

_IS_OF_PROXY = re.compile(
    rb"via|.*forwarded.*|.*client-?ip|.*(real|connecting|remote|originating|connection)-(ip|addr)|x-original-.*"
    rb"|(x-)?(envoy|cf|cloudfront|amz|amzn|cloud|azure|arr|fastly|akamai|varnish|cdn|proxy|appengine|vercel|nf)-.*"
    rb"|x-varnish"
).fullmatch
"""Names of headers that proxies add; scrapers send none of them."""

Handler = Callable[[Exchange, ApiKeyEntry], Awaitable[None]]


class InterruptedAnswerError(RuntimeError):
    """An answer failed after its start. The message names only the type of the error."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Settings of the app beyond the gateway itself. Without a scrape token, /metrics answers only loopback."""

    scrape_token: str = field(default="", repr=False)
    relay: RelaySettings | None = None
    """None: derived from the gateway's limits."""
    tracing: Tracing | None = None
    """Traces proxied requests; None disables tracing."""
    listeners: tuple[RequestListener, ...] = ()
    """Further listeners of requests."""


class GatewayApp:
    """The ASGI callable for the gateway's paths."""

    def __init__(self, gateway: Gateway, settings: AppSettings | None = None) -> None:
        settings = settings or AppSettings()
        self._gateway = gateway
        self._settings = settings
        self.recent = gateway.recent
        self.drain = Drain(lambda: gateway.reject_waiting(SHUTDOWN))
        self.new_id = gateway.new_id
        self._note_use = gateway.key_usage.note
        self._traces = ReportedSpans(settings.tracing) if settings.tracing is not None else None
        listeners = (
            PoolAccounts(),
            RequestMetrics(gateway.metrics),
            WhenReported(gateway.key_quotas.release),
            *gateway.listeners(),
            *((self._traces,) if self._traces is not None else ()),
            *settings.listeners,
        )
        lifecycle = RequestLifecycle(gateway.metrics, self.recent, listeners)
        prompt_keys = PromptKeys()
        reporting = ReportingKeys()
        route_api = self._route_api = RouteApi(gateway, lifecycle, prompt_keys, reporting, self._traces)
        proxied = self.proxy = Proxy(
            gateway, lifecycle, prompt_keys, self.drain, settings=settings.relay, tracing=settings.tracing
        )
        reports = FeedbackApi(lifecycle, reporting, gateway.peers, gateway.usage)
        feedback = self._metered((ROUTE_SCOPE, FORWARD), reports.serve, gateway.feedback_quotas)
        # Front ends that only route requests pass the list on.
        models = self._forwarded(ModelList(gateway).serve)
        observe_api = ObserveApi(gateway, lifecycle, prompt_keys)
        self.observations = observe_api.playback
        self._exact: dict[str, tuple[str, Handler]] = {
            ROUTE: ("POST", self._deciding(route_api.route, spends=1)),
            BATCH: ("POST", self._deciding(route_api.batch, spends=0)),
            OBSERVE: ("POST", _scoped(ROUTE_SCOPE, observe_api.serve)),
            **dict.fromkeys(BY_PATH, ("POST", self._metered(INFER, proxied.serve))),
            MODELS: ("GET", models),
        }
        advisories = AdvisoryApi(gateway, self._caller)
        self._advisory = advisories.serve_session
        # Browsers send a token in the body; the API identifies its owner by itself.
        self._own_keys: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            advisory_api.ADVISORIES: advisories.serve,
            advisory_api.TOKENS: advisories.make_token,
        }
        if gateway.regions is not None:
            gateway.regions.serve(self)
        # Feedback frees reservations, so it has a minute of its own; any key may ask about its own decisions.
        self._below: tuple[tuple[str, str, Handler], ...] = (
            (feedback_api.PREFIX, "POST", feedback),
            (explain_api.PREFIX, "GET", ExplainApi(self.recent, gateway.peers).serve),
            (MODELS + "/", "GET", models),
        )
        self._add_selection(SelectionApi(gateway, route_api, reports))
        # /health: the name that engines have for it, which load generators request before they begin.
        ready = dict.fromkeys(("/ready", "/health"), self._ready)
        self._open: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            "/live": self._live,
            "/metrics": self._metrics,
            **ready,
        }

    def _add_selection(self, selection: SelectionApi) -> None:
        select, quotas = self._deciding(selection.select, spends=1), self._gateway.feedback_quotas
        reserve = self._metered(ROUTE_SCOPE, selection.reserve, quotas)
        self._exact |= {**dict.fromkeys(SELECTING, ("POST", select)), RESERVATIONS: ("POST", reserve)}
        self._below += ((RESERVATION, "", self._metered(ROUTE_SCOPE, selection.report, quotas)),)

    def handles(self, path: str) -> bool:
        """Return whether the gateway serves this path."""
        return (
            path in self._exact
            or path in self._open
            or path in self._own_keys
            or path.startswith(
                (*_ENGINES_OWN, feedback_api.PREFIX, RESERVATION, explain_api.PREFIX, advisory_api.PREFIX)
            )
        )

    def admit(self, target: bytes, head: RequestHead) -> KnownHead | None:
        """Return the caller if its `POST /api/v1/route` can take the fast path, None for the normal path."""
        if self.drain.begun:
            return None
        try:
            caller = self._decision_caller(head, authenticate(authorization_of(head.headers), self._gateway, time()))
        # The normal path reports the fault.
        except ApiError:
            return None
        # A key with limits pays for each call, and the fast path charges none.
        if caller.key.rate_per_min is not None or caller.key.max_in_flight is not None:
            return None
        waits, original = not target.endswith(NO_WAIT), head.headers.get(ORIGINAL_PATH, b"")
        keys = (caller.key,) if caller.reporter is caller.key else (caller.key, caller.reporter)
        return KnownHead(keys, self._gateway.snapshot, caller, waits, original)

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        """Answer a `POST /api/v1/route` on the fast path; None if it needs the normal path.

        Any fault before an engine is reserved returns None without side effects, so that the normal path reports it. An
        admission is valid only for the snapshot it was made under, because keys may have been revoked since.
        """
        now = time()
        # A newer snapshot may have revoked a key or changed its limits.
        if admission.snapshot is not self._gateway.snapshot or self.drain.begun:
            return None
        for key in admission.keys:
            if has_expired(key, now):
                return None
        decision_id = self.new_id()
        try:
            answer = self._route_api.at_once(admission, body, decision_id, monotonic())
        # The ordinary way names the fault; nothing is reserved yet.
        except BadBodyError:
            return None
        except ApiError as error:
            self._note_uses(admission.keys, now)
            self._count(error)
            name = decision_id.encode()
            headers = (JSON, NOSNIFF, *error.headers, (b"x-headway-decision", name), (b"x-request-id", name))
            path = admission.original_path.partition(b"?")[0].decode("latin-1")
            return FastAnswer(error.status, header_lines(headers), format_of(path or ROUTE).of(error))
        if answer is None:
            return None
        self._note_uses(admission.keys, now)
        name = decision_id.encode()
        return FastAnswer(200, _DECISION_HEAD % (name, name), answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        exchange = Exchange(scope, receive, send)
        self.drain.under_way += 1
        try:
            await self._serve(exchange)
        except ClientGoneError:
            return
        except RejectedAtEdgeError:
            raise
        except ApiError as error:
            await self._reject(exchange, error)
        except Exception as error:  # noqa: BLE001 - the process edge: a fault ends one request, not the server
            # The type and place are enough to find it; the message might quote a prompt.
            log_event("crashed", level=logging.ERROR, error=type(error).__name__, where=_where(error))
            if exchange.started:
                # The server ends the connection, and logs this error instead of the first.
                raise InterruptedAnswerError(type(error).__name__) from None
            message = "The gateway failed; the error is in its log."
            body = format_of(exchange.path).body(500, message, "internal_error")
            await exchange.answer(500, body)
        finally:
            self.drain.under_way -= 1
            await exchange.stop_comments()

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.path
        serve = self._own_keys.get(path) or (self._advisory if path.startswith(advisory_api.PREFIX) else None)
        if serve is not None:
            await serve(exchange)
            return
        forwarded: ForwardedCall | None = exchange.scope.get(FORWARDED)
        if forwarded is not None:
            await self._serve_forwarded(exchange, forwarded)
            return
        method, handler = self._exact.get(path) or self._find_below(path) or ("", None)
        if handler is None:
            opened = self._open.get(path)
            if opened is None:
                raise ApiError(404, NOTHING_HERE, "not_found")
            if exchange.method not in ("GET", "HEAD"):
                raise ApiError(405, "Use GET here.", "method_not_allowed")
            await opened(exchange)
            return
        caller = self._caller(exchange.head)
        # An empty method: the handler serves several.
        if method and exchange.method != method:
            raise ApiError(405, f"Use {method} here.", "method_not_allowed")
        if self.drain.begun and path in _PLACING:
            raise ShuttingDownError
        await handler(exchange, caller)

    async def _serve_forwarded(self, exchange: Exchange, forwarded: ForwardedCall) -> None:
        """Serve a request that the gateway of another region has authenticated."""
        endpoint = BY_PATH.get(exchange.path)
        if endpoint is None or not endpoint.routed:
            raise ApiError(404, NOTHING_HERE, "not_found")
        if self.drain.begun:
            raise ShuttingDownError
        await self.proxy.serve(exchange, forwarded.head.caller, forwarded)

    def _caller(self, head: RequestHead) -> ApiKeyEntry:
        """Return the request's valid key and record its use; raise UnauthenticatedError."""
        now = time()
        caller = authenticate(authorization_of(head.headers), self._gateway, now)
        self._note_use(caller.usage_id, now)
        return caller

    def _note_uses(self, keys: tuple[ApiKeyEntry, ...], now: float) -> None:
        for key in keys:
            self._note_use(key.usage_id, now)

    def _decision_caller(self, head: RequestHead, key: ApiKeyEntry) -> DecisionCaller:
        """Return for whom a request with this key decides; raise ApiError if it may not."""
        decides = decides_for(head.headers, key, self._gateway, time(), ROUTE_SCOPE)
        facts = facts_of_headers(head.headers)
        if head.given and not facts.client_request_id:
            facts = msgspec.structs.replace(facts, client_request_id=head.request_id)
        among = among_of(head.headers)
        if self._traces is None:
            return DecisionCaller(decides, key, facts, among=among)
        trace = {name: head.headers[name] for name in TRACE if name in head.headers}
        return DecisionCaller(decides, key, facts, trace, _path_in(head.headers), among)

    def _deciding(self, handler: Callable[[Exchange, DecisionCaller], Awaitable[None]], *, spends: int) -> Handler:
        """Return the handler of decisions, also for trusted proxies, whose clients' keys pay for `spends` calls."""

        def serve(exchange: Exchange, key: ApiKeyEntry) -> Awaitable[None]:
            caller = self._decision_caller(exchange.head, key)
            if caller.key is not key:
                self._note_use(caller.key.usage_id, time())
            if spends:
                self._gateway.key_quotas.spend(caller.key, monotonic(), spends)
            return handler(exchange, caller)

        return serve

    def _forwarded(self, handler: Handler) -> Handler:
        """Return the handler, for keys with one of these scopes and for the keys of trusted proxies' clients."""

        def serve(exchange: Exchange, key: ApiKeyEntry) -> Awaitable[None]:
            caller = decides_for(exchange.head.headers, key, self._gateway, time(), INFER, ROUTE_SCOPE)
            self._gateway.key_quotas.spend(caller, monotonic())
            return handler(exchange, caller)

        return serve

    def _metered(self, scope: str | tuple[str, ...], handler: Handler, quotas: KeyQuotas | None = None) -> Handler:
        """Return the handler, restricted to keys with one of these scopes and to the key's calls per minute."""
        spend = (quotas or self._gateway.key_quotas).spend
        scopes = (scope,) if isinstance(scope, str) else scope

        def serve(exchange: Exchange, caller: ApiKeyEntry) -> Awaitable[None]:
            require_scope(caller, *scopes)
            spend(caller, monotonic())
            return handler(exchange, caller)

        return serve

    def _find_below(self, path: str) -> tuple[str, Handler] | None:
        for prefix, method, handler in self._below:
            if path.startswith(prefix):
                return method, handler
        return None

    async def _reject(self, exchange: Exchange, error: ApiError) -> None:
        self._count(error)
        path = exchange.path
        if path == ROUTE:
            # The proxy passes it on to a client of that API.
            path = _path_in(exchange.head.headers) or path
        with suppress(ClientGoneError):
            await exchange.answer(error.status, format_of(path).of(error), (JSON, *error.headers))

    def _count(self, error: ApiError) -> None:
        if isinstance(error, BadBodyError | UnauthenticatedError):
            self._gateway.metrics.rejected_input.inc(error.cause)
        # From 429 on, a limit or the gateway rejects, not the content.
        elif error.status < 429:
            self._gateway.metrics.rejected_input.inc(error.code)

    async def _live(self, exchange: Exchange) -> None:
        await exchange.answer(200, b'{"live":true}')

    async def _ready(self, exchange: Exchange) -> None:
        reason = self._unready()
        if reason:
            body = error_body(503, reason, "not_ready")
            await exchange.answer(503, body, (JSON, (b"retry-after", b"1")))
            return
        await exchange.answer(200, b'{"ready":true}')

    def _unready(self) -> str:
        if self.drain.begun:
            return "This gateway is shutting down."
        if self._gateway.snapshot is None:
            return "No topology has been published to this gateway yet."
        pools = self._gateway.pools.values()
        # A pool that starts engines for its requests takes them while it has none.
        if not any(
            pool.router.cold.expected_s is not None or any(engine.breaker.accepts for engine in pool.engines.values())
            for pool in pools
        ):
            return "No engine is available."
        return ""

    async def _metrics(self, exchange: Exchange) -> None:
        if not self._may_scrape(exchange):
            raise ApiError(401, "Send the scrape token as 'Authorization: Bearer …'.", "missing_scrape_token")
        accepted = exchange.head.headers.get(b"accept", b"").decode("latin-1")
        text, content_type = self._gateway.metrics.negotiated(accepted)
        await exchange.answer(200, text, ((b"content-type", content_type.encode()),))

    def _may_scrape(self, exchange: Exchange) -> bool:
        token = self._settings.scrape_token
        headers = exchange.head.headers
        if token:
            offered = headers.get(b"authorization", b"")
            if hmac.compare_digest(offered, b"Bearer " + token.encode()):
                return True
        client = exchange.scope.get("client")
        if client is None or not is_loopback(client[0]):
            return False
        # Behind a proxy on this machine every client appears local; nginx adds no header by itself, but sends HTTP/1.0.
        return exchange.scope.get("http_version") != "1.0" and not any(map(_IS_OF_PROXY, headers))


def _scoped(scope: str, handler: Handler) -> Handler:
    """Return the handler, restricted to keys with this scope."""

    def serve(exchange: Exchange, caller: ApiKeyEntry) -> Awaitable[None]:
        require_scope(caller, scope)
        return handler(exchange, caller)

    return serve


def _path_in(headers: Mapping[bytes, bytes]) -> str:
    """Return the path that a proxy's client called, empty if no proxy names it."""
    return headers.get(ORIGINAL_PATH, b"").partition(b"?")[0].decode("latin-1")


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
