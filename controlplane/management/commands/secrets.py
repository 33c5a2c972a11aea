"""`manage.py secrets`: shows which process uses which secret, and performs the steps of a rotation."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from typing_extensions import override

from controlplane.access.second_factors import encrypt_all_again
from controlplane.access.session_store import sign_all_again
from controlplane.platform import audit
from controlplane.platform.actor import command
from controlplane.platform.bus import bus_url, join_running
from controlplane.platform.environment import PROGRAM
from controlplane.platform.format import ago
from controlplane.project.first_run.secrets import (
    FILE_NAME,
    FirstRunSecrets,
    UnsafeSecretsError,
    keep_secrets,
    read_secrets,
    with_new_installed,
    with_new_used,
    without_others,
)
from controlplane.project.state_lock import holder as holder_of_state
from controlplane.secret_rotation.holders import Holders, holder_questions, newest
from controlplane.secret_rotation.own_secrets import own_secrets
from controlplane.secret_rotation.rotation import Rotation, rotations
from kvstore.keys.keyring import KV, Keyring
from kvstore.transfer.shared_secret import NoSecretError, node_access

_STATUS, _NEXT, _FINISH = "status", "next", "finish"
_HELP = """\
Show which process uses which secret, and rotate secrets without downtime.

A rotation has three steps, each followed by a restart of all processes, one after the other:

  1. install   All processes accept the new secret beside the old one:   …_ALSO=NEW
  2. use       All processes use the new one and accept the old one:     …=NEW  …_ALSO=OLD
  3. finish    No process accepts the old one:                           …_ALSO removed

status   Show all processes with the fingerprints of their secrets, and what still needs the other one.
next     Perform step 1 or 2 if the secrets are in first_run.json; otherwise show the next step and what prevents it.
finish   Check that nothing needs the other secret, and sign open console sessions with the new key. If the secrets
         are in first_run.json, step 3 follows. Exits with 1 if something still needs it; --force ignores that.

Fingerprints identify secrets without revealing them. Secrets are never printed.
"""


class PreventedError(CommandError):
    """A step cannot be performed yet."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("\n".join([*reasons, "Wait, or repeat with --force."]))
        self.reasons = reasons


class Command(BaseCommand):
    """Queries all processes. It changes only `first_run.json`, never the environment."""

    help = _HELP
    requires_system_checks = ()

    @override
    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the help text."""
        from django.core.management.base import DjangoHelpFormatter

        class AsWritten(DjangoHelpFormatter):
            def _fill_text(self, text: str, width: int, indent: str) -> str:
                return "".join(indent + line for line in text.splitlines(keepends=True))

        return super().create_parser(prog_name, subcommand, formatter_class=AsWritten, **kwargs)

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the steps and options."""
        parser.add_argument("step", choices=(_STATUS, _NEXT, _FINISH), nargs="?", default=_STATUS)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--force", action="store_true", help="perform the step even if something prevents it")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Query all processes, and perform the step."""
        # Log lines about the bus connection would clutter the output.
        logger = logging.getLogger("gateway")
        before = logger.level
        logger.setLevel(logging.WARNING)
        try:
            self._take(options)
        finally:
            logger.setLevel(before)

    def _take(self, options: dict[str, Any]) -> None:
        own = _first_run()
        holders, kinds = _asked(own)
        step, forced = options["step"], options["force"]
        if step == _STATUS:
            self._show(holders, kinds, as_json=options["json"])
            return
        if own is not None and own.rotation == ("used" if step == _NEXT else "installed"):
            other = _FINISH if step == _NEXT else _NEXT
            raise CommandError(f"The new secrets are {own.rotation}: run `{PROGRAM} secrets {other}`.")
        try:
            said = self._next(own, kinds, forced) if step == _NEXT else self._finish(own, kinds, forced)
        except PreventedError as error:
            if options["json"]:
                self.stdout.write(json.dumps({"done": False, "prevented_by": error.reasons}))
            raise
        self.stdout.write(json.dumps({"done": True, "next": said}) if options["json"] else said)

    def _next(self, own: FirstRunSecrets | None, kinds: list[Rotation], forced: bool) -> str:
        under_way = [kind for kind in kinds if kind.also]
        if under_way and not forced:
            _reject_for(sentence for item in under_way for sentence in item.not_installed)
        if own is None:
            return _instructions(kinds)
        step, changed = ("installed", with_new_installed(own))
        if own.rotation:
            step, changed = ("used", with_new_used(own))
        _keep(changed, step)
        return (
            f"The new secrets in {settings.STATE_DIR / FILE_NAME} are {step}. Restart `{PROGRAM} up`, then run "
            f"`{PROGRAM} secrets {_NEXT if step == 'installed' else _FINISH}`."
        )

    def _finish(self, own: FirstRunSecrets | None, kinds: list[Rotation], forced: bool) -> str:
        under_way = [kind for kind in kinds if kind.also]
        if not under_way and (own is None or not own.rotation):
            raise CommandError("No process accepts a second secret: no rotation in progress.")
        if not forced:
            _reject_for(sentence for item in under_way for sentence in item.still_needed)
        # Before the old key is removed: sessions that were not used since step 2 would end with it.
        signed = sign_all_again()
        encrypt_all_again()
        said = f"Console sessions signed with the key in use: {signed}. "
        if own is None:
            variables = ", ".join(f"{item.variable}_ALSO" for item in under_way)
            return f"{said}Nothing needs the other secrets. Remove {variables} everywhere, and restart all processes."
        _keep(without_others(own), "finished")
        return f"{said}The old secrets are removed from {settings.STATE_DIR / FILE_NAME}. Restart `{PROGRAM} up`."

    def _show(self, holders: Holders, kinds: list[Rotation], *, as_json: bool) -> None:
        if as_json:
            shown = [{**asdict(kind), "variable": kind.variable, "holders": _plain(kind)} for kind in kinds]
            self.stdout.write(json.dumps({"secrets": shown, "silent": holders.silent}, indent=2))
            return
        now = time.time()
        for kind in kinds:
            also = f", also accepts {kind.also}" if kind.also else ""
            self.stdout.write(f"{kind.variable}: uses {kind.used}{also}")
            for holder in kind.holders:
                held = holder.secrets
                self.stdout.write(f"  {holder.role:<10} {holder.name:<32} uses {held.used}  also {held.also or '–'}")
                for use in newest(held.uses):
                    when = ago(now - use.newest_at)
                    self.stdout.write(
                        f"    by {held.also}: {use.purpose} ({use.count}), newest {when} from {use.who or 'others'}"
                    )
            if kind.also:
                self._list(f"Prevents using {kind.also}", kind.not_installed)
                self._list(f"Prevents accepting {kind.also} no longer", kind.still_needed)
        if not kinds:
            self.stdout.write("No process has answered.")
        for sentence in holders.silent:
            self.stdout.write(sentence)

    def _list(self, title: str, sentences: tuple[str, ...]) -> None:
        self.stdout.write(f"  {title}: {'nothing' if not sentences else ''}".rstrip())
        for sentence in sentences:
            self.stdout.write(f"    - {sentence}")


