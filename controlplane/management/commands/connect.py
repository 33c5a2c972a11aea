"""`manage.py connect URL…`: from running engines to routed requests."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from typing_extensions import override

from controlplane.fleet.connect.engine_facts import ConnectRefusedError
from controlplane.management.connect_command import Connecting, ready_to_ask
from controlplane.project.checks import OURS


class Command(BaseCommand):
    """Ends with 1 unless every engine is routed to. Connecting an engine again only checks it again."""

    requires_system_checks = OURS
    help = "Connect running vLLM or SGLang engines: ask each what it is, create pool and engine, and check both."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("urls", nargs="+", metavar="URL", help="engine address, such as http://10.0.3.7:8000")
        parser.add_argument("--yes", action="store_true", help="allow the addresses without asking")
        parser.add_argument("--pool", default="", help="slug of the pool (default: the one that serves the model)")
        parser.add_argument("--region", default="", help="slug of the region of a new pool (default: the only one)")
        parser.add_argument("--key-env", default="", help="variable with the engines' key, SWITCHYARD_ENGINE_KEY_…")
        parser.add_argument(
            "--approximate", action="store_true", help="new pool: estimate hits from prompts, without KV events"
        )
        parser.add_argument("--port", type=int, default=8000, help="port of Switchyard on this machine")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Connect one engine after the other."""
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise CommandError("The database is not prepared. Start Switchyard first: `make up`.")
        connecting = Connecting(self.stdout, yes=options["yes"], options=options)
        failed = [url for url in dict.fromkeys(options["urls"]) if not self._connected(connecting, url)]
        if connecting.engines:
            ready_to_ask(self.stdout, connecting.engines, options["port"])
        if failed:
            sys.exit(1)

    def _connected(self, connecting: Connecting, url: str) -> bool:
        self.stdout.write(f"\n{url}")
        try:
            return connecting.connect(url)
        except ConnectRefusedError as refusal:
            lines = [f"✗ {refusal.sentence}", f"→ {refusal.remedy}"]
            if refusal.estimable:
                lines.append("→ Or repeat with --approximate: a new pool estimates hits from prompts.")
            if refusal.start_line:
                lines += ["The whole start line, as far as the engine tells it:", refusal.start_line]
            for line in lines:
                connecting.say(line)
            return False
