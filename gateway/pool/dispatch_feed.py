"""Infers the contents of engines without KV events from our own dispatches, for the pool's router.

For prompts with media it does so at every engine: block keys after the first medium are guesses, of which events
confirm only the media.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gateway.base.event_log import log_event
from gateway.events.event_ledger import EXACT
from kvstore.index.prefix_index import ENTRY_BYTES as INDEX_BYTES
from kvstore.index.tenant_blocks import ENTRY_BYTES as TENANT_BYTES
from kvstore.index.tenant_blocks import TenantBlocks
from routing.values.observation import Failed, Observation

if TYPE_CHECKING:
    from gateway.base.settings import GatewaySettings
    from gateway.engines.live_engine import LiveEngine
    from gateway.events.kv_event_intake import KvEventIntake
    from routing.router import Router
    from routing.values.decision import Decision
    from routing.values.inference_request import InferenceRequest

_TURN_BLOCKS = 8192
"""Blocks stored in one event loop step, which takes about 5 ms."""


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """The engine of a request, and the blocks that its prefill leaves there."""

    engine_id: str
    incarnation: int
    keys: tuple[int, ...]
    tenant_id: str = ""
    salted: bool = False
    """Whether the engine stores these blocks under a cache salt."""
    guessed: bool = False
    """Whether the engine's events name only some of these blocks."""


class DispatchedKeys:
    """Request id → Dispatch until its first token, at most `limit`; the oldest are dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._dispatches: OrderedDict[str, Dispatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._dispatches)

    def add(self, request_id: str, dispatch: Dispatch) -> None:
        """Add a dispatched request."""
        self._dispatches[request_id] = dispatch
        if len(self._dispatches) > self._limit:
            self._dispatches.popitem(last=False)

    def take(self, request_id: str) -> Dispatch | None:
        """Remove and return a request's dispatch, None if it is unknown or was removed."""
        return self._dispatches.pop(request_id, None)

    def clear(self) -> None:
        """Clear everything, for example after the meaning of a pool's keys changed."""
        self._dispatches.clear()


class DispatchFeed:
    """Feeds the index by dispatches. Mutable: `feeds_any`, running dispatches, blocks brought by each tenant, and a
    count of clearings.
    """

    def __init__(
        self,
        router: Router,
        engines: Mapping[str, LiveEngine],
        settings: GatewaySettings,
        *,
        feeds: Callable[[LiveEngine], bool],
        refresh: Callable[[], None],
    ) -> None:
        self.feeds_any = False
        """Whether dispatches feed the index part of any engine."""
        self._router = router
        self._engines = engines
        self._feeds = feeds
        """Returns whether dispatches feed this engine's part of the index."""
        self._refresh = refresh
        self._dispatched = DispatchedKeys(settings.max_dispatched)
        self._cleared = 0
        self._blocks = TenantBlocks(max(1, settings.index_max_bytes // (INDEX_BYTES + TENANT_BYTES)))

    def dispatched(self, decision: Decision, request: InferenceRequest) -> None:
        """Store where the request goes, if the blocks that it leaves there may have to be inferred."""
        # The events have to name the salt of a salted prompt that is new to its engine.
        salted = request.proves_salts
        if self.feeds_any or request.guessed or (salted and not decision.hit_tokens):
            where = decision.engine_id, decision.incarnation
            dispatch = Dispatch(*where, request.keys, request.tenant_id, salted, request.guessed)
            self._dispatched.add(request.request_id, dispatch)

    def observed(self, observation: Observation) -> None:
        """Store the blocks of a request after its prompt was computed."""
        dispatch = self._dispatched.take(observation.request_id) if self._dispatched else None
        if dispatch is None or isinstance(observation, Failed):
            return
        engine = self._engines.get(dispatch.engine_id)
        if engine is None or engine.incarnation != dispatch.incarnation:
            return
        intake = engine.intake
        if dispatch.salted and dispatch.keys and intake is not None and intake.trust.grade == EXACT:
            self._check_salts(engine, intake)
        self._store(dispatch, len(dispatch.keys), self._cleared)

    def _store(self, dispatch: Dispatch, end: int, cleared: int) -> None:
        """Store the blocks before `end`, last first as the index requires. Many blocks take several loop steps."""
        engine = self._engines.get(dispatch.engine_id)
        if engine is None or engine.incarnation != dispatch.incarnation or cleared != self._cleared:
            return
        if dispatch.guessed or self._feeds(engine):
            start = max(0, end - _TURN_BLOCKS)
            keys = dispatch.keys[start:end]
            self._router.blocks_stored(dispatch.engine_id, keys)
            if end == len(dispatch.keys):
                self._router.fleet.keep_tail(dispatch.engine_id, keys)
            self._router.index.drop(self._blocks.touch(dispatch.tenant_id, keys))
            if start:
                asyncio.get_running_loop().call_soon(self._store, dispatch, start, cleared)

    def clear(self) -> None:
        """Clear everything, for example after the meaning of the keys changed."""
        self._cleared += 1
        self._dispatched.clear()
        self._blocks.clear()

    def _check_salts(self, engine: LiveEngine, intake: KvEventIntake) -> None:
        """Feed the engine's part of the index by dispatches while its events name no salts, else by its events."""
        if not engine.salts_seen.note(intake.ledger.counts["salted"]):
            return
        log_event("salts_in_events", engine=engine.entry.engine_id, missing=engine.salts_seen.missing)
        self._router.blocks_cleared(engine.entry.engine_id)
        if not engine.salts_seen.missing:
            intake.resync()
        self._refresh()
