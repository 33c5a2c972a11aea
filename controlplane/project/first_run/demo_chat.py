"""The demo's example chat: its address, which is an origin of the demo's API key, and the start of its process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from os import getpid

from controlplane.access.api_keys import change_api_key
from controlplane.fleet.loopback_ports import LOOPBACK, engine_ports_in_use, free_ports, is_free
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, SERVED_MODEL
from controlplane.project.first_run.demo_nodes import NODES, node_ports
from controlplane.project.first_run.secrets import FirstRunSecrets
from controlplane.project.processes import child_program
from controlplane.project.processes.child_process import ChildSpec, python

_CHILD = "example-chat"
_ACTOR = program("first run")
_OWN = re.compile(rf"http://{re.escape(LOOPBACK)}:\d+")


def seed_demo_chat(secrets: FirstRunSecrets, *, ports_from: int) -> str:
    """Add the chat's address to the origins of the demo's API key, and return it; empty if the key was deleted.

    The key's origins store the port. If another program uses the port by now, the chat moves to a free one. Origins
    that a person has added are kept.
    """
    key = ApiKey.objects.filter(sha256=hash_api_key(secrets.api_key), revoked_at=None).first()
    if key is None:
        return ""
    known = next((item for item in key.origins if _OWN.fullmatch(item)), "")
    if known and is_free(int(known.rpartition(":")[2])):
        return str(known)
    taken = engine_ports_in_use() | {
        port for node in KvNode.objects.filter(name__in=NODES) for port in node_ports(node)
    }
    (port,) = free_ports(1, start=ports_from, taken=taken)
    origin = f"http://{LOOPBACK}:{port}"
    others = [item for item in key.origins if item != known]
    change_api_key(key, {"origins": [*others, origin]}, actor=_ACTOR, why="Address of the example chat")
    return origin


def chat_children(origin: str, secrets: FirstRunSecrets, url: str) -> list[ChildSpec]:
    """Return the child spec of the chat, if it has an address. The chat calls Headway at `url`."""
    argv = [
        *python(child_program.__name__),
        child_program.EXAMPLE_CHAT,
        str(getpid()),
        *("--gateway", url, "--model", SERVED_MODEL, "--port", origin.rpartition(":")[2]),
    ]
    return [ChildSpec(_CHILD, tuple(argv), env={API_KEY_VARIABLE: secrets.api_key})] if origin else []


def chat_address(children: Iterable[ChildSpec]) -> str:
    """Return the address of the chat among these children; empty without a chat."""
    return next((f"http://{LOOPBACK}:{child.argv[-1]}" for child in children if child.name == _CHILD), "")
