"""What `manage.py connect` does with one engine: asks, shows, stores, and follows the preflight."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.db import connections

from controlplane.fleet.connect.address import engine_address, facts_at, may_be_asked
from controlplane.fleet.connect.connection import Connection, Wishes, make_connection, plan_connection, targets
from controlplane.fleet.connect.refusal import ConnectRefusedError
from controlplane.fleet.connect.words import fact_lines, made_words
from controlplane.fleet.engine_url import CheckedUrl, RejectedUrlError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.preflight.job import preflight
from controlplane.fleet.preflight.lifecycle import Preflight, preflight_of
from controlplane.fleet.preflight.steps import FAILED, PENDING, SKIPPED
from controlplane.platform.actor import command
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.one_line import one_line

ACTOR = command("connect")
LOOK_S = 0.2
LONGEST_S = 240.0
"""A preflight has seven bounded steps; one that somebody else holds may have to wait for its lease."""
_SIGNS = {FAILED: "✗", SKIPPED: "–"}


class Connecting:
    """One run of the command. Mutable state: `engines`, those that serve."""

    def __init__(self, out: OutputWrapper, *, yes: bool, options: Mapping[str, Any]) -> None:
        self.engines: list[Engine] = []
        self._out = out
        self._yes = yes
        self._wishes = Wishes(options["pool"], options["region"], options["key_env"], options["approximate"])

    def connect(self, url: str) -> bool:
        """Connect the engine, or all its ranks, and return whether it serves.

        Raises ConnectRefusedError, CommandError.
        """
        address = engine_address(url)
        consented = not may_be_asked(address)
        if consented:
            self._require_consent(address)
        facts = facts_at(address, pool=self._wishes.pool, key_variable=self._wishes.key_variable)
        for line in fact_lines(facts):
            self.say(line)
        made: list[tuple[Engine, Connection]] = []
        for told, place in targets(facts, address):
            plan = plan_connection(told, place, self._wishes)
            if plan.networks and not consented:
                # Another pool may have engines there; that says nothing of this pool's prompts.
                self._require_consent(address)
                consented = True
            made.append((_made(plan), plan))
            self.say(made_words(plan))
        served = [self._serves(engine, plan) for engine, plan in made]
        return all(served)

    def say(self, text: str) -> None:
        """Write a line; what engines say of themselves moves no cursor."""
        self._out.write(f"  {one_line(text)}")

    def _require_consent(self, address: CheckedUrl) -> None:
        """Ask whether the address may be sent prompts; raises ConnectRefusedError unless somebody says yes."""
        what = f"Allow {', '.join(address.addresses)}? Prompts and the engine key are sent there."
        if self._yes:
            self._out.write(f"  {what} Yes (--yes).")
            return
        if not sys.stdin.isatty():
            raise ConnectRefusedError(f"{what} Nobody can be asked here.", "Repeat with --yes.")
        self._out.write(f"  {what} [y/N] ", ending="")
        self._out.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConnectRefusedError("The address is not allowed.", "Nothing was asked or stored.")

    def _serves(self, engine: Engine, plan: Connection) -> bool:
        seen = self._followed(engine)
        if seen.state != "passed":
            failure = seen.failure
            remedy = failure.remedy if failure else f"{seen.remark or 'It did not end in time'}. Connect it again."
            self.say(f"→ {remedy}")
            return False
        engine.refresh_from_db()
        if engine.desired_state != DesiredState.READY:
            self.say(f"✗ {seen.remark}")
            return False
        self.engines.append(engine)
        self._out.write("  Routing exactly." if plan.exact else "  Routing by estimated hits.")
        return True

    def _followed(self, engine: Engine) -> Preflight:
        """Tell each step of the preflight as it is decided, whoever takes it: we, or the server that runs beside us."""
        ours = threading.Thread(target=_take_preflights, name="preflight", daemon=True)
        ours.start()
        told: set[str] = set()
        until_s = time.monotonic() + LONGEST_S
        while True:
            seen = preflight_of(engine)
            if seen is None:
                raise CommandError(f"{engine.name} was deleted meanwhile.")
            for step in seen.steps:
                if step.state != PENDING and step.key not in told:
                    told.add(step.key)
                    self.say(f"{_SIGNS.get(step.state, '✓')} {step.sentence or f'{step.name}: not checked'}")
            self._out.flush()
            if not seen.unfinished or time.monotonic() > until_s:
                return seen
            time.sleep(LOOK_S)


def _made(plan: Connection) -> Engine:
    try:
        return make_connection(plan, actor=ACTOR)
    except RejectedUrlError as error:
        raise ConnectRefusedError(f"The engine names a socket that may not be used: {error}.", _OTHER_SOCKET) from None
    except InvalidFieldsError as error:
        first = error.problems[0]
        raise ConnectRefusedError(f"{first.path}: {first.message}", "Put it right and connect again.") from None


def _take_preflights() -> None:
    try:
        preflight()
    finally:
        connections.close_all()


_OTHER_SOCKET = "Have it name an address of its own in --kv-events-config, such as tcp://*:5557."
