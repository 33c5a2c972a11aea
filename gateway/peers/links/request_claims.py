"""Requests named by their caller: a claim on the bus determines which gateway answers."""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from gateway.bus.bus import Bus, BusAwayError
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.links.peer_calls import PeerCalls, UnknownPeerError
from gateway.server.http.openai_error import ApiError
from kvstore.keys.keyring import Keyring

RECALL = "recall"
RECALL_S = 1.0
"""The gateway that holds a name reports within this many seconds that the request still waits for an engine."""
PENDING = b"pending"
MAX_PENDING = 60
CLAIM_WAIT_S = 1.0


class NamedRequests:
    """Gets the answer that another gateway has given, or is computing, for the same name."""

    def __init__(self, bus: Bus, peers: PeerCalls, keyring: Keyring) -> None:
        self._bus = bus
        self._peers = peers
        self._keys = sorted(keyring.keys("named requests").every)
        """Keys in the same order at all gateways. The first key shared by two gateways decides which claim was
        first.
        """

    async def elsewhere(self, caller: ApiKeyEntry, name: str) -> bytes | None:
        """Return another gateway's answer, None if the name is ours or no other gateway is reachable."""
        named = f"{caller.key_id}\n{name}".encode()
        for key in self._keys:
            claimed = blake2b(named, key=key, digest_size=16).hexdigest()
            answer = await self._answer_under(claimed, caller, name)
            if answer is not None:
                return answer
        return None

    async def _answer_under(self, claimed: str, caller: ApiKeyEntry, name: str) -> bytes | None:
        """Return the answer of the claim's holder, None if the claim is ours or no answer is available."""
        holder = await self._claim(claimed, "")
        for _ in range(MAX_PENDING):
            if holder in ("", self._peers.tag):
                return None
            answer = await self._recall(holder, caller, name)
            if answer == PENDING:
                continue
            if answer:
                return answer
            # It is gone, or its attempt failed: the first to report that replaces it.
            holder = await self._claim(claimed, holder)
        return None

    async def _recall(self, holder: str, caller: ApiKeyEntry, name: str) -> bytes:
        try:
            return await self._peers.ask(holder, RECALL, caller, name)
        except (UnknownPeerError, ApiError):
            # A missing answer must not keep the caller from getting one here.
            return b""

    async def _claim(self, claimed: str, instead_of: str) -> str:
        asked = self._bus.claim(claimed, self._peers.tag, instead_of=instead_of)
        try:
            async with asyncio.timeout(CLAIM_WAIT_S):
                return await asyncio.wrap_future(asked)
        except (BusAwayError, TimeoutError):
            return ""
