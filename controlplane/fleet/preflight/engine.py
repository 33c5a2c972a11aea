"""Preflight calls to an engine that the gateway does not use: sizes, event sockets, and one short completion."""

from __future__ import annotations

import contextlib
from typing import TypeVar

import msgspec

from controlplane.fleet.preflight.events import sources_at_usual_ports
from gateway.pools.engines.engine_metrics import EngineMetrics
from gateway.pools.engines.health_probe import EngineAnswerError
from gateway.pools.engines.vllm_adapter import MAX_INFO_BYTES, KvEventSource, VllmAdapter
from routing.values.prepared_struct import prepared

COMPLETION_S = 12.0
"""Time limit of the probe completion. An engine that takes longer is too busy to be judged."""
MAX_COMPLETION_BYTES = 256 << 10

Wanted = TypeVar("Wanted")


class ServerInfo(msgspec.Struct, frozen=True):
    """SGLang's arguments, as reported by the engine. Its pages correspond to blocks."""

    page_size: int | None = None
    dp_size: int = 1
    max_total_num_tokens: int | None = None
    kv_events_config: str | None = None
    disaggregation_mode: str | None = None
    """prefill, decode, or null: the engine's role."""
    version: str = ""


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class TestCompletion(msgspec.Struct, frozen=True):
    """The part of a completion about the prompt. Its text is ignored."""

    usage: _Usage | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Return the number of prompt tokens that the engine reports; None if it reports none."""
        return self.usage.prompt_tokens if self.usage else None

    @property
    def reports_cached_tokens(self) -> bool:
        """Return whether the engine reports the number of cached prompt tokens."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return details is not None and details.cached_tokens is not None


class EngineUnderTest(VllmAdapter):
    """One engine before it serves. Calls raise EngineUnreachableError or EngineAnswerError."""

    async def sizes(self) -> tuple[EngineMetrics | None, ServerInfo | None]:
        """Return sizes from the metrics or, because SGLang's metrics have other names, from SGLang's arguments."""
        metrics = None
        with contextlib.suppress(EngineAnswerError):
            metrics = await self.full_metrics()
        if metrics is not None and metrics.block_size is not None:
            return metrics, None
        for path in ("/server_info", "/get_server_info"):
            if (info := await self.optional_answer(path, ServerInfo)) and info.page_size:
                return metrics, info
        return metrics, None

    async def event_sources(self, ranks: int) -> tuple[tuple[KvEventSource, ...], bool]:
        """Return the event sockets by rank, and whether the engine reports them. If not, try the usual ports."""
        reported = await self.kv_event_sources()
        if reported is not None:
            return reported, True
        return await sources_at_usual_ports(self.url, ranks), False

    async def optional_answer(self, path: str, kind: type[Wanted]) -> Wanted | None:
        """Return the response at an optional path; None if the engine does not have it."""
        try:
            return _decode(await self._get(path, path, limit=MAX_INFO_BYTES), kind, path)
        except EngineAnswerError:
            return None

    async def complete(self, prompt: str) -> TestCompletion:
        """Make the engine prefill the prompt by generating one token or, if it cannot generate, by embedding the
        prompt.
        """
        answer = await self._prefill(prompt, "completions", timeout_s=COMPLETION_S, limit=MAX_COMPLETION_BYTES)
        return _decode(answer, TestCompletion, "completions")


def _decode(answer: bytes, kind: type[Wanted], what: str) -> Wanted:
    try:
        return msgspec.json.decode(answer, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EngineAnswerError(f"{what} returned an unexpected answer") from None
