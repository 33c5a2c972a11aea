"""`/api/v1/advisories`: announce a session's next request, or issue a token so that a browser can do so.

A page sends text/plain with its token in the body, so that the call needs no preflight and survives the page's closing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from gateway.access.authentication import INFER, ROUTE, UnauthenticatedError, require_scope
from gateway.access.key_quota import KeyQuotas
from gateway.api.fleet_visibility import may_see_load
from gateway.contracts.advisory import PREFETCHING, RESERVED, SHED, Advisory
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.requests.advisories.advisory_token import MAX_LIFETIME_S, AdvisoryTokens, TokenClaims
from gateway.requests.advisories.source_limits import TokenLimits
from gateway.server.http.http_exchange import JSON, Exchange, Header
from gateway.server.http.json_body import BadBodyError, decode_object, reject_nul, typed
from gateway.server.http.openai_error import ApiError
from gateway.server.http.request_head import RequestHead

if TYPE_CHECKING:
    from gateway.gateway import Gateway

ADVISORIES = "/api/v1/advisories"
PREFIX = ADVISORIES + "/"
TOKENS = "/api/v1/advisory_tokens"
MAX_BATCH = 64
MAX_BODY = 64 * 1024
CALLS_PER_REQUEST = 4
"""Advisories that a rate-limited key can send per allowed request."""
_PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
)

SessionId = Annotated[str, Meta(min_length=1, max_length=256)]
Model = Annotated[str, Meta(max_length=256)]


class AdvisoryBody(msgspec.Struct, kw_only=True):
    """The body of one advisory."""

    session_id: SessionId = ""
    """Optional if a token names the session."""
    model: Model = ""
    expected_arrival_s: Annotated[float, Meta(ge=0, le=3600)] | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 1


class TokenBody(msgspec.Struct, kw_only=True):
    """The session and the lifetime of a requested token."""

    session_id: SessionId
    model: Model = ""
    expires_in_s: Annotated[float, Meta(ge=1, le=MAX_LIFETIME_S)] = 900.0


class AdvisoryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The action taken on an advisory."""

    session_id: str
    state: str
    """prefetching or reserved; forwarded: sent to the gateway that decides for the session's pool; unknown: this
    gateway does not know the session and notified the others; ignored: the policy accepts no advisories.
    """


class AdvisoryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session's open advisory at the answering gateway."""

    session_id: str
    state: str
    """prefetching, reserved or none."""
    expected_in_s: float = 0.0
    expires_in_s: float = 0.0
    moved_blocks: int = 0
    engine_blocks: int = 0
    """Blocks that the reserved engine has prefetched into its own memory."""


class WithdrawnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the answering gateway had an open advisory."""

    session_id: str
    withdrawn: bool


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A token for one session's advisories."""

    token: str
    expires_at: float
    """Unix seconds."""


class _Sender(msgspec.Struct, frozen=True):
    """The sender of advisories: an API key, or a token issued for one."""

    key: ApiKeyEntry
    claims: TokenClaims | None = None
    token: str = ""
    """The token's MAC, which identifies it."""


