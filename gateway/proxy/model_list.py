"""`/v1/models`: the names that a caller can send as `model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.route_api import unknown_model
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.pools.services.named_service import NamedService
from gateway.server.http.http_exchange import Exchange

if TYPE_CHECKING:
    from gateway.gateway import Gateway

MODELS = "/v1/models"


class ModelList:
    """Serves `GET /v1/models` and `/v1/models/{id}`. It has no state."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def serve(self, exchange: Exchange, caller: ApiKeyEntry) -> None:
        """Answer with all models that the caller can use, or with one of them."""
        cards = {**self._served(caller), **self._services(caller)}
        name = exchange.path.removeprefix(MODELS).removeprefix("/")
        if not name:
            listing = {"object": "list", "data": [cards[model] for model in sorted(cards)]}
            await exchange.answer(200, msgspec.json.encode(listing))
        elif name in cards:
            await exchange.answer(200, msgspec.json.encode(cards[name]))
        else:
            raise unknown_model()

    def _served(self, caller: ApiKeyEntry) -> dict[str, dict[str, Any]]:
        """Return the cards of served models, and of engines' own aliases and adapters."""
        cards: dict[str, dict[str, Any]] = {}
        pools = sorted(self._gateway.pools.values(), key=lambda pool: (pool.entry.served_model, pool.entry.pool_id))
        for pool in pools:
            for card in pool.names.cards(pool.entry):
                service = self._gateway.service_for(caller, card["id"])
                if service is not None and pool in service.pools:
                    cards.setdefault(card["id"], card)
        return cards

    def _services(self, caller: ApiKeyEntry) -> dict[str, dict[str, Any]]:
        """Return the cards of named services: those of their first pools, renamed."""
        cards = {}
        for name in self._gateway.services.names():
            service = self._gateway.service_for(caller, name)
            if isinstance(service, NamedService):
                first = service.steps[0].pools[0]
                cards[name] = {**first.names.cards(first.entry)[0], "id": name, "root": name, "parent": None}
        return cards
