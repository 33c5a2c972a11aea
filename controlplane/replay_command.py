"""`manage.py replay`: simulator.replay with what this installation's demo needs. Works without Django."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from controlplane.demo_names import API_KEY_VARIABLE, SERVED_MODEL
from controlplane.environment import state_directory
from controlplane.first_run_secrets import FILE_NAME, UnsafeSecretsError, read_secrets
from controlplane.welcome import is_loopback


def main(argv: Sequence[str]) -> int:
    """Replay a trace against a gateway and return the exit status."""
    from simulator.replay import main as replay

    lend_key(argv)
    return replay(with_model(argv))


def lend_key(argv: Sequence[str]) -> None:
    """Put the first run's key into the environment, for a target on this machine only and when none is given."""
    path = state_directory() / FILE_NAME
    given = os.environ.get(API_KEY_VARIABLE) or _value_of("--api-key", argv)
    if given or not path.exists() or not _is_local(argv):
        return
    try:
        os.environ[API_KEY_VARIABLE] = read_secrets(path).api_key
    except UnsafeSecretsError as error:
        raise SystemExit(f"replay: {error}") from error


def with_model(argv: Sequence[str]) -> list[str]:
    """Return the arguments, asking for the demo's model where the target is local and no model is named."""
    named = _value_of("--model", argv) is not None
    return list(argv) if named or not _is_local(argv) else [*argv, "--model", SERVED_MODEL]


def _is_local(argv: Sequence[str]) -> bool:
    target = _value_of("--target", argv)
    return target is None or is_loopback(urlsplit(target).hostname or "")


def _value_of(name: str, argv: Sequence[str]) -> str | None:
    value = None
    for option, following in itertools.pairwise([*argv, ""]):
        if option == name:
            value = following
        elif option.startswith(f"{name}="):
            value = option.removeprefix(f"{name}=")
    return value
