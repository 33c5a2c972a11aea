"""`manage.py up`: starts the whole program with one command."""

from __future__ import annotations

import argparse
import asyncio
import logging.config
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from typing_extensions import override

from controlplane.fleet.engine_lifecycle import record_exit
from controlplane.fleet.loopback_ports import NoFreePortError
from controlplane.management.commands._static_engines import connect_in_background, listed_urls
from controlplane.platform.bus import fleet_keyring, get_bus
from controlplane.platform.environment import BASE_DIR
from controlplane.platform.snapshot_change import TOPIC as SNAPSHOT_TOPIC
from controlplane.project.checks import OURS
from controlplane.project.first_run.demo_chat import chat_address, chat_children, seed_demo_chat
from controlplane.project.first_run.demo_fleet import DemoTraffic, engine_children, replay_child, supervised_children
from controlplane.project.first_run.demo_names import SERVED_MODEL
from controlplane.project.first_run.demo_nodes import node_children, seed_demo_nodes, seed_node_key
from controlplane.project.first_run.demo_regions import NAMES, choose_ports, region_children, seed_demo_regions
from controlplane.project.first_run.secrets import FirstRunSecrets, UnsafeSecretsError, keep_secrets, secrets_of
from controlplane.project.first_run.seed import (
    ADMIN,
    MAX_OF_ROLE,
    refilled,
    seed,
    seed_demo_pool,
    still_valid,
    without_used,
)
from controlplane.project.first_run.welcome import welcome
from controlplane.project.json_log import logging_settings
from controlplane.project.processes.child_process import ChildSpec
from controlplane.project.processes.serving import Serving, SupervisedEngines, local_bus, serve, wait_for_bus
from controlplane.project.processes.sockets import PortTakenError, listen
from controlplane.project.processes.supervisor import Supervisor
from controlplane.project.state_lock import StateInUseError, alone, hold_state
from controlplane.publication.continued_versions import continue_above
from controlplane.secret_rotation.own_secrets import answer_questions
from gateway.base.peer_settings import PeerSettingsError, peer_settings
from gateway.base.settings import GatewaySettings
from gateway.bus.snapshot_store import SnapshotStore
from gateway.server.http.connection_limit import allow_open_files
from gateway.server.process.shutdown import ProcessEnd
from gateway.server.process.tuning import limit_arenas
from kvstore.transfer.tls import is_loopback