class AdvisoryApi:
    """Accepts advisories for a tenant's own sessions; no field can name another tenant."""

    def __init__(self, gateway: Gateway, caller_of: Callable[[RequestHead], ApiKeyEntry]) -> None:
        self._gateway, self._caller_of = gateway, caller_of
        self._tokens, self._token_limits = AdvisoryTokens(gateway.keyring), TokenLimits()
        self._quotas = KeyQuotas(gateway.metrics.key_limited, calls="advisories", per_request=CALLS_PER_REQUEST)

    async def serve(self, exchange: Exchange) -> None:
        """Serve `POST /api/v1/advisories` for one advisory or a batch, and browsers' preflights."""
        if exchange.method == "OPTIONS":
            await self._preflight(exchange)
            return
        _require("POST", exchange)
        body = await _object(exchange)
        token, batch = body.pop("token", None), body.pop("advisories", None)
        sender = self._sender(exchange, token)
        cors = self._cors(exchange, sender)
        if batch is None:
            answer: Any = self._take(sender, typed(body, AdvisoryBody))
        else:
            answer = {"advisories": [self._take(sender, item) for item in _batch(batch)]}
        await exchange.answer(202, msgspec.json.encode(answer), (JSON, *cors))

    async def serve_session(self, exchange: Exchange) -> None:
        """Serve `GET` and `DELETE /api/v1/advisories/{session_id}`; a token is sent in the Authorization header."""
        if exchange.method == "OPTIONS":
            await self._preflight(exchange)
            return
        _require("GET or DELETE", exchange)
        session_id = unquote(exchange.path.removeprefix(PREFIX))
        sender = self._sender(exchange, None)
        cors = self._cors(exchange, sender)
        advisory = self._advisory(sender, AdvisoryBody(session_id=session_id))
        self._spend(sender, advisory)
        if exchange.method == "DELETE":
            stood = self._gateway.advisory_exchange.withdraw(advisory)
            withdrawn = WithdrawnAnswer(session_id=session_id, withdrawn=stood)
            await exchange.answer(200, msgspec.json.encode(withdrawn), (JSON, *cors))
            return
        state = msgspec.json.encode(self._state(sender, advisory))
        await exchange.answer(200, state, (JSON, *cors))

    async def make_token(self, exchange: Exchange) -> None:
        """Serve `POST /api/v1/advisory_tokens` for a customer's backend."""
        _require("POST", exchange)
        key = self._caller_of(exchange.head)
        require_scope(key, INFER, ROUTE)
        self._quotas.spend(key, monotonic())
        asked = typed(await _object(exchange), TokenBody)
        expires_at = time() + asked.expires_in_s
        claims = TokenClaims(self._tokens.reference(key), asked.session_id, asked.model, expires_at)
        token = self._tokens.token(claims)
        await exchange.answer(201, msgspec.json.encode(TokenAnswer(token=token, expires_at=expires_at)))

    def _take(self, sender: _Sender, asked: AdvisoryBody) -> AdvisoryAnswer:
        advisory = self._advisory(sender, asked)
        self._spend(sender, advisory)
        if wait_s := self._gateway.advisories.wait_s(advisory):
            raise _too_fast(wait_s)
        state = self._gateway.advisory_exchange.advise(advisory)
        if state == PREFETCHING and not self._sees_moves(sender, advisory):
            state = RESERVED
        return AdvisoryAnswer(session_id=advisory.session_id, state=state)

    def _sees_moves(self, sender: _Sender, advisory: Advisory) -> bool:
        """Return whether the caller can see block moves without learning about other tenants' prompts."""
        pool = self._gateway.pools.get(self._gateway.advisories.pool_of(advisory))
        return pool is None or may_see_load(sender.key, pool)

    def _advisory(self, sender: _Sender, asked: AdvisoryBody) -> Advisory:
        key, claims = sender.key, sender.claims
        session_id, model = asked.session_id, asked.model
        if claims is not None:
            if session_id not in ("", claims.session_id):
                raise ApiError(403, "This token is for another session.", "other_session", param="session_id")
            session_id, model = claims.session_id, claims.served_model
        if not session_id:
            raise BadBodyError("bad_field", "Send session_id.", param="session_id")
        if model and key.served_models and self._gateway.service_for(key, model) is None:
            raise ApiError(404, "No pool that you can use serves this model.", "model_not_found", param="model")
        return Advisory(
            tenant_id=key.tenant_id,
            session_id=session_id,
            served_model=model,
            expected_arrival_s=asked.expected_arrival_s,
            priority=asked.priority,
            source=key.key_id,
        )

    def _state(self, sender: _Sender, advisory: Advisory) -> AdvisoryState:
        opened = self._gateway.advisories.state(advisory.tenant_id, advisory.session_id)
        if opened is None:
            return AdvisoryState(session_id=advisory.session_id, state="none")
        now, sees = monotonic(), self._sees_moves(sender, advisory)
        return AdvisoryState(
            session_id=advisory.session_id,
            state=opened.state if sees else RESERVED,
            expected_in_s=max(0.0, opened.expected_s - now),
            expires_in_s=max(0.0, opened.expires_s - now),
            moved_blocks=opened.moved_blocks if sees else 0,
            engine_blocks=opened.engine_blocks if sees else 0,
        )

    def _sender(self, exchange: Exchange, token: object) -> _Sender:
        """Return the caller of a token (in the body or the Authorization header) or of an API key in that header."""
        offered = exchange.head.headers.get(b"authorization", b"")
        if token is None and offered[:10].lower() == b"bearer at_":
            # Latin-1 decodes any bytes: a token of garbage is a 401, not a fault of the gateway.
            token = offered[7:].strip().decode("latin-1")
        if token is None:
            key = self._caller_of(exchange.head)
            require_scope(key, INFER, ROUTE)
            return _Sender(key)
        claims = self._tokens.claims(token, time()) if isinstance(token, str) else None
        key_id = self._tokens.key_id(claims, self._gateway.snapshot) if claims is not None else ""
        key_entry = self._gateway.key_with_id(key_id)
        # Also after a revocation: a token opens no more than its key does now.
        if not isinstance(token, str) or key_entry is None:
            raise UnauthenticatedError("invalid_advisory_token", "This token is invalid or has expired.")
        if key_entry.expires_at is not None and key_entry.expires_at <= time():
            raise UnauthenticatedError("invalid_advisory_token", "The API key of this token has expired.")
        return _Sender(key_entry, claims, token.rpartition(".")[2])

    def _spend(self, sender: _Sender, advisory: Advisory) -> None:
        """Spend one call of the sender. Over a token's share, spend nothing of its key and raise ApiError 429."""
        key, now = sender.key, monotonic()
        if sender.token:
            per_minute = None if key.rate_per_min is None else key.rate_per_min * CALLS_PER_REQUEST
            if wait_s := self._token_limits.take(sender.token, per_minute, now):
                self._gateway.advisories.shed(advisory)
                raise _too_fast(wait_s)
        self._quotas.spend(key, now)

    def _cors(self, exchange: Exchange, sender: _Sender) -> tuple[Header, ...]:
        """Return the CORS headers for a page of another origin; raise ApiError 403 if the key does not list it."""
        origin = exchange.head.headers.get(b"origin")
        if origin is None or _is_own(origin, exchange.head.headers):
            return ()
        if origin.decode("latin-1") not in sender.key.origins:
            raise ApiError(403, "This origin is not one of the API key's origins; add it under Access.", "origin")
        return _allowed(origin)

    async def _preflight(self, exchange: Exchange) -> None:
        """Answer every preflight alike. It carries no key, so a specific answer would reveal which origins keys list.

        The call that follows carries a key, and is rejected if that key does not list its origin.
        """
        await exchange.answer(204, b"", _PREFLIGHT)


async def _object(exchange: Exchange) -> dict[str, Any]:
    body = await exchange.body_within(MAX_BODY)
    reject_nul(body)
    return decode_object(body)


def _batch(value: object) -> list[AdvisoryBody]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_BATCH or not all(isinstance(e, dict) for e in value):
        raise BadBodyError("bad_field", f"Send 1 to {MAX_BATCH} advisories as objects.", param="advisories")
    return [typed(item, AdvisoryBody) for item in value]


def _require(methods: str, exchange: Exchange) -> None:
    if exchange.method not in methods.split(" or "):
        raise ApiError(405, f"Use {methods} here.", "method_not_allowed")


def _too_fast(wait_s: float) -> ApiError:
    message = "Too many advisories, or the gateway is busy; send fewer. Requests work without them."
    return ApiError(429, message, f"advisory_{SHED}", retry_after_s=wait_s)


def _is_own(origin: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the call is from a page of this gateway."""
    return urlsplit(origin.decode("latin-1")).netloc == headers.get(b"host", b"").decode("latin-1")


def _allowed(origin: bytes) -> tuple[Header, ...]:
    return ((b"access-control-allow-origin", origin), (b"vary", b"origin"))
