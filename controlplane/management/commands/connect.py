"""`manage.py connect URL…`: connects running engines, so that requests are routed to them."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from typing_extensions import override

from controlplane.access.api_keys import create_api_key
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of, rejecting_key
from controlplane.fleet.connect.address import engine_address, facts_at, may_be_asked
from controlplane.fleet.connect.connection import EngineConnection, Wishes, make_connection, plan_connection, targets
from controlplane.fleet.connect.engine_facts import ConnectRejectedError
from controlplane.fleet.connect.words import fact_lines, made_words
from controlplane.fleet.engine_addressing import key_variable
from controlplane.fleet.engine_url import CheckedUrl, RejectedUrlError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.preflight.job import preflight
from controlplane.fleet.preflight.lifecycle import Preflight, preflight_of
from controlplane.fleet.preflight.steps import FAILED, PENDING, SKIPPED
from controlplane.management.first_tenant import tenant_for_key
from controlplane.platform.actor import command
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.format import one_line, some_names
from controlplane.platform.models.api_key import ApiKey
from controlplane.project.checks import OURS
from gateway.base.engine_api_keys import key_remedy

ACTOR = command("connect")
POLL_S = 0.2
LONGEST_S = 240.0
"""Time limit of a preflight: seven bounded steps, and possibly the lease of another process."""
_SIGNS = {FAILED: "✗", SKIPPED: "–"}


class Connecting:
    """One run of the command. Mutable state: `engines`, the engines that serve."""

    def __init__(self, out: OutputWrapper, *, yes: bool, options: Mapping[str, Any]) -> None:
        self.engines: list[Engine] = []
        self._out = out
        self._yes = yes
        self._wishes = Wishes(options["pool"], options["region"], options["key_env"], options["approximate"])

    def connect(self, url: str) -> bool:
        """Connect the engine, or all its ranks, and return whether all of them serve.

        Raises ConnectRejectedError, CommandError.
        """
        address = engine_address(url)
        consented = not may_be_asked(address)
        if consented:
            self._require_consent(address)
        facts = facts_at(address, pool=self._wishes.pool, key_variable=self._wishes.key_variable)
        for line in fact_lines(facts):
            self.say(line)
        made: list[tuple[Engine, EngineConnection]] = []
        for target_facts, target in targets(facts, address):
            plan = plan_connection(target_facts, target, self._wishes)
            if plan.networks and not consented:
                # Another pool may have engines there; that does not cover this pool's prompts.
                self._require_consent(address)
                consented = True
            made.append((_made(plan), plan))
            self.say(made_words(plan))
        served = [self._serves(engine, plan) for engine, plan in made]
        return all(served)

    def say(self, text: str) -> None:
        """Write a line. Control characters in an engine's texts are neutralized."""
        self._out.write(f"  {one_line(text)}")

    def _require_consent(self, address: CheckedUrl) -> None:
        """Ask whether prompts may be sent to the address. Raises ConnectRejectedError unless the user agrees."""
        what = f"Allow {', '.join(address.addresses)}? Headway sends prompts and the engine key there."
        if self._yes:
            self._out.write(f"  {what} Yes (--yes).")
            return
        if not sys.stdin.isatty():
            raise ConnectRejectedError(f"{what} There is no terminal to confirm on.", "Repeat with --yes.")
        self._out.write(f"  {what} [y/N] ", ending="")
        self._out.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConnectRejectedError("The address is not allowed.", "Nothing was sent or stored.")

    def _serves(self, engine: Engine, plan: EngineConnection) -> bool:
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
        """Print each step of the preflight when it is decided, by this process or a running server."""
        ours = threading.Thread(target=_take_preflights, name="preflight", daemon=True)
        ours.start()
        printed: set[str] = set()
        until_s = time.monotonic() + LONGEST_S
        while True:
            seen = preflight_of(engine)
            if seen is None:
                raise CommandError(f"{engine.name} was deleted meanwhile.")
            for step in seen.steps:
                if step.state != PENDING and step.key not in printed:
                    printed.add(step.key)
                    self.say(f"{_SIGNS.get(step.state, '✓')} {step.sentence or f'{step.name}: not checked'}")
            self._out.flush()
            if not seen.unfinished or time.monotonic() > until_s:
                return seen
            time.sleep(POLL_S)


def _made(plan: EngineConnection) -> Engine:
    try:
        return make_connection(plan, actor=ACTOR)
    except RejectedUrlError as error:
        raise ConnectRejectedError(f"The engine names a socket that may not be used: {error}.", _OTHER_SOCKET) from None
    except InvalidFieldsError as error:
        first = error.problems[0]
        raise ConnectRejectedError(f"{first.path}: {first.message}", "Correct it and connect again.") from None


def _take_preflights() -> None:
    try:
        preflight()
    finally:
        # A thread has connections of its own, and Django closes them only after requests.
        connections.close_all()


_OTHER_SOCKET = "Set a reachable address in its --kv-events-config, such as tcp://*:5557."


SERVED_S = 60.0
"""Time limit until the gateway serves the engines. It usually takes a second, but longer on a busy machine."""
_POLL_S = 0.3
_KEY = "$HEADWAY_API_KEY"