class Command(BaseCommand):
    """Runs gateway, web, and jobs. With --demo, also runs simulated engines with replayed traffic."""

    requires_system_checks = OURS
    help = "Run Headway: console, decision API, proxy and jobs; with --demo also a demo fleet."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--demo",
            action=argparse.BooleanOptionalAction,
            default=False,
            help="run simulated engines with replayed traffic; creates a tenant and an API key",
        )
        parser.add_argument("--trace", default="", help="Mooncake JSONL[.gz] to replay (default: a generated one)")
        parser.add_argument("--speed", type=float, help="replay speed relative to the trace, whatever the host")
        parser.add_argument("--prefill", type=int, default=0, help="prefill-only demo engines; requires --decode")
        parser.add_argument("--decode", type=int, default=0, help="decode-only demo engines; requires --prefill")
        parser.add_argument(
            "--regions", type=int, default=0, help="number of demo regions (2 or 3), each with a gateway"
        )
        parser.add_argument(
            "--engines",
            nargs="+",
            default=[],
            metavar="URL",
            help="engines to connect and route to, without further settings; allows their addresses",
        )
        parser.add_argument("--with-parent", action="store_true", help="end when the parent process ends")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the state directory, serve, and stop everything on SIGINT or SIGTERM."""
        if options["with_parent"]:
            from simulator.parent_death import die_with_parent

            die_with_parent(os.getppid())
        if options["trace"] and not Path(options["trace"]).is_file():
            raise CommandError(f"No trace at {options['trace']}.")
        prefill, decode = options["prefill"], options["decode"]
        if min(prefill, decode) < 0 or max(prefill, decode) > MAX_OF_ROLE or (prefill > 0) != (decode > 0):
            raise CommandError(f"--prefill and --decode go together, each from 1 to {MAX_OF_ROLE}.")
        if options["regions"] not in (0, 2, len(NAMES)) or (options["regions"] and not options["demo"]):
            raise CommandError(f"--regions goes with --demo, 2 or {len(NAMES)}.")
        _reject_exposed(options["host"])
        reject_stale_console(BASE_DIR)
        try:
            options["engines"] = listed_urls(options["engines"])
        except ValueError as error:
            raise CommandError(f"--engines: {error}") from error
        try:
            peer_settings(os.environ)
        except (OSError, PeerSettingsError) as error:
            raise CommandError(str(error)) from error
        # The database and logs are for this user only, whatever the mode of a state directory that existed before.
        os.umask(0o077)
        allow_open_files()
        limit_arenas()
        try:
            hold_state(settings.STATE_DIR)
            listener = listen(options["host"], options["port"])
        except (StateInUseError, PortTakenError) as error:
            raise CommandError(str(error)) from error
        log_dir = settings.STATE_DIR / "log"
        supervisor = Supervisor(log_dir, record_exit)
        end = ProcessEnd(settings.DRAIN_S, supervisor.kill)
        with local_bus() as bus:
            # The standard loop: uvloop starts no process groups.
            served = asyncio.run(self._run(options, listener, supervisor, bus, end))
        if not served:
            sys.exit(1)
        if end.status:
            raise CommandError(f"Headway stopped because {end.why}; see {log_dir / 'headway.log'}.")

    async def _run(
        self,
        options: dict[str, Any],
        listener: socket.socket,
        supervisor: Supervisor,
        bus: Sequence[ChildSpec],
        end: ProcessEnd,
    ) -> bool:
        # First: the state is prepared while the bus's server starts.
        supervisor.start(bus)
        try:
            serving = await asyncio.to_thread(self._prepared, options, listener, supervisor)
            end.handle_signals()
            return await serve(serving, end)
        finally:
            await supervisor.stop()

    def _prepared(self, options: dict[str, Any], listener: socket.socket, supervisor: Supervisor) -> Serving:
        """Bring database and secrets up to date, and return what to serve. Raises CommandError."""
        log_dir = settings.STATE_DIR / "log"
        try:
            with alone():
                _migrate_if_needed()
                wait_for_bus()
                secrets = _seeded(demo=options["demo"])
                # Now: no gateway reports its version yet, and changes made until one does would reach none.
                continue_above(_last_known_good())
            children = _demo_children(options) if options["demo"] else []
            kv_environment = secrets.kv_environment if options["demo"] and not options["regions"] else {}
        except (UnsafeSecretsError, NoFreePortError) as error:
            raise CommandError(str(error)) from error
        connection.close()
        logging.config.dictConfig(logging_settings(settings.LOG_LEVEL, log_dir / "headway.log"))
        engines = SupervisedEngines(
            supervisor, lambda: supervised_children(demo=options["demo"], kv_environment=kv_environment)
        )
        # Its children get their secrets from it.
        answer_questions("supervisor", [fleet_keyring()])
        return Serving(
            listener=listener,
            supervisor=supervisor,
            follow_topology=lambda: engines.run(get_bus(), SNAPSHOT_TOPIC),
            children=children,
            # With Redis, `manage.py worker` runs them.
            with_jobs=not settings.REDIS_URL,
            kv_environment=kv_environment,
            on_ready=lambda: self._greet(options, secrets, log_dir, children),
            on_failure=lambda: self.stderr.write(f"The server could not start; see {log_dir}."),
        )

    def _greet(
        self, options: dict[str, Any], secrets: FirstRunSecrets, log_dir: Path, children: Sequence[ChildSpec]
    ) -> None:
        text = welcome(
            url=_base_url(options) + "/",
            user=ADMIN,
            password=secrets.admin_password,
            api_key=secrets.api_key,
            served_model=SERVED_MODEL if options["demo"] else "",
            log_dir=str(log_dir),
            chat=chat_address(children),
            children=children,
            show_secrets=is_loopback(options["host"]),
        )
        self.stdout.write(text)
        self.stdout.flush()
        if options["engines"]:
            connect_in_background(options["engines"], self.stdout, options["port"])


def _reject_exposed(host: str) -> None:
    """Reject an address that other machines can reach if the settings are safe only on this machine."""
    if settings.LOOPBACK_ONLY and not is_loopback(host):
        raise CommandError(
            f"--host {host} admits other machines, but HEADWAY_ALLOWED_HOSTS names only this machine, which allows "
            "cookies without TLS, debug pages and weak secrets. Set HEADWAY_ALLOWED_HOSTS to its public "
            "names (and put TLS in front), or omit --host."
        )


def _seeded(*, demo: bool) -> FirstRunSecrets:
    """Create missing secrets and data, remove unneeded clear-text secrets, and return the secrets that are still valid.

    Checking a password takes a quarter of a second, so this happens once.
    """
    secrets = keep_secrets(settings.STATE_DIR, refilled(secrets_of(settings.STATE_DIR), demo=demo))
    seed(secrets, demo=demo)
    valid = still_valid(secrets)
    # The demo shows its login at each start, so that it can be tried at any time.
    return valid if demo else keep_secrets(settings.STATE_DIR, without_used(valid))


def _last_known_good() -> int:
    """Return the snapshot version that the gateway of this state directory last served; 0: none."""
    stored = SnapshotStore(settings.STATE_DIR, GatewaySettings().snapshot_max_age_s).load(time.time())
    return stored.version if stored is not None else 0


def reject_stale_console(root: Path) -> None:
    """Raise CommandError if a checkout's console was built from other sources; an installed package has none."""
    sources, built = root / ".ci" / "console-sources", root / "web" / "static" / "dist" / ".ready"
    if not sources.exists() or not built.exists():
        return
    wanted = subprocess.run([sources], capture_output=True, text=True, check=False).stdout  # noqa: S603  # our own script
    if wanted.strip() and wanted.strip() != built.read_text().strip():
        raise CommandError(
            f"{built.parent} was built from other sources than {root / 'web' / 'frontend'}: pages would break. "
            "Run `.ci/setup-frontend`, then start again."
        )


