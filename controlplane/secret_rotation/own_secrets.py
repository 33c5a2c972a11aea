"""The secrets of this process: its responses to queries, and the reference for other processes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from django.conf import settings

from controlplane.platform.bus import fleet_keyring, get_bus, keyring_of
from controlplane.secret_rotation.holders import Holder
from gateway.bus.secret_answers import SecretAnswers
from kvstore.keys.held_secrets import held_secrets
from kvstore.keys.keyring import SESSIONS, Keyring


def session_keyring() -> Keyring:
    """Return the keys that sign console sessions."""
    also = settings.SECRET_KEY_FALLBACKS[0] if settings.SECRET_KEY_FALLBACKS else ""
    return keyring_of(settings.SECRET_KEY.encode(), also.encode(), SESSIONS)


def answer_questions(role: str, keyrings: Sequence[Keyring]) -> None:
    """Subscribe to queries about this process's secrets and respond. `role` is the kind of process."""
    SecretAnswers(get_bus(), role, f"{socket.gethostname()}:{os.getpid()}", keyrings, time.time)


def own_secrets(kv: Keyring | None = None) -> list[Holder]:
    """Return this process's secrets. `kv` contains the nodes' secrets, if known."""
    keyrings = [fleet_keyring(), session_keyring(), *([kv] if kv is not None else [])]
    return [Holder("this process", "", held_secrets(keyring)) for keyring in keyrings]
