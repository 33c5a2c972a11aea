"""The console's question about the secrets that processes hold, and the answers. Answers contain only fingerprints.

Both are bus messages without stored values: a process that is disconnected at that moment never receives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.bus.bus import Bus
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from kvstore.keys.held_secrets import HeldSecrets, held_secrets
from kvstore.keys.keyring import Keyring

ASKED = "secrets/asked"
ANSWERED = "secrets/answered/"
"""Topic prefix of answers, followed by the requester's name."""


class SecretQuestion(msgspec.Struct, frozen=True):
    """Asks every process for the fingerprints of its secrets."""

    question_id: str
    asker: str


class SecretAnswer(msgspec.Struct, frozen=True):
    """Fingerprints of one process's secrets."""

    question_id: str
    role: str
    """gateway, web, jobs, worker, or supervisor."""
    name: str
    started_at: float
    """Unix seconds."""
    secrets: tuple[HeldSecrets, ...] = ()


QUESTION = WireForm(SecretQuestion, "a question for secrets", limit=4096)
ANSWER = WireForm(SecretAnswer, "an answer about secrets", limit=MIB)


class SecretAnswers:
    """Answers questions for one process. It runs in the bus's thread from construction on."""

    def __init__(
        self, bus: Bus, role: str, name: str, keyrings: Sequence[Keyring | None], wall: Callable[[], float]
    ) -> None:
        """`wall` returns unix seconds."""
        self._bus = bus
        self._own = SecretAnswer("", role, name, wall())
        self._keyrings = [keyring for keyring in keyrings if keyring is not None]
        bus.subscribe(ASKED, self._take)

    def _take(self, _topic: str, value: bytes) -> None:
        try:
            question = QUESTION.decode(value)
        except UnreadableMessageError:
            # From a console of another version, which reports this process as silent.
            return
        own = self._own
        answer = SecretAnswer(
            question.question_id, own.role, own.name, own.started_at, tuple(map(held_secrets, self._keyrings))
        )
        self._bus.notify(ANSWERED + question.asker, ANSWER.encode(answer))
