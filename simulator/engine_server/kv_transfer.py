"""Transfers of prompts from the engine that computed them to the engine that decodes: sender and receiver.

The sender holds a prompt until it is fetched or its hold time expires. The receiver requests it over HTTP (vLLM uses
its side channel) and has it once the link has delivered it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote

from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.engine_runtime import EngineRuntime
from simulator.engine_server.request_bodies import KvTransferParams

Fault = Literal["", "fail", "hang", "lose"]
"""Deliberate faults of hand-offs: fail at once, never end, or lose the held blocks."""

PATH = "/kv_transfer/"
ROOM = "room-"
"""Prefix of prompt names that are rooms: numbers on which two SGLang engines agreed beforehand."""


class KvTransfer:
    """One engine's transfers. Mutable state: `fault`, the timers of held prompts, and SGLang's rooms."""

    def __init__(self, runtime: EngineRuntime) -> None:
        self.fault: Fault = runtime.settings.handoff_fault
        self._runtime = runtime
        self._settings = runtime.settings
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._rooms: dict[str, asyncio.Future[str]] = {}

    def check(self, asked: KvTransferParams) -> None:
        """Raise EngineApiError if the engine's role forbids the transfer, or if hand-offs fail deliberately."""
        role = self._settings.role
        if asked.do_remote_prefill and role == "prefill":
            raise EngineApiError(
                400, "this engine only prefills; send the decode leg to a decode engine", "kv_transfer_params"
            )
        if asked.do_remote_decode and role == "decode":
            raise EngineApiError(
                400, "this engine only decodes; send the prefill leg to a prefill engine", "kv_transfer_params"
            )
        if self.fault == "fail" and (asked.do_remote_decode or asked.do_remote_prefill):
            raise EngineApiError(500, "the hand-off fails, as this engine was told")

    def met(self, host: str | None, port: int | None, room: int | None) -> KvTransferParams | None:
        """Return SGLang's bootstrap fields as vLLM's parameters; None if they request no transfer.

        Raises EngineApiError if a field is missing.
        """
        if self._settings.flavor != "sglang" or self._settings.role == "mixed" or room is None:
            return None
        if host is None or port is None:
            raise EngineApiError(400, "bootstrap_room needs bootstrap_host and bootstrap_port", "bootstrap_host")
        if self._settings.role == "prefill":
            return KvTransferParams(do_remote_decode=True, remote_request_id=f"{ROOM}{room}")
        return KvTransferParams(
            do_remote_prefill=True, remote_host=host, remote_port=port, remote_request_id=f"{ROOM}{room}"
        )

    async def stall(self) -> None:
        """Return at once, or never if hand-offs hang deliberately."""
        if self.fault == "hang":
            await asyncio.Event().wait()

    # -- the sending end

    def offer(self, request_id: str, room: int | None = None) -> KvTransferParams | None:
        """Return what the decode engine needs to fetch a computed prompt; None if none is held or it waits in a
        room.
        """
        held = self._runtime.model.held(request_id)
        if held is None:
            return None
        if self.fault == "lose":
            self._runtime.let_go(request_id)
        else:
            later = asyncio.get_running_loop().call_later
            self._timers[request_id] = later(self._settings.hold_s, self._expire, request_id)
        if room is not None:
            if not (meeting := self._room(f"{ROOM}{room}")).done():
                meeting.set_result(request_id)
            return None
        return KvTransferParams(
            do_remote_prefill=True,
            remote_engine_id=f"{self._settings.host}:{self._settings.port}",
            remote_request_id=request_id,
            remote_host=self._settings.host,
            remote_port=self._settings.port,
            # From 1 on: block 0 is vLLM's null block.
            remote_block_ids=[list(range(1, len(held.keys) + 1))],
            remote_num_tokens=held.prompt_tokens,
            remote_prefill_cached_tokens=held.cached_tokens,
            tp_size=1,
        )

    async def give(self, request_id: str) -> int:
        """Return a prompt's tokens once the link has delivered them; raise EngineApiError 404 if it is not held."""
        await self.stall()
        if request_id.startswith(ROOM):
            room = request_id
            try:
                async with asyncio.timeout(self._settings.hold_s):
                    # A timeout here must not cancel the future that the other end is to resolve.
                    request_id = await asyncio.shield(self._room(room))
            except TimeoutError:
                raise EngineApiError(404, "nobody came to this room in time") from None
            finally:
                self._rooms.pop(room, None)
        held = self._runtime.model.held(request_id)
        if held is None:
            raise EngineApiError(404, "no such prompt is held; it was fetched, given up after its time, or lost")
        await self._runtime.until(held.ready_s)
        self._forget(request_id)
        if not self._runtime.let_go(request_id):
            raise EngineApiError(404, "the prompt was given up while it was on its way")
        return held.prompt_tokens

    def _room(self, name: str) -> asyncio.Future[str]:
        """Return the future for a room's computed prompt, regardless of which side asks first."""
        if name not in self._rooms:
            self._rooms[name] = asyncio.get_running_loop().create_future()
            # A room that only one end enters must not stay for good.
            asyncio.get_running_loop().call_later(2 * self._settings.hold_s, self._rooms.pop, name, None)
        return self._rooms[name]

    def _expire(self, request_id: str) -> None:
        self._forget(request_id)
        if self._runtime.let_go(request_id):
            self._runtime.metrics.kv_expired.inc()

    def _forget(self, request_id: str) -> None:
        timer = self._timers.pop(request_id, None)
        if timer is not None:
            timer.cancel()

    # -- the receiving end

    async def fetch(self, params: KvTransferParams) -> None:
        """Return when the prompt has arrived. Raise EngineApiError 400 for a forbidden address, 500 for a failure."""
        host, port, name = params.remote_host, params.remote_port, params.remote_request_id
        if host is None or port is None or name is None or not self._may_reach(host):
            raise EngineApiError(
                400, "kv_transfer_params name no engine that this one may fetch from", "kv_transfer_params"
            )
        await self.stall()
        started = time.monotonic()
        try:
            # In a room the prompt may still have to be computed.
            limit_s = self._settings.hold_s if name.startswith(ROOM) else self._settings.fetch_timeout_s
            async with asyncio.timeout(limit_s):
                await _ask(host, port, PATH + quote(name, safe=""))
        except (TimeoutError, OSError, EOFError) as error:
            self._runtime.metrics.failed_transfers.inc()
            # As vLLM does while its kv_load_failure_policy is `fail`.
            raise EngineApiError(500, f"the prompt's KV did not come: {type(error).__name__}") from error
        self._runtime.metrics.transfer_time.observe(time.monotonic() - started)

    def _may_reach(self, host: str) -> bool:
        """Return whether an address in a request is allowed: this host or loopback."""
        # Requests name the address, and clients must not direct this engine to any other host.
        if host == self._settings.host:
            return True
        with contextlib.suppress(ValueError):
            return ip_address(host).is_loopback
        return False

    def close(self) -> None:
        """Cancel the timers."""
        for request_id in list(self._timers):
            self._forget(request_id)


async def _ask(host: str, port: int, path: str) -> None:
    """Return when the other engine reports the prompt as delivered; raise OSError for any other response.

    Uses a plain socket without a library, because an HTTP client takes longer to start than an engine.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        writer.write(head.encode("latin-1", "replace"))
        status = (await reader.readline()).split(b" ")[1:2]
    finally:
        writer.close()
    if status != [b"200"]:
        raise OSError(f"status {b''.join(status).decode('latin-1')}")