def _migrate_if_needed() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)


def _region_children(options: dict[str, Any]) -> list[ChildSpec]:
    ports_from = settings.DEMO_PORTS_FROM
    engines = seed_demo_regions(options["regions"], ports_from)
    ports = choose_ports(options["regions"], options["port"], ports_from)
    # The gateway of this installation is the first region's.
    os.environ.update(ports.environment(next(iter(ports.public))))
    others = region_children(ports, secrets_of(settings.STATE_DIR).traffic_keys, options["speed"])
    return [*engine_children(engines), *others]


def _demo_children(options: dict[str, Any]) -> list[ChildSpec]:
    if options["regions"]:
        return _region_children(options)
    roles = ("prefill",) * options["prefill"] + ("decode",) * options["decode"]
    engines = seed_demo_pool(ports_from=settings.DEMO_PORTS_FROM, roles=roles)
    trace = str(Path(options["trace"]).resolve()) if options["trace"] else ""
    prefilling = sum(engine.role != "decode" for engine in engines)
    secrets, url = secrets_of(settings.STATE_DIR), _base_url(options)
    seed_node_key(secrets)
    nodes = seed_demo_nodes(engines, ports_from=settings.DEMO_PORTS_FROM)
    chat = seed_demo_chat(secrets, ports_from=settings.DEMO_PORTS_FROM)
    traffic = DemoTraffic(url, secrets.traffic_keys, trace, options["speed"], prefilling)
    return [
        *node_children(nodes, secrets, settings.STATE_DIR, url),
        *engine_children(engines, secrets.kv_environment),
        replay_child(traffic),
        *chat_children(chat, secrets, url),
    ]


def _base_url(options: dict[str, Any]) -> str:
    host = "127.0.0.1" if options["host"] in ("0.0.0.0", "::") else options["host"]  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{options['port']}" if ":" in host else f"http://{host}:{options['port']}"