def _first_run() -> FirstRunSecrets | None:
    """Return the generated secrets; None if all secrets are in the environment."""
    if settings.SECRETS_GIVEN:
        return None
    try:
        return read_secrets(settings.STATE_DIR / FILE_NAME)
    except UnsafeSecretsError as error:
        raise CommandError(str(error)) from error


def _asked(own: FirstRunSecrets | None) -> tuple[Holders, list[Rotation]]:
    """Return the secrets of all processes; empty if the program is not running."""
    is_running = bool(bus_url()) or (holder_of_state(settings.STATE_DIR) is not None and join_running())
    holders = holder_questions().holders() if is_running else Holders(())
    return holders, rotations(holders, own_secrets(_nodes_keyring(own)), time.time())


def _nodes_keyring(own: FirstRunSecrets | None) -> Keyring | None:
    if own is not None and own.kv_secret:
        return Keyring.of(own.kv_secret.encode(), own.kv_secret_also.encode(), KV)
    try:
        return node_access(os.environ).keyring
    except (NoSecretError, ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _reject_for(sentences: Iterable[str]) -> None:
    reasons = list(dict.fromkeys(sentences))
    if reasons:
        raise PreventedError(reasons)


def _instructions(kinds: list[Rotation]) -> str:
    lines = []
    for kind in kinds:
        name = kind.variable
        if not kind.also:
            lines.append(
                f"{name}: no second secret is accepted. Make one (`openssl rand -base64 48`), set {name}_ALSO to it "
                "for every process, and restart them one after the other."
            )
        else:
            lines.append(
                f"{name}: every process accepts {kind.used} and {kind.also}. If {kind.also} is the new one, exchange "
                f"{name} and {name}_ALSO everywhere and restart the processes one after the other. If it is the old "
                f"one, run `{PROGRAM} secrets {_FINISH}`."
            )
    return "\n".join(lines) or "No process has answered."


def _keep(changed: FirstRunSecrets, step: str) -> None:
    """Write the file, and record the step in the audit."""
    with transaction.atomic():
        audit.record(command("secrets"), f"secrets.{step}", "secrets", FILE_NAME)
        # Last: if the file cannot be written, the event is rolled back.
        keep_secrets(settings.STATE_DIR, changed)


def _plain(rotation: Rotation) -> list[dict[str, Any]]:
    return [
        {
            "role": holder.role,
            "name": holder.name,
            "started_at": holder.started_at,
            "used": holder.secrets.used,
            "also": holder.secrets.also,
            "accepted_by_also": [
                {"purpose": use.purpose, "count": use.count, "newest_at": use.newest_at, "who": use.who}
                for use in newest(holder.secrets.uses)
            ],
        }
        for holder in rotation.holders
    ]
