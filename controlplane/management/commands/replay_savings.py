"""`manage.py replay_savings`: starts the replay of a pool's day for the ledger of savings."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import command
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.savings.job import start_replay


class Command(BaseCommand):
    """Starts a replay, which the jobs process computes."""

    help = "Replay a pool's recorded day under other routers' rules, for the page Savings (docs/savings.md)."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("pool", help="Slug of the pool.")
        parser.add_argument("--day", type=date.fromisoformat, help="UTC day such as 2026-11-28; yesterday without it.")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Start the replay and print its run."""
        pool = Pool.objects.filter(slug=options["pool"]).first()
        if pool is None:
            raise CommandError(f"There is no pool {options['pool']}.")
        day = options["day"] or timezone.now().date() - timedelta(days=1)
        try:
            run = start_replay(pool, day, actor=command("replay_savings"))
        except (ConflictError, InvalidFieldsError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Run {run.pk} replays {day} of pool {pool.slug}; see Jobs, then Savings.")