def ready_to_ask(out: OutputWrapper, engines: Sequence[Engine], port: int) -> bool:
    """Report whether the gateway serves the engines, create the first API key if necessary, and print a request.

    Returns False if engines reject the running gateway's key. The key of this command was checked before.
    """
    here = Installation(settings.STATE_DIR, "127.0.0.1", port, settings.REDIS_URL, timezone.now())
    missing, rejecting = _missing(here, {engine.engine_id for engine in engines})
    out.write("")
    if missing is None:
        out.write(f"Headway does not answer on port {port}. Start it with `make up`, or name its port with --port.")
    elif rejecting:
        out.write(f"✗ Engines reject the running gateway's key: {some_names(sorted(rejecting), 5)}.")
        first = next(engine for engine in engines if engine.engine_id in rejecting)
        out.write(f"→ {key_remedy(key_variable(first))}")
        return False
    elif missing:
        out.write(f"The gateway does not serve {', '.join(sorted(missing))} yet; see the Engines page.")
    key = _first_key()
    if key and missing is not None:
        _wait_until_known(here, key)
    if key:
        out.write(f"API key (shown once): {key}")
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": engines[0].pool.served_model, "max_tokens": 16, "messages": messages}
    out.write("Ask:")
    out.write(f"  curl -i http://127.0.0.1:{port}/v1/chat/completions \\\n    -H 'Content-Type: application/json' \\")
    bearer = f"'Authorization: Bearer {key}'" if key else f'"Authorization: Bearer {_KEY}"'
    out.write(f"    -H {bearer} \\\n    -d {quote(json.dumps(body))}")
    return True


def _missing(here: Installation, wanted: set[str]) -> tuple[set[str] | None, set[str]]:
    """Wait until the gateway serves all engines or one rejects its key.

    Returns the engines that the gateway's metrics do not report as serving (None: no gateway), and the engines that
    reject its key.
    """
    until_s = time.monotonic() + SERVED_S
    while (metrics := answer_of(here, "/metrics")) is not None:
        missing, rejecting = wanted - _serving(metrics.decode()), wanted & rejecting_key(metrics)
        if not missing or rejecting or time.monotonic() > until_s:
            return missing, rejecting
        time.sleep(_POLL_S)
    return None, set()


def _wait_until_known(here: Installation, key: str) -> None:
    """Wait until the gateway knows the key, so that it accepts the printed request, or until SERVED_S have passed."""
    until_s = time.monotonic() + SERVED_S
    while answer_of(here, "/v1/models", key=key) is None and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def _serving(metrics: str) -> set[str]:
    label_sets = re.findall(r"^headway_engine_state\{([^}]*)\} 1(?:\.0)?$", metrics, re.MULTILINE)
    return {name[1] for labels in label_sets if 'state="serving"' in labels and (name := _ENGINE.search(labels))}


def _first_key() -> str:
    """Create a key if no active key exists, and return its text; empty if a key exists."""
    if ApiKey.objects.filter(revoked_at=None).exists():
        return ""
    actor = command("connect")
    _, text = create_api_key(tenant_for_key("", actor=actor), "connect", actor=actor, scopes=("infer", "route"))
    return text


_ENGINE = re.compile(r'engine="([^"]*)"')


class Command(BaseCommand):
    """Exits with 1 unless every engine serves. Connecting an engine again only checks it."""

    requires_system_checks = OURS
    help = (
        "Connect running vLLM or SGLang engines: detect their settings, create pool and engines, and run the preflight."
    )

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("urls", nargs="+", metavar="URL", help="engine address, such as http://10.0.3.7:8000")
        parser.add_argument("--yes", action="store_true", help="allow the addresses without asking")
        parser.add_argument("--pool", default="", help="slug of the pool (default: the pool that serves the model)")
        parser.add_argument("--region", default="", help="slug of the region of a new pool (default: the only region)")
        parser.add_argument(
            "--key-env", default="", help="environment variable with the engines' key, HEADWAY_ENGINE_KEY_…"
        )
        parser.add_argument(
            "--approximate", action="store_true", help="for a new pool: estimate hits from prompts, without KV events"
        )
        parser.add_argument("--port", type=int, default=8000, help="port of Headway on this machine")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object; everything else goes to standard error"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Connect one engine after another."""
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise CommandError("The database is not prepared. Start Headway first: `make up`.")
        out = self.stderr if options["json"] else self.stdout
        out.style_func = None
        connecting = Connecting(out, yes=options["yes"], options=options)
        failed = [url for url in dict.fromkeys(options["urls"]) if not self._connected(connecting, out, url)]
        ready = not connecting.engines or ready_to_ask(out, connecting.engines, options["port"])
        if options["json"]:
            self.stdout.write(json.dumps(_outcome(connecting.engines, failed, accepted=ready), indent=2))
        if failed or not ready:
            sys.exit(1)

    def _connected(self, connecting: Connecting, out: OutputWrapper, url: str) -> bool:
        out.write(f"\n{url}")
        try:
            return connecting.connect(url)
        except ConnectRejectedError as rejection:
            lines = [f"✗ {rejection.sentence}", f"→ {rejection.remedy}"]
            if rejection.estimable:
                lines.append("→ Or repeat with --approximate: a new pool estimates hits from prompts.")
            if rejection.start_line:
                lines += ["Start command, as far as the engine reports it:", rejection.start_line]
            for line in lines:
                connecting.say(line)
            return False


def _outcome(engines: Sequence[Engine], failed: Sequence[str], *, accepted: bool) -> dict[str, Any]:
    """Return the outcome for programs. `accepted`: the running gateway's key is accepted by the engines."""
    serving = [{"engine_id": one.engine_id, "name": one.name, "pool": one.pool.slug, "url": one.url} for one in engines]
    return {"serving": serving, "failed": list(failed), "gateway_key_accepted": accepted}
