"""Real engines, each with our KV connector and a node manager, behind a gateway that orders loads of their blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.live.loopback_ports import free_ports
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.kv_move import TOPIC, KvMoveRow, decode_orders
from gateway.contracts.snapshot import KvNodeEntry, Snapshot, encode_snapshot
from gateway.contracts.stored_decision import StoredDecision
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.reports.decision_recorder import current_decision
from kvstore.keys.keyring import KV, Keyring
from kvstore.transfer.shared_secret import NodeAccess
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from tests.gateway.served_gateway import CHAT, ServedGateway, served, snapshot
from tests.patience import until
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL, RealEngine, while_running
from tests.vllm.stored_blocks import SECRET, StoreProcess
from tests.vllm.storing_engine import storing_engine

DEAR = PrefillCostDocument(base_s=0.0, per_token_s=0.01, per_token_squared_s=0.0)
"""Costs at which computing is so slow that loading pays."""
LOADING = RoutingPolicy(placement=Stage(name="mooncake"), prefill_cost=DEAR)


class Node:
    """A node manager that reports its blocks, and the engine that stores its blocks there."""

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.name = name
        events, replay = free_ports(2)
        self.store = StoreProcess(directory, "--name", name, "--events-port", str(events), "--replay-port", str(replay))
        self.entry = KvNodeEntry(
            name=name,
            address=self.store.address,
            events_endpoint=f"tcp://127.0.0.1:{events}",
            replay_endpoint=f"tcp://127.0.0.1:{replay}",
            slot_bytes=64 << 10,
        )
        self.engine: RealEngine = storing_engine(self.store, log)


@contextmanager
def running_nodes(folder: Path, log: Path) -> Iterator[list[Node]]:
    """Run two nodes with one engine each; `log` is the prefix of their logs' names."""
    made = [Node(name, folder / name, log.with_name(f"{log.name}-{name}.log")) for name in ("a", "b")]
    for item in made:
        item.store.directory.mkdir()
    with ExitStack() as stack:
        for item in made:
            stack.callback(item.store.close)
            item.store.start()
        stack.enter_context(while_running([item.engine for item in made]))
        yield made


class Fleet:
    """A gateway over both engines. Mutable: its current snapshot, and the newest row of each order by its id."""

    def __init__(self, gateway: ServedGateway, first: Snapshot, bus: InProcessBus) -> None:
        self.gateway, self._snapshot, self._bus = gateway, first, bus
        self.orders: dict[str, KvMoveRow] = {}
        bus.subscribe(TOPIC, self._receive)

    async def only(self, engine_id: str) -> None:
        """Let only this engine serve."""
        engines = tuple(
            msgspec.structs.replace(engine, desired_state="ready" if engine.engine_id == engine_id else "draining")
            for engine in self._snapshot.engines
        )
        version = self._snapshot.version + 1
        self._snapshot = msgspec.structs.replace(self._snapshot, version=version, engines=engines)
        self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(self._snapshot))
        await until(lambda: self.gateway.pool.accepting == {engine_id})

    async def ask(self, text: str, **fields: Any) -> tuple[dict[str, Any], StoredDecision]:
        """Return the response and the record of one chat."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0}
        status, answer, headers = await self.gateway.post(CHAT, {**body, "ignore_eos": True, **fields})
        assert status == 200, answer
        record = self.gateway.app.recent.get(headers["x-headway-decision"])
        assert record is not None
        return answer, current_decision(record)

    def node_blocks(self, name: str) -> float:
        """Return the number of a node's blocks known to the gateway."""
        return float(self.gateway.gateway.metrics.kv_node_blocks._values.get((name,), -1.0))

    def _receive(self, _topic: str, value: bytes) -> None:
        self.orders |= {row.order_id: row for row in decode_orders(value)}


@asynccontextmanager
async def serving(nodes: Sequence[Node], state_dir: Path, policy: RoutingPolicy = LOADING) -> AsyncIterator[Fleet]:
    """Serve engine-0 with node a and engine-1 with node b, and yield when the gateway knows all their blocks."""
    bus = InProcessBus()
    settings = GatewaySettings(probe_interval_s=0.1, kv_access=NodeAccess(Keyring.of(SECRET.encode(), kind=KV)))
    plain = snapshot([item.engine.url for item in nodes], policy=policy, block_tokens=BLOCK_TOKENS)
    engines = tuple(
        msgspec.structs.replace(
            entry, kv_node=node.name, kv_events_endpoint=node.engine.events, kv_replay_endpoint=node.engine.replay
        )
        for entry, node in zip(plain.engines, nodes, strict=True)
    )
    first = msgspec.structs.replace(plain, engines=engines, kv_nodes=tuple(item.entry for item in nodes))
    async with served([], state_dir, bus=bus, gateway_settings=settings) as gateway:
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(first))
        await until(lambda: "pool" in gateway.gateway.pools and len(gateway.pool.accepting) == len(nodes))
        await until(lambda: all(engine.trust.grade == "exact" for engine in gateway.pool.engines.values()))
        await until(lambda: all(gateway.gateway.kv_nodes.holdings.is_readable(item.name) for item in nodes))
        yield Fleet(gateway, first, bus)
