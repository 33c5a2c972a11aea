"""Dynamo's standalone selection service on top of the decision API: `/select`, `/select_and_reserve`, `/reservations`.

Each selection is a decision with a reservation. Its reports are those of `/api/v1/requests`. docs/drop-in.md lists the
fields that are read.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from gateway.api.feedback_api import MAX_BODY, FeedbackApi
from gateway.api.route_api import RouteAnswer, RouteApi, unknown_model
from gateway.api.route_request import MAX_HASHES, RouteRequest, Tokens, reject_nul_names
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.worker_ids import worker_id
from gateway.requests.caller_facts import DecisionCaller
from gateway.server.http.http_exchange import Exchange
from gateway.server.http.json_body import BadBodyError, decode_object, decode_object_in_turns, reject_nul_name, typed
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.gateway import Gateway

SELECTING, RESERVATIONS = ("/select", "/select_and_reserve"), "/reservations"
BELOW = RESERVATIONS + "/"
DEFAULT = "default"
LIFECYCLE = {"prefill_complete": "first_token", "output_block": ""}
"""Calls of a reservation's lifecycle, and the report that each is; empty: it is accepted without effect."""

SelectionId = Annotated[str, Meta(min_length=1, max_length=128)]
Hashes = Annotated[list[Annotated[int, Meta(ge=-(2**63))]], Meta(max_length=MAX_HASHES)]


class SelectionRequest(msgspec.Struct, kw_only=True):
    """A request for an engine. `token_ids` and `session_id` are additions to Dynamo's fields."""

    selection_id: SelectionId | None = None
    model_name: str = DEFAULT
    routing_group: str = DEFAULT
    block_hashes: Hashes | None = None
    sequence_hashes: Hashes | None = None
    """Read if there are no `block_hashes`."""
    isl_tokens: Tokens | None = None
    token_ids: list[Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]] | None = None
    session_id: Annotated[str, Meta(max_length=256)] | None = None


class _Reservation(msgspec.Struct):
    selection_id: SelectionId


class SelectionApi:
    """Serves Dynamo's calls. It has no state."""

    def __init__(self, gateway: Gateway, route_api: RouteApi, feedback: FeedbackApi) -> None:
        self._gateway = gateway
        self._route_api = route_api
        self._feedback = feedback

    async def select(self, exchange: Exchange, caller: DecisionCaller) -> None:
        """Serve `POST /select` and `POST /select_and_reserve`: choose an engine and reserve it."""
        body = await decode_object_in_turns(await exchange.body())
        # Long lists come as arrays, which are checked already.
        asked = typed(
            {name: list(value) if isinstance(value, array) else value for name, value in body.items()}, SelectionRequest
        )
        if asked.routing_group != DEFAULT:
            raise BadBodyError("bad_field", "This service has the routing group default only.", param="routing_group")
        name = asked.selection_id or ""
        reject_nul_name(name, "selection_id")
        route = RouteRequest(
            model=self._model(asked.model_name),
            token_ids=asked.token_ids,
            block_hashes=None if asked.token_ids is not None else asked.block_hashes or asked.sequence_hashes,
            prompt_tokens=asked.isl_tokens,
            session_id=asked.session_id,
            merges=False,
        )
        reject_nul_names(route)
        answer = await self._route_api.once(exchange, caller, route, name)
        exchange.decision_id = answer.decision_id
        selection = self._selection(answer, route.model, name or answer.decision_id)
        await exchange.answer(200, msgspec.json.encode(selection))

    async def reserve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve `POST /reservations`: confirm a selection, which is reserved already."""
        body = await exchange.body_within(MAX_BODY)
        selection_id = typed(decode_object(body), _Reservation).selection_id
        if await self._route_api.named(caller, selection_id) is None:
            raise _unknown()
        await exchange.answer(201, msgspec.json.encode({"selection_id": selection_id}))

    async def report(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Serve the lifecycle of a reservation: prefill_complete, output_block, and DELETE, which frees it."""
        await exchange.body_within(MAX_BODY)
        selection_id, _, verb = exchange.path.removeprefix(BELOW).partition("/")
        deletes = exchange.method == "DELETE" and not verb
        if not deletes and (exchange.method != "POST" or verb not in LIFECYCLE):
            raise ApiError(
                404, f"Use POST {BELOW}{{id}}/{' or '.join(LIFECYCLE)}, or DELETE {BELOW}{{id}}.", "not_found"
            )
        report = "complete" if deletes else LIFECYCLE[verb]
        named = await self._route_api.named(caller, selection_id)
        decision_id = selection_id if named is None else named.decision_id
        if report:
            await self._feedback.report(caller, decision_id, report)
        await exchange.answer(200, msgspec.json.encode({"selection_id": selection_id}))

    def _model(self, name: str) -> str:
        """Return the model; `default` is the only served one. Raise ApiError if there are several."""
        served = {pool.entry.served_model for pool in self._gateway.pools.values()}
        if name != DEFAULT or name in served:
            return name
        if len(served) != 1:
            raise unknown_model()
        return next(iter(served))

    def _selection(self, answer: RouteAnswer, model: str, selection_id: str) -> dict[str, Any]:
        engine, hit = answer.engine, answer.predicted_hit_tokens
        rank = 0 if engine.rank is msgspec.UNSET else engine.rank
        # Keys that must not see hits get none.
        hit = 0 if hit is msgspec.UNSET else hit
        pools = self._gateway.pools.values()
        block_tokens = next((pool.entry.block_tokens for pool in pools if engine.id in pool.engines), 0)
        return {
            "selection_id": selection_id,
            "model_name": model,
            "routing_group": DEFAULT,
            "worker_id": worker_id(engine.id, engine.name),
            "dp_rank": rank,
            "endpoint": engine.url,
            "block_size": block_tokens,
            "overlap": {"longest_matched": hit, "gpu": hit, "dp": {str(rank): hit}, "cpu": hit, "disk": hit},
            "effective_prefill_tokens": answer.prompt_tokens - hit,
        }


def _unknown() -> ApiError:
    message = "No selection has this id; send it to /select_and_reserve first. Engines are reserved with the selection."
    return ApiError(404, message, "not_found")
