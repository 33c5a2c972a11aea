"""`manage.py replay`: runs simulator.replay with the key, model, or recordings of this installation.

Works without Django unless a recording is named.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from controlplane.platform.environment import state_directory
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, SERVED_MODEL
from controlplane.project.first_run.secrets import FILE_NAME, UnsafeSecretsError, read_secrets
from kvstore.transfer.tls import is_loopback


def main(argv: Sequence[str], prog: str) -> int:
    """Replay a trace against a gateway, and return the exit status."""
    from simulator.replay.__main__ import main as replay

    argv = with_recording(argv)
    lend_key(argv)
    return replay(with_model(argv), prog)


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from simulator.replay.__main__ import parser as replay_parser

    return replay_parser(prog)


def lend_key(argv: Sequence[str]) -> None:
    """Put the first run's key into the environment if none is set and the target is on this machine."""
    path = state_directory() / FILE_NAME
    given = os.environ.get(API_KEY_VARIABLE) or _value_of("--api-key", argv)
    if given or not path.exists() or not _is_local(argv):
        return
    try:
        os.environ[API_KEY_VARIABLE] = read_secrets(path).api_key
    except UnsafeSecretsError as error:
        raise SystemExit(f"replay: {error}") from error


def with_model(argv: Sequence[str]) -> list[str]:
    """Return the arguments, with the demo's model if the target is local and no model is named."""
    named = _value_of("--model", argv) is not None
    return list(argv) if named or not _is_local(argv) else [*argv, "--model", SERVED_MODEL]


def with_recording(argv: Sequence[str]) -> list[str]:
    """Return the arguments with the id of a recording replaced by its file. Exits if the id is unknown."""
    index = _index_of_trace(argv)
    if index is None or not (argv[index].isascii() and argv[index].isdecimal()) or Path(argv[index]).exists():
        return list(argv)
    import django

    django.setup()
    from controlplane.request_log.models.recording import Recording
    from controlplane.request_log.recordings.kept_traces import RecordingGoneError, recording_store

    recording = Recording.objects.filter(pk=int(argv[index][:18])).first()
    if recording is None:
        raise SystemExit(f"replay: no recording {argv[index]}; the console lists them under Trials")
    try:
        path = recording_store().path(recording.key)
    except RecordingGoneError as error:
        raise SystemExit(f"replay: {error}") from error
    return [*argv[:index], str(path), *argv[index + 1 :]]


def _index_of_trace(argv: Sequence[str]) -> int | None:
    """Return the index of the argument that names the trace; None if there is none."""
    from simulator.replay.replay_options import add_arguments

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_arguments(parser)
    mark = "\0the trace"
    for index, argument in enumerate(argv):
        if argument.startswith("-"):
            continue
        try:
            marked = parser.parse_known_args([*argv[:index], mark, *argv[index + 1 :]])[0]
        except (argparse.ArgumentError, argparse.ArgumentTypeError, ValueError, SystemExit):
            continue
        if marked.trace == mark:
            return index
    return None


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
