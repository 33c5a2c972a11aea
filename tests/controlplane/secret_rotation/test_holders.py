"""Processes that report their secrets, and the content of their reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from django.utils import timezone

from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeReport, KvNodeState
from controlplane.secret_rotation.holders import NODE, HolderQuestions
from gateway.bus.redis_bus import RedisBus
from gateway.bus.secret_answers import ANSWER, ANSWERED, ASKED, SecretAnswers
from kvstore.keys.keyring import FLEET, KV, Keyring, stretched
from kvstore.node.node_manager import NodeManager
from kvstore.node.node_reporting import report_of
from tests.kvstore.kv_blocks import node
from tests.patience import PATIENCE_S, wait_until
from tests.private_redis import patient_bus, private_bus

pytestmark = pytest.mark.django_db
SECRETS = b"the secret before", b"the secret after"


@contextmanager
def buses(count: int) -> Iterator[list[RedisBus]]:
    with private_bus() as server:
        made = [patient_bus(server.url, Keyring.of(*SECRETS)) for _ in range(count)]
        wait_until(lambda: all(item.connected for item in made))
        try:
            yield made
        finally:
            for item in made:
                item.close()


def test_all_processes_report_fingerprints_and_accepted_secrets() -> None:
    keyring = Keyring.of(*SECRETS, wall=lambda: 70.0)
    with buses(3) as (one, other, asking):
        SecretAnswers(one, "gateway", "a:8000", [keyring, Keyring.of(b"of nodes", kind=KV)], lambda: 50.0)
        SecretAnswers(other, "jobs", "b:7", [Keyring.of(SECRETS[1]), None], lambda: 60.0)
        keys = keyring.keys("bus messages")
        keys.matching(lambda key: key != keys.used, "gateways/b")
        raw: list[bytes] = []
        questions = HolderQuestions(asking, PATIENCE_S)
        asking.subscribe(ANSWERED + questions._questions.asker, lambda _topic, value: raw.append(value))
        holders = questions.holders()
        assert holders.silent == ()
        assert [(str(item), item.secrets.kind, item.started_at) for item in holders.known] == [
            ("gateway a:8000", FLEET, 50.0), ("gateway a:8000", KV, 50.0), ("jobs b:7", FLEET, 60.0),
        ]  # fmt: skip
        old, new = (stretched(item).fingerprint for item in SECRETS)
        first, last = holders.of(FLEET)
        assert (first.secrets.used, first.secrets.also, last.secrets.used, last.secrets.also) == (old, new, new, "")
        (use,) = first.secrets.uses
        assert (use.purpose, use.count, use.newest_at, use.who) == ("bus messages", 1, 70.0, "gateways/b")
        assert not any(secret in item for item in raw for secret in SECRETS)


def test_process_without_a_response_is_counted() -> None:
    with buses(2) as (silent, asking):
        silent.subscribe(ASKED, lambda *_: None)
        SecretAnswers(asking, "web", "a:1", [Keyring.of(*SECRETS)], lambda: 0.0)
        holders = HolderQuestions(asking, 0.3).holders()
        assert [str(item) for item in holders.known] == ["web a:1"]
        assert holders.silent == ("1 of 2 processes did not answer.",)


def test_without_a_bus_no_process_is_known_and_this_is_reported() -> None:
    bus = RedisBus("redis://127.0.0.1:1/0", Keyring.of(*SECRETS))
    try:
        assert HolderQuestions(bus, PATIENCE_S).holders().silent == ("The bus is away, so no process can be asked.",)
    finally:
        bus.close()


def test_invalid_query_gets_no_response() -> None:
    with buses(2) as (answering, asking):
        answers: list[bytes] = []
        asking.subscribe(ANSWERED, lambda _topic, value: answers.append(value))
        SecretAnswers(answering, "web", "a:1", [Keyring.of(*SECRETS)], lambda: 0.0)
        assert asking.notify(ASKED, b"no question").result(PATIENCE_S) == 1
        assert len(HolderQuestions(asking, PATIENCE_S).holders().known) == 1
        wait_until(lambda: len(answers) == 1)
        assert ANSWER.decode(answers[0]).name == "a:1"


def reported(manager: NodeManager, keyring: Keyring) -> dict[str, object]:
    report = report_of(manager.store, manager.server, manager.write_through, keyring)
    return dict(msgspec.to_builtins(report))


def test_nodes_are_known_by_their_last_report_and_missing_ones_are_named() -> None:
    keyring = Keyring.of(*SECRETS, kind=KV)
    with node(keyring=keyring) as manager, buses(1) as (asking,):
        content = reported(manager, keyring)
        for name, state, said in (
            ("kv-1", KvNodeState.SERVING, content),
            ("kv-2", KvNodeState.SILENT, content),
            ("kv-3", KvNodeState.SERVING, {**content, "secrets": None}),
            ("kv-4", KvNodeState.GONE, content),
        ):
            made = KvNode.objects.create(name=name, address="127.0.0.1:1", state=state)
            KvNodeReport.objects.create(node=made, received_at=timezone.now(), content=said)
        KvNode.objects.create(name="kv-5", address="127.0.0.1:1", state=KvNodeState.SERVING)
        holders = HolderQuestions(asking, PATIENCE_S).holders()
    (known,) = holders.known
    assert (str(known), known.secrets.used) == (f"{NODE} kv-1", keyring.used.fingerprint)
    assert holders.silent == tuple(f"KV node {name} does not report its secret." for name in ("kv-2", "kv-3", "kv-5"))
