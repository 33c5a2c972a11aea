"""Gateway processes that share one pool over a local bus, with engines and callers in the test's loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from typing_extensions import override

from bench.live.loopback_ports import free_port
from gateway.bus.follower_bus import subscribe_to_gateways
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.fleet_sample import TOPIC, FleetSample, PoolRole, decode_sample
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from kvstore.keys.keyring import Keyring
from routing.chain.ownership import ASKS, OWNER
from routing.values.decision import ALONE
from tests.gateway.scripted_engine import ScriptedEngine
from tests.patience import PATIENCE_S, until
from tests.private_redis import private_bus

SECRET = "a secret of gateways that share a pool"
KEY = "hw_key_of_gateways_that_share_a_pool"
MODEL = "tiny"
STAYS = "stays"


class Engine(ScriptedEngine):
    """Record the id of each request; a request with the marker text waits for `goes_on`."""

    @property
    def ids(self) -> list[str]:
        """Return the decision ids of all requests."""
        return [headers["x-request-id"] for headers in self.headers]

    @override
    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if STAYS in body["messages"][0]["content"]:
            await self.goes_on.wait()
        return await super()._answer(request, body)


class LeavingError(Exception):
    """The gateway drains and has not begun with the request."""


class Gateways:
    """The processes by name, their published samples, and the responses to callers."""

    def __init__(self, directory: Path, bus_url: str, engines: list[Engine], session: aiohttp.ClientSession) -> None:
        self.engines = engines
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.answered: list[str] = []
        """Decision ids of whole answers."""
        self.samples: dict[str, FleetSample] = {}
        """The last word of each gateway."""
        self.received_s: dict[str, float] = {}
        self.bus = RedisBus(bus_url, Keyring.of(SECRET.encode()))
        self._unsubscribe: Callable[[], None] = lambda: None
        self._directory, self._bus_url, self._session = directory, bus_url, session
        self._urls: dict[str, str] = {}

    def follow(self, keyring: Keyring | None = None) -> None:
        """Collect the samples of all gateways; with a keyring, as another process with that secret."""
        if keyring is not None:
            self._unsubscribe()
            self.bus.close()
            self.bus = RedisBus(self._bus_url, keyring)
        loop = asyncio.get_running_loop()
        self._unsubscribe = subscribe_to_gateways(
            self.bus, TOPIC, lambda *sample: loop.call_soon_threadsafe(self.receive, *sample) and None
        )

    def close(self) -> None:
        """Leave the bus."""
        self._unsubscribe()
        self.bus.close()

    def start(self, name: str, **variables: str) -> None:
        """Start a gateway with these environment variables."""
        port = free_port()
        self._urls[name] = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "HEADWAY_FLEET_SECRET": SECRET, "REDIS_URL": self._bus_url, **variables}
        command = [sys.executable, "-m", "gateway", "--name", name, "--port", str(port)]
        command += ["--state-dir", str(self._directory / name)]
        with self._log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=log)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a gateway; wait for its end after SIGKILL."""
        self.processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[name].wait()

    def receive(self, name: str, value: bytes) -> None:
        """Store the sample of a gateway."""
        self.samples[name] = decode_sample(value)
        self.received_s[name] = time.monotonic()

    def role(self, name: str) -> PoolRole | None:
        """Return a gateway's last reported role for the pool."""
        sample = self.samples.get(name)
        return sample.pools[0].roles[0] if sample is not None and sample.pools and sample.pools[0].roles else None

    def owned(self, names: str, after: int = 0) -> tuple[str, int] | None:
        """Return the owner and an epoch above `after` on which all of these agree, or None."""
        roles = {name: role for name in names if (role := self.role(name)) is not None and role.epoch > after}
        owners = [name for name, role in roles.items() if role.role == OWNER]
        asking = [name for name, role in roles.items() if role.role == ASKS]
        agree = len({role.epoch for role in roles.values()}) == 1 and len(owners) == 1
        return (owners[0], roles[owners[0]].epoch) if agree and len(asking) == len(names) - 1 else None

    async def owner(self, names: str, after: int = 0) -> tuple[str, int]:
        """Return the owner and its epoch once all of these agree."""
        await self.until(lambda: self.owned(names, after) is not None)
        owned = self.owned(names, after)
        assert owned is not None
        return owned

    def in_flight(self, names: str) -> int:
        """Return the owner's last reported number of dispatched requests, or -1 without agreement on an owner."""
        owned = self.owned(names)
        return -1 if owned is None else sum(engine.running for engine in self.samples[owned[0]].engines)

    def roles_logged(self, name: str) -> list[tuple[str, int]]:
        """Return the roles that a gateway took, each with the epoch known at that time."""
        return [(role, epoch) for role, _owner, epoch in self._pool_owners(name)]

    def check_epochs(self) -> None:
        """Raise AssertionError if a gateway forgot an epoch, or owned the pool under an epoch that it knew as
        another's.

        Two that have not met yet may choose the same number; their tags order them.
        """
        for name in self.processes:
            owners: dict[int, set[str]] = {}
            for role, owner, epoch in self._pool_owners(name):
                assert epoch >= max(owners, default=0), (name, epoch, owners)
                owners.setdefault(epoch, set()).update({owner} - {""})
                assert role != OWNER or owners[epoch] == {name}, (name, epoch, owners)

    def _pool_owners(self, name: str) -> list[tuple[str, str, int]]:
        return [(line["role"], line["owner"], line["epoch"]) for line in self.events(name, "pool_owner")]

    def check_requests(self) -> None:
        """Raise AssertionError unless each request reached one engine once and was answered."""
        reached = Counter(name for engine in self.engines for name in engine.ids)
        assert set(reached.values()) == {1}
        assert sorted(reached) == sorted(self.answered)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once the condition holds."""
        try:
            await until(holds)
        except TimeoutError:
            said = {name: (self.role(name), self.received_s.get(name)) for name in self.processes}
            raise AssertionError(f"never; last said at {time.monotonic():.1f}: {said}, {self.bus.state}") from None

    async def ready(self, name: str) -> None:
        """Return when a gateway serves."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with self._session.get(f"{self._urls[name]}/ready") as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(0.05)

    async def chat(self, name: str, text: str) -> str:
        """Send a request to a gateway and return its decision id; a request rejected as busy (429) is sent again."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": f"Bearer {KEY}"}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                url = f"{self._urls[name]}/v1/chat/completions"
                async with self._session.post(url, json=body, headers=headers) as answer:
                    said = await answer.text()
                    if answer.status != 429:
                        break
                await asyncio.sleep(0.2)
        if answer.status == 503 and json.loads(said)["error"]["code"] == "shutting_down":
            raise LeavingError(name)
        assert (answer.status, "Hello" in said) == (200, True), said
        decision_id = answer.headers["x-headway-decision"]
        self.answered.append(decision_id)
        return decision_id

    async def decided_by(self, name: str, decision_id: str) -> str:
        """Return the gateway that chose the engine, according to a gateway's explanation."""
        headers = {"authorization": f"Bearer {KEY}"}
        async with self._session.get(f"{self._urls[name]}/api/v1/explain/{decision_id}", headers=headers) as answer:
            assert answer.status == 200
            decided_by: str = (await answer.json())["decision"].get("decided_by", "")
        return decided_by

    async def asks_owner(self, name: str, after: int) -> None:
        """Send requests to a gateway until an owner of a later epoch has decided one, or it is that owner itself."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                role = self.role(name)
                if role is not None and role.role == OWNER and role.epoch > after:
                    return
                said = await self.decided_by(name, await self.chat(name, "who decides?"))
                if said not in ("", ALONE) and int(said.rpartition(" ")[2]) > after:
                    return

    @asynccontextmanager
    async def callers(self, names: str, per_gateway: int = 3) -> AsyncIterator[None]:
        """Send requests to these gateways during the block, this many at a time each; every one must be answered."""
        stop = asyncio.Event()

        async def calling(name: str, number: int) -> None:
            count = 0
            while not stop.is_set():
                count += 1
                await self.chat(name, f"question {count} of caller {number} at {name}")

        tasks = [asyncio.create_task(calling(name, number)) for name in names for number in range(per_gateway)]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """Return a gateway's log events of this name."""
        lines = [json.loads(line) for line in self._log(name).read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def post(self, name: str, path: str, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
        """Send a call to a gateway and return the response."""
        headers = {"authorization": f"Bearer {KEY}", **headers}
        async with self._session.post(f"{self._urls[name]}{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


@asynccontextmanager
async def gateway_processes(directory: Path, names: str) -> AsyncIterator[Gateways]:
    """Run gateways with these names and two engines; yield when one gateway owns the pool."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(private_bus())
        engines = [await stack.enter_async_context(Engine()) for _ in range(2)]
        unlimited = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=unlimited))
        gateways = Gateways(directory, server.url, engines, session)
        stack.callback(gateways.close)
        gateways.bus.publish(SNAPSHOT_TOPIC, encode_snapshot(_snapshot([engine.url for engine in engines])))
        gateways.follow()
        try:
            for name in names:
                gateways.start(name)
            for name in names:
                await gateways.ready(name)
            await gateways.owner(names)
            yield gateways
            gateways.check_epochs()
        finally:
            for process in gateways.processes.values():
                process.kill()
                process.wait()


def _snapshot(urls: list[str]) -> Snapshot:
    key = ApiKeyEntry(
        key_id="k", sha256=hashlib.sha256(KEY.encode()).hexdigest(), tenant_id="t", scopes=("infer", "route", "manage")
    )
    pool = PoolEntry(pool_id="pool", name="pool", region="here", served_model=MODEL, key_source="approximate")
    engines = [
        EngineEntry(engine_id=f"e{number}", name=f"e{number}", pool_id="pool", url=url)
        for number, url in enumerate(urls)
    ]
    return Snapshot(version=1, published_at=0.0, pools=(pool,), engines=tuple(engines), api_keys=(key,))
