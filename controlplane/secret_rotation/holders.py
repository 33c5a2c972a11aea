"""The holders of each secret, from the responses of all running processes and the last reports of KV nodes."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from typing_extensions import override

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.bus.questions import Questions
from gateway.bus.secret_answers import ANSWER, ANSWERED, ASKED, QUESTION, SecretAnswer, SecretQuestion
from kvstore.keys.held_secrets import HeldSecrets, SecretUse
from routing.values.prepared_struct import prepared

WAIT_S = 2.0
NODE = "KV node"


@dataclass(frozen=True, slots=True)
class Holder:
    """One process and its secrets of one kind, as fingerprints."""

    role: str
    """gateway, web, jobs, worker, supervisor, or KV node."""
    name: str
    secrets: HeldSecrets
    started_at: float | None = None
    """Unix seconds; None: not reported."""

    def accepts(self, fingerprint: str) -> bool:
        """Return whether the process accepts this secret."""
        return fingerprint in (self.secrets.used, self.secrets.also)

    @override
    def __str__(self) -> str:
        return f"{self.role} {self.name}"


@dataclass(frozen=True, slots=True)
class Holders:
    """All known holders."""

    known: tuple[Holder, ...]
    silent: tuple[str, ...] = ()
    """Sentences about processes that did not report their secrets."""

    def of(self, kind: str) -> list[Holder]:
        """Return the holders of a secret of this kind."""
        return [item for item in self.known if item.secrets.kind == kind]


class HolderQuestions:
    """Queries all processes on the bus. Thread-safe."""

    def __init__(self, bus: Bus, wait_s: float = WAIT_S) -> None:
        self._bus = bus
        self._questions: Questions[SecretAnswer] = Questions(bus, ASKED, ANSWERED, ANSWER, wait_s)

    def holders(self) -> Holders:
        """Return the current holders."""
        question = SecretQuestion(secrets.token_hex(8), self._questions.asker)
        came = self._questions.ask(question.question_id, QUESTION.encode(question))
        silent = []
        if not self._bus.connected:
            silent.append("The bus is away, so no process can be asked.")
        elif len(came.answers) < came.asked:
            silent.append(f"{came.asked - len(came.answers)} of {came.asked} processes did not answer.")
        answered = [
            Holder(answer.role, answer.name, held, answer.started_at)
            for answer in came.answers
            for held in answer.secrets
        ]
        nodes, more = _nodes()
        return Holders(tuple(sorted([*answered, *nodes], key=str)), (*silent, *more))


@functools.cache
def holder_questions() -> HolderQuestions:
    """Return this process's HolderQuestions, which receives responses from the first call."""
    return HolderQuestions(get_bus())


def _nodes() -> tuple[list[Holder], list[str]]:
    known, silent = list[Holder](), list[str]()
    for node in KvNode.objects.exclude(state=KvNodeState.GONE).select_related("report"):
        held = node.report.content.get("secrets") if hasattr(node, "report") else None
        if node.state not in LIVE or held is None:
            silent.append(f"KV node {node.name} does not report its secret.")
        else:
            known.append(Holder(NODE, node.name, msgspec.convert(held, prepared(HeldSecrets))))
    return known, silent


def newest(uses: Iterable[SecretUse]) -> Sequence[SecretUse]:
    """Return the accepted uses of the other secret, newest first."""
    return sorted(uses, key=lambda use: (-use.newest_at, use.purpose))
