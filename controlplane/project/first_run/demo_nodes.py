"""The demo's node managers: their database rows, their assignment to engines, and the start of their processes.

The demo's payloads are smaller than a real model's, and links are scaled equally. Therefore transfers on any machine
take as long as in a real fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import getpid
from pathlib import Path
from typing import Any

from django.db import transaction

from controlplane.access.api_keys import adopt_api_key
from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.loopback_ports import LOOPBACK, engine_ports, engine_url, free_ports, is_free
from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.kv_nodes.simulated_scale import RATIO
from controlplane.platform import recorded_change
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, TENANT
from controlplane.project.first_run.secrets import FirstRunSecrets
from controlplane.project.processes import child_program
from controlplane.project.processes.child_process import ChildSpec, python

NODES = ("kv-1", "kv-2")
_SLOT_KIB, _DRAM_MIB, _SSD_MIB = 32, 64, 256
"""A slot holds a block of 512 tokens with BYTES_PER_TOKEN. A node holds as many blocks as four engines."""
_PULL_MIB_S = 12.5e9 / RATIO / (1 << 20)
"""Limit of transfers between nodes: the simulated engines' links of 100 Gbit/s, scaled like the payloads."""
_PORTS = 3
_ACTOR = program("first run")


def seed_node_key(secrets: FirstRunSecrets) -> None:
    """Create the API key with which the demo's nodes register, unless it exists."""
    if ApiKey.objects.filter(sha256=hash_api_key(secrets.kv_api_key)).exists():
        return
    tenant = Tenant.objects.get(slug=TENANT)
    where: dict[str, Any] = {"role": Role.OPERATOR, "pools": (ALL_POOLS,)}
    adopt_api_key(tenant, "KV nodes", secrets.kv_api_key, actor=_ACTOR, scopes=("manage",), **where)


def seed_demo_nodes(engines: Iterable[Engine], *, ports_from: int) -> list[KvNode]:
    """Create the nodes unless they exist, and return them. Engines without a node are assigned to new nodes.

    Ports are stored. If another program uses a port by now, the node moves to free ports.
    """
    known = {node.name: node for node in KvNode.objects.filter(name__in=NODES)}
    engines = list(engines)
    taken = {port for node in known.values() for port in node_ports(node)}
    taken |= {port for engine in engines for port in engine_ports(engine)}
    with transaction.atomic():
        for name in NODES:
            node = known.get(name)
            if node is not None and all(is_free(port) for port in node_ports(node)):
                continue
            ports = free_ports(_PORTS, start=ports_from, taken=taken)
            taken |= set(ports)
            if node is None:
                made = recorded_change.create(KvNode(name=name, **_addresses(ports)), "kv_node.register", actor=_ACTOR)
                known[name] = made
                continue
            recorded_change.change(
                node, _addresses(ports), "kv_node.change", actor=_ACTOR, why="Another program uses a port of this node"
            )
        if not Engine.objects.filter(kv_node__in=NODES).exists():
            for number, engine in enumerate(engines):
                change_engine(engine, {"kv_node": NODES[number % len(NODES)]}, actor=_ACTOR, why="Created at the start")
    return [known[name] for name in NODES]


def node_ports(node: KvNode) -> tuple[int, ...]:
    """Return the ports of a demo node: transfers, events, and replay."""
    addresses = (node.address, node.events_endpoint, node.replay_endpoint)
    return tuple(int(address.rsplit(":", 1)[1]) for address in addresses)


def node_children(nodes: Iterable[KvNode], secrets: FirstRunSecrets, state_dir: Path, url: str) -> list[ChildSpec]:
    """Return the child specs of the nodes, which register at the console's address `url`."""
    return [_child(node, secrets, state_dir, url) for node in nodes]


def _child(node: KvNode, secrets: FirstRunSecrets, state_dir: Path, url: str) -> ChildSpec:
    port, events, replay = node_ports(node)
    argv = [
        *python(child_program.__name__),
        child_program.KV_NODE,
        str(getpid()),
        *("--name", node.name, "--port", str(port), "--events-port", str(events), "--replay-port", str(replay)),
        *("--slot-kib", str(_SLOT_KIB), "--dram-mib", str(_DRAM_MIB), "--ssd-mib", str(_SSD_MIB)),
        *("--directory", str(state_dir / "kv" / node.name)),
        *("--register", f"{url}/api/v1/kv_nodes", "--drain-s", "1", "--pull-mib-s", f"{_PULL_MIB_S:.2f}"),
    ]
    return ChildSpec(node.name, tuple(argv), env={**secrets.kv_environment, API_KEY_VARIABLE: secrets.kv_api_key})


def _addresses(ports: list[int]) -> dict[str, str]:
    port, events, replay = ports
    return {
        "address": f"{LOOPBACK}:{port}",
        "events_endpoint": engine_url("tcp", events),
        "replay_endpoint": engine_url("tcp", replay),
    }
