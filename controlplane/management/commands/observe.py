"""`manage.py observe`: tells a gateway what another proxy has routed, from its access log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.management.observe_command import GatewayRejectsError, observe_log
from gateway.api.access_log import FORMATS


class Command(BaseCommand):
    """Reads the log and posts to /api/v1/observe. The API key comes from SWITCHYARD_API_KEY, never as an argument."""

    help = "Report requests that a proxy routed to an observe-only pool, from the proxy's access log (docs/observe.md)."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("--access-log", type=Path, required=True, help="Access log to read.")
        parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="Format of its lines.")
        parser.add_argument("--model", required=True, help="Served model, if the lines do not name it.")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="URL of the gateway.")
        parser.add_argument("--follow", action="store_true", help="Follow the log as it grows.")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Read and tell until the log ends."""
        key = os.environ.get("SWITCHYARD_API_KEY", "")
        if not key:
            raise CommandError("Set SWITCHYARD_API_KEY to an API key with the scope route.")
        told = None
        try:
            for told in observe_log(
                options["access_log"], options["url"], key, options["model"], follow=options["follow"]
            ):
                if options["follow"]:
                    self.stdout.write(f"{told.accepted} accepted, {told.refused} rejected, {told.skipped} skipped")
        except OSError as error:
            raise CommandError(f"{options['access_log']} cannot be read: {error.strerror}") from error
        except GatewayRejectsError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            return
        if told is not None:
            self.stdout.write(f"{told.accepted} accepted, {told.refused} rejected, {told.skipped} skipped")
            for reason, number in sorted(told.reasons.items(), key=lambda each: -each[1]):
                self.stdout.write(f"  {number} × {reason}")
