"""The demo's node managers are created once, share its engines, and keep their secrets hidden."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.loopback_ports import engine_ports
from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.models.api_key import ApiKey
from controlplane.project.first_run import seed as first_run
from controlplane.project.first_run.demo_fleet import engine_children
from controlplane.project.first_run.demo_nodes import node_children, node_ports, seed_demo_nodes, seed_node_key
from controlplane.project.first_run.secrets import FirstRunSecrets, secrets_of
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
PORTS_FROM = 18640


@pytest.fixture
def secrets(tmp_path: Path, bus: Bus) -> FirstRunSecrets:
    made = first_run.refilled(secrets_of(tmp_path), demo=True)
    first_run.seed(made, demo=True)
    return made


def seeded() -> tuple[list[Engine], list[KvNode]]:
    engines = first_run.seed_demo_pool(ports_from=PORTS_FROM)
    return engines, seed_demo_nodes(engines, ports_from=PORTS_FROM)


def test_two_nodes_share_the_engines_and_keep_their_addresses(secrets: FirstRunSecrets) -> None:
    engines, nodes = seeded()
    assert [node.name for node in nodes] == ["kv-1", "kv-2"]
    assert [engine.kv_node for engine in engines] == ["kv-1", "kv-2"] * 4
    ports = [port for item in engines for port in engine_ports(item)] + [p for node in nodes for p in node_ports(node)]
    assert len(set(ports)) == 8 * 3 + 2 * 3
    again = seeded()[1]
    assert [node_ports(node) for node in again] == [node_ports(node) for node in nodes]


def test_engine_detached_from_its_node_by_an_operator_stays_detached(secrets: FirstRunSecrets) -> None:
    engines, _ = seeded()
    change_engine(engines[0], {"kv_node": ""}, actor=first_run.ACTOR)
    engines, _ = seeded()
    assert engines[0].kv_node == ""
    argv = engine_children(engines, "secret of the tests")[0].argv
    assert "--kv-node" not in argv


def test_node_whose_port_is_in_use_moves_and_its_engines_follow(secrets: FirstRunSecrets) -> None:
    engines, nodes = seeded()
    with socket.socket() as other:
        other.bind(("127.0.0.1", node_ports(nodes[0])[0]))
        other.listen()
        moved = seeded()[1]
    assert not set(node_ports(moved[0])) & set(node_ports(nodes[0]))
    assert node_ports(moved[1]) == node_ports(nodes[1])
    argv = engine_children(engines, "secret of the tests")[0].argv
    assert argv[argv.index("--kv-node") + 1] == moved[0].address


def test_secrets_are_only_in_the_environment_and_the_key_permits_what_nodes_need(
    secrets: FirstRunSecrets, tmp_path: Path
) -> None:
    seed_node_key(secrets)
    seed_node_key(secrets)
    key = ApiKey.objects.get(name="KV nodes")
    assert (key.scopes, key.role, key.pools) == (["manage"], "operator", ["*"])
    engines, nodes = seeded()
    specs = [
        *node_children(nodes, secrets, tmp_path, "http://127.0.0.1:8000"),
        *engine_children(engines, secrets.kv_environment),
    ]
    for spec in specs:
        assert spec.env["HEADWAY_KV_SECRET"] == secrets.kv_secret
        assert not any(secrets.kv_secret in word or secrets.kv_api_key in word for word in spec.argv)


def test_without_the_secret_engines_use_no_node(secrets: FirstRunSecrets) -> None:
    engines, _ = seeded()
    assert not any("--kv-node" in spec.argv or spec.env for spec in engine_children(engines))
