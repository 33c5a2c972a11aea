"""Rotation of the fleet secret and the KV secret in real gateway processes and a node manager, under load.

Each step restarts all processes one by one, as a rolling restart does. No step rejects a request, a link between
gateways, a connection to the node, an advisory token, or a message on the bus.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from kvstore.keys.keyring import KV, Keyring
from kvstore.transfer.connection import PeerError
from kvstore.transfer.transfer_client import TransferClient, Wanted
from routing.values.decision import ALONE, OTHER_KEYS
from tests.gateway.peers.owners.owner_processes import MODEL, SECRET, Gateways, LeavingError, gateway_processes
from tests.kvstore.kv_blocks import block, key
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.thorough]
ROOT = Path(__file__).resolve().parents[3]
OLD, NEW = SECRET, "the secret after the rotation of this test"
KV_OLD, KV_NEW = "the secret of nodes before the rotation", "the secret of nodes after the rotation"
STEPS = ((OLD, NEW, KV_OLD, KV_NEW), (NEW, OLD, KV_NEW, KV_OLD), (NEW, "", KV_NEW, ""))
"""The secrets that a process uses and also accepts in each step: install, use, finish."""
TOKENS, ADVISORIES, ROUTE = "/api/v1/advisory_tokens", "/api/v1/advisories", "/api/v1/route"


class Node:
    """A node manager process on one directory, and a client that uses it as an engine's connector does."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{self._port}"

    def start(self, secret: str, also: str) -> None:
        """Start the node manager in place of a running one."""
        self.stop()
        command = [sys.executable, "manage.py", "node", "--port", str(self._port), "--dram-mib", "1", "--ssd-mib", "1"]
        command += ["--slot-kib", "4", "--directory", str(self._directory), "--drain-s", "5"]
        environment = {**os.environ, "HEADWAY_KV_SECRET": secret, "HEADWAY_KV_SECRET_ALSO": also}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment)

    def stop(self) -> None:
        """Drain the node manager and wait for its end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(PATIENCE_S) == 0
            self._process = None

    def use(self, secret: str, also: str, name: str) -> None:
        """Store and read a block as a client with these secrets; wait while the node starts."""
        client = TransferClient(Keyring.of(secret.encode(), also.encode(), KV), time.monotonic)
        until = time.monotonic() + PATIENCE_S
        try:
            while True:
                try:
                    client.put(self.address, [block(name)])
                    break
                except PeerError as error:
                    # The node is still starting; an error about a secret would be a rejection.
                    assert "secret" not in str(error)
                    assert "closed" not in str(error), "the node rejects the client"
                    assert time.monotonic() < until, error
                    time.sleep(0.1)
            (stored,) = client.get([self.address], [Wanted(key(name))]).blocks
            assert stored is not None
        finally:
            client.close()


class Rolling:
    """Gateways behind a balancer that sends new requests to serving gateways."""

    def __init__(self, gateways: Gateways) -> None:
        self.gateways = gateways
        self.serving = ["a", "b"]
        self.sent = 0

    @asynccontextmanager
    async def callers(self, count: int = 4) -> AsyncIterator[None]:
        """Send requests for the block, and assert that each gets a response."""
        stop = asyncio.Event()

        async def calling(number: int) -> None:
            while not stop.is_set():
                self.sent += 1
                question = f"question {self.sent} of caller {number}"
                try:
                    await self.gateways.chat(self.serving[self.sent % len(self.serving)], question)
                except LeavingError:
                    # On its way when its gateway began to drain: balancers send it to the next one.
                    await self.gateways.chat(self.serving[(self.sent + 1) % len(self.serving)], question)

        tasks = [asyncio.create_task(calling(number)) for number in range(count)]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def replace(self, old: str, new: str, secret: str, also: str) -> None:
        """Start a gateway with these secrets in place of another one, which drains."""
        gateways = self.gateways
        gateways.start(new, HEADWAY_FLEET_SECRET=secret, HEADWAY_FLEET_SECRET_ALSO=also)
        await gateways.ready(new)
        self.serving = [new if item == old else item for item in self.serving]
        gateways.signal(old, signal.SIGTERM)
        assert await asyncio.to_thread(gateways.processes[old].wait, PATIENCE_S) == 0
        await gateways.owner("".join(self.serving))

    async def token(self, name: str) -> str:
        """Return an advisory token of a gateway."""
        status, made = await self.gateways.post(name, TOKENS, {"session_id": "s", "model": MODEL})
        assert status == 201, made
        return str(made["token"])

    async def check(self, tokens: list[str], step: str) -> None:
        """Assert that the serving gateways share advisory tokens and decisions."""
        gateways, (one, other) = self.gateways, self.serving
        for token in tokens:
            for name in self.serving:
                status, answer = await gateways.post(name, ADVISORIES, {"token": token}, authorization="")
                assert status == 202, (step, answer)
        # The gateway that gets a repeated request returns the first decision.
        asked = {"model": MODEL, "prompt": "a prompt for a decision"}
        answers = [
            await gateways.post(name, ROUTE, asked, **{"x-request-id": f"job-{one}-{other}"}) for name in (one, other)
        ]
        assert [status for status, _ in answers] == [200, 200], answers
        assert len({answer["decision_id"] for _, answer in answers}) == 1, step
        await gateways.post(one, f"/api/v1/requests/{answers[0][1]['decision_id']}/cancel", {})


async def decided_by(gateways: Gateways, names: list[str]) -> dict[str, str]:
    """Return the decider of each gateway's requests once no gateway decides alone."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            said = {
                name: await gateways.decided_by(name, await gateways.chat(name, f"who decides for {name}?"))
                for name in names
            }
            if ALONE not in said.values():
                return said
            await asyncio.sleep(0.2)


async def test_secret_rotation_under_load_rejects_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path / "kv")
    node.start(KV_OLD, "")
    try:
        async with gateway_processes(tmp_path, "ab") as gateways:
            rolling = Rolling(gateways)
            names = iter("cdefgh")
            await asyncio.to_thread(node.use, KV_OLD, "", "before")
            connector = (KV_OLD, "")
            async with rolling.callers():
                for secret, also, kv_secret, kv_also in STEPS:
                    tokens = [await rolling.token(name) for name in rolling.serving]
                    gateways.follow(Keyring.of(secret.encode(), also.encode()))
                    node.start(kv_secret, kv_also)
                    await asyncio.to_thread(node.use, *connector, f"by {connector}")
                    for count, old in enumerate(tuple(rolling.serving)):
                        step = f"{old} to {secret[:14]}"
                        await rolling.replace(old, next(names), secret, also)
                        await rolling.check(tokens if also else [], step)
                        said = await decided_by(gateways, rolling.serving)
                        # Halfway through the second step, the gateways use different secrets.
                        differ = (secret, also, count) == (NEW, OLD, 0)
                        assert sum(item.endswith(OTHER_KEYS) for item in said.values()) == differ, (step, said)
                    connector = (kv_secret, kv_also)
                    await asyncio.to_thread(node.use, *connector, f"by {connector}")
            gateways.check_requests()
            assert rolling.sent > 20
            for name in "abcdefgh":
                for event in ("peer_rejected", "bus_message_rejected", "peer_message_rejected", "crashed"):
                    assert gateways.events(name, event) == [], name
            # A block that was stored before the rotation is readable with the new secret.
            await asyncio.to_thread(node.use, KV_NEW, "", "before")
            with pytest.raises(AssertionError):
                await asyncio.to_thread(node.use, KV_OLD, "", "too late")
    finally:
        node.stop()
