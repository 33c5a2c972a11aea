"""Names that a pool's engines serve besides the served model: its aliases and LoRA adapters.

Engines load and unload adapters at run time, so the names follow their latest answers to /v1/models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gateway.pools.engines.vllm_adapter import ModelCard

if TYPE_CHECKING:
    from gateway.contracts.snapshot import PoolEntry
    from gateway.pools.engines.live_engine import LiveEngine

_SGLANG = "sglang"
"""SGLang takes an adapter in another field, and serves its base model under the adapter's name."""
_NO_ENGINE: frozenset[str] = frozenset()


class ModelNames:
    """The meaning of each name, and the engines that serve it. Mutable: all of it, replaced by `follow`."""

    def __init__(self) -> None:
        self._cards: dict[str, ModelCard] = {}
        self._engines: dict[str, frozenset[str]] = {}

    def follow(self, served_model: str, engines: Mapping[str, LiveEngine]) -> None:
        """Apply the engines' latest answers."""
        cards: dict[str, ModelCard] = {}
        engine_ids: dict[str, set[str]] = {}
        for engine_id in sorted(engines):
            for card in _of_model(served_model, engines[engine_id].models):
                cards.setdefault(card.id, card)
                engine_ids.setdefault(card.id, set()).add(engine_id)
        self._cards = cards
        self._engines = {name: frozenset(ids) for name, ids in engine_ids.items()}

    def engines(self, name: str) -> frozenset[str]:
        """Return the engines that serve this name."""
        return self._engines.get(name, _NO_ENGINE)

    def lacking(self, name: str, accepting: frozenset[str]) -> frozenset[str]:
        """Return those of the given engines that do not serve this name. All engines serve the served model."""
        return accepting - self.engines(name) if name else _NO_ENGINE

    def lora(self, name: str) -> str:
        """Return the adapter of this name, empty for the model itself."""
        card = self._cards.get(name)
        return name if card is not None and card.parent is not None else ""

    def cards(self, entry: PoolEntry) -> list[dict[str, Any]]:
        """Return the entries of /v1/models. The served model comes first, even if no engine has answered yet."""
        own = self._cards.get(entry.served_model) or ModelCard(entry.served_model)
        others = [self._cards[name] for name in sorted(self._cards) if name != own.id]
        return [
            {
                "id": card.id,
                "object": "model",
                "created": int(card.created or 0),
                "owned_by": "headway",
                "root": card.root or card.id,
                "parent": card.parent,
                "max_model_len": entry.max_prompt_tokens,
            }
            for card in (own, *others)
        ]


def _of_model(served_model: str, cards: tuple[ModelCard, ...]) -> Iterator[ModelCard]:
    """Yield the engine's cards of the served model, its aliases, and its adapters."""
    own = next((card for card in cards if card.id == served_model), None)
    if own is None:
        return
    yield own
    if own.parent is not None:
        return
    for card in cards:
        if card.parent is not None:
            if card.owned_by != _SGLANG:
                yield card
        elif card.root is not None and card.root == own.root and card is not own:
            yield card
