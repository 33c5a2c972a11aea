"""`manage.py tap`: prints recorded decisions as they arrive, one line each."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections
from typing_extensions import override

from controlplane.fleet.models.engine import Engine
from controlplane.platform.actor import program
from controlplane.platform.search_filter import UnreadableFilterError
from controlplane.request_log.decision_search import DecisionFilter, search
from controlplane.request_log.models.decision_index import DecisionIndex
from routing.trials.arms import ARMS

ACTOR = program("tap")
MOST_AT_ONCE = 500
POLL_S = 1.0
_FILTERS = ("pool", "engine", "tenant", "session", "reason", "arm", "cause", "mismatch")
_HELP = {"arm": f"arm of the decision during a trial: {', '.join(ARMS)}"}


class Command(BaseCommand):
    """Follows the decision store. Ends with Ctrl+C, or after --count lines."""

    help = "Print decisions as they are recorded: manage.py tap [--engine e-17] [--tenant acme] [--late] [--json]."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        for name in _FILTERS:
            parser.add_argument(f"--{name}", default="", help=_HELP.get(name))
        parser.add_argument("--late", action="store_true", help="only decisions that missed their objective")
        parser.add_argument("--json", action="store_true", help="one JSON object per line")
        parser.add_argument("--last", type=int, default=0, metavar="N", help="start with the last N")
        parser.add_argument("--count", type=int, default=0, metavar="N", help="end after N decisions (0: never)")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Print until interrupted."""
        values = {name: options[name] for name in _FILTERS} | {"late": "1" if options["late"] else ""}
        wanted, left = DecisionFilter.of(values), options["count"] or -1
        try:
            after = self._begin(wanted, options["last"])
            while left:
                rows = newer(wanted, after)
                for row in rows[: left if left > 0 else None]:
                    self.stdout.write(_json(row) if options["json"] else line_of(row, _name(row.engine)))
                    left -= 1
                self.stdout.flush()
                if rows:
                    after = rows[-1].pk
                if left and len(rows) < MOST_AT_ONCE:
                    # Django does it between requests, of which a command has none: a broken connection would stay.
                    close_old_connections()
                    time.sleep(POLL_S)
        except UnreadableFilterError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            return

    def _begin(self, wanted: DecisionFilter, last: int) -> int:
        """Return the row after which printing begins."""
        if last > 0:
            rows = search(ACTOR, wanted).order_by("-pk").values_list("pk", flat=True)[:last]
            return min(rows, default=1) - 1
        return DecisionIndex.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def newer(wanted: DecisionFilter, after: int) -> list[DecisionIndex]:
    """Return the matching rows stored after a row, in stored order, MOST_AT_ONCE at most."""
    return list(search(ACTOR, wanted).filter(pk__gt=after).order_by("pk")[:MOST_AT_ONCE])


def line_of(row: DecisionIndex, engine: str) -> str:
    """Return one decision as a line of columns."""
    clock = datetime.fromtimestamp(row.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    ttft = "—" if row.ttft_ms is None else f"{row.ttft_ms} ms"
    hit = f"{row.predicted_tokens}→{'—' if row.reported_tokens is None else row.reported_tokens}"
    regret = f"{row.regret_ms} ms {row.regret_cause}" if row.regret_ms else ""
    late = "LATE" if row.late else ""
    return (
        f"{clock}  {row.decision_id:36}  {row.pool:14} {engine or '(none)':12} {row.tenant:12} {row.reason:14} "
        f"{row.arm:7} {row.prompt_tokens:>7} {hit:>14} {ttft:>9} {late:4} {row.outcome:10} {regret}"
    ).rstrip()


def _name(engine_id: str) -> str:
    return Engine.objects.filter(engine_id=engine_id).values_list("name", flat=True).first() or engine_id


def _json(row: DecisionIndex) -> str:
    fields = {field.name: getattr(row, field.attname) for field in DecisionIndex._meta.fields}
    return msgspec.json.encode(fields).decode()
