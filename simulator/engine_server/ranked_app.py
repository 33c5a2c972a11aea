"""Several data-parallel ranks behind one address, as vLLM serves them: each has its own cache, queue and event sockets.

Written from vLLM 0.32's sources; it was not compared with a running engine with several ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.engine_server import kv_transfer
from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.app import METRICS_TYPE, EngineApp
from simulator.engine_server.asgi import Receive, Scope, Send, send_bytes, send_json

RANK_HEADER = b"x-data-parallel-rank"


class RankedApp:
    """Routes each request to the rank in its header, or to the least loaded rank. Reports combined load and metrics."""

    def __init__(self, ranks: Sequence[EngineApp]) -> None:
        self._ranks = tuple(ranks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/metrics":
            await send_bytes(send, 200, self._metrics(), METRICS_TYPE)
        elif path == "/load":
            load = sum(rank.runtime.reported_load for rank in self._ranks)
            await send_json(send, 200, {"server_load": load})
        elif path == "/kv_event_sources":
            sources: dict[str, Any] = {}
            for rank in self._ranks:
                sources |= rank.event_sources()
            await send_json(send, 200, sources)
        elif path == "/reset_prefix_cache":
            done = [rank.runtime.reset_cache() for rank in self._ranks]
            await send_json(send, 200, {"success": all(done)})
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = self._chosen(scope)
        except EngineApiError as error:
            await send_json(send, error.status, error.body())
            return
        await app(scope, receive, send)

    def _chosen(self, scope: Scope) -> EngineApp:
        if scope["path"].startswith(kv_transfer.PATH):
            name = scope["path"].removeprefix(kv_transfer.PATH)
            holds = (rank for rank in self._ranks if rank.runtime.model.held(name) is not None)
            # Where no rank holds it, any one gives the right error.
            return next(holds, self._ranks[0])
        headers = dict(scope["headers"]).get(RANK_HEADER)
        if headers is None:
            return min(self._ranks, key=lambda rank: rank.runtime.load)
        if not headers.isdigit() or int(headers) >= len(self._ranks):
            raise EngineApiError(400, f"data_parallel_rank is not one of {len(self._ranks)}", "data_parallel_rank")
        return self._ranks[int(headers)]

    def _metrics(self) -> bytes:
        """Return all series of the first rank, and the series of the others that are not per process."""
        texts = [rank.runtime.reported_metrics() for rank in self._ranks]
        further = [line for text in texts[1:] for line in text.splitlines(keepends=True) if line.startswith(b"vllm:")]
        return texts[0] + b"".join(further)
