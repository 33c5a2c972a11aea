"""`manage.py up`: the whole program with one command."""

from __future__ import annotations

import argparse
import asyncio
import logging.config
import os
from pathlib import Path
from typing import Any

import uvloop
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from typing_extensions import override

from controlplane.bus import get_bus
from controlplane.child_process import TOPIC, ChildSpec, ChildStatus, encode_statuses
from controlplane.demo_fleet import DemoTraffic, engine_children, replay_child, supervised_children
from controlplane.demo_names import SERVED_MODEL
from controlplane.first_run_secrets import FirstRunSecrets, UnsafeSecretsError, secrets_of
from controlplane.json_log import logging_settings
from controlplane.server import PortTakenError, Serving, listen, serve
from controlplane.services.first_run import ADMIN, MAX_OF_ROLE, seed, seed_demo_pool, still_valid
from controlplane.services.free_ports import NoFreePortError
from controlplane.services.publication import TOPIC as SNAPSHOT_TOPIC
from controlplane.state_lock import StateInUseError, hold_state
from controlplane.supervised_engines import SupervisedEngines
from controlplane.supervisor import Supervisor
from controlplane.welcome import Welcome, is_loopback, render


class Command(BaseCommand):
    """Serves console, API and proxy; by default with a fleet of simulated engines under replayed traffic."""

    help = "Run Switchyard: console, decision API, proxy and jobs, with a demo fleet unless --no-demo."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--demo", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--trace", default="", help="Mooncake JSONL[.gz] to replay (default: a generated one)")
        parser.add_argument("--speed", type=float, default=1.0, help="how much faster than recorded")
        parser.add_argument("--prefill", type=int, default=0, help="demo engines that only prefill; goes with --decode")
        parser.add_argument("--decode", type=int, default=0, help="demo engines that only decode; goes with --prefill")
        parser.add_argument("--with-parent", action="store_true", help="end when the parent process ends")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the state directory, serve, and end everything on SIGINT or SIGTERM."""
        if options["with_parent"]:
            from simulator.parent_death import die_with_parent

            die_with_parent(os.getppid())
        if options["trace"] and not Path(options["trace"]).is_file():
            raise CommandError(f"There is no trace at {options['trace']}.")
        prefill, decode = options["prefill"], options["decode"]
        if min(prefill, decode) < 0 or max(prefill, decode) > MAX_OF_ROLE or (prefill > 0) != (decode > 0):
            raise CommandError(f"--prefill and --decode go together, each from 1 to {MAX_OF_ROLE}.")
        # The database and logs are for this user only, whatever the mode of a state directory that existed before.
        os.umask(0o077)
        try:
            hold_state(settings.STATE_DIR)
            listener = listen(options["host"], options["port"])
            secrets = secrets_of(settings.STATE_DIR)
            _migrate_if_needed()
            seed(secrets, demo=options["demo"])
            password, api_key = still_valid(secrets)
            children = _demo_children(options, secrets) if options["demo"] else []
        except (StateInUseError, PortTakenError, UnsafeSecretsError, NoFreePortError) as error:
            raise CommandError(str(error)) from error
        connection.close()
        log_dir = settings.STATE_DIR / "log"
        logging.config.dictConfig(logging_settings(settings.LOG_LEVEL, log_dir / "switchyard.log"))
        supervisor = Supervisor(log_dir, _tell_children)
        engines = SupervisedEngines(supervisor, lambda: supervised_children(demo=options["demo"]))
        serving = Serving(
            listener=listener,
            supervisor=supervisor,
            follow_topology=lambda: engines.run(get_bus(), SNAPSHOT_TOPIC),
            children=children,
            embed_jobs=not settings.REDIS_URL,
            on_ready=lambda: self._greet(options, password, api_key, log_dir),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            served = runner.run(serve(serving))
        if not served:
            raise CommandError(f"The server could not start; see {log_dir / 'switchyard.log'}.")

    def _greet(self, options: dict[str, Any], password: str, api_key: str, log_dir: Path) -> None:
        welcome = Welcome(
            url=_base_url(options) + "/",
            user=ADMIN,
            password=password,
            api_key=api_key,
            served_model=SERVED_MODEL if options["demo"] else "",
            log_dir=str(log_dir),
        )
        self.stdout.write(render(welcome, show_secrets=is_loopback(options["host"])))
        self.stdout.flush()


def _tell_children(statuses: tuple[ChildStatus, ...]) -> None:
    get_bus().publish(TOPIC, encode_statuses(statuses))


def _migrate_if_needed() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)


def _demo_children(options: dict[str, Any], secrets: FirstRunSecrets) -> list[ChildSpec]:
    roles = ("prefill",) * options["prefill"] + ("decode",) * options["decode"]
    engines = seed_demo_pool(ports_from=settings.DEMO_PORTS_FROM, roles=roles)
    trace = str(Path(options["trace"]).resolve()) if options["trace"] else ""
    prefilling = sum(engine.role != "decode" for engine in engines)
    traffic = DemoTraffic(_base_url(options), secrets.api_key, trace, options["speed"], prefilling)
    return [*engine_children(engines), replay_child(traffic)]


def _base_url(options: dict[str, Any]) -> str:
    host = "127.0.0.1" if options["host"] in ("0.0.0.0", "::") else options["host"]  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{options['port']}" if ":" in host else f"http://{host}:{options['port']}"
