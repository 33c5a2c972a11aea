"""`manage.py create_api_key`: creates a key and shows it once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from controlplane.access.api_keys import OVERLAP_H, create_api_key, rotate_api_key
from controlplane.management.first_tenant import tenant_for_key
from controlplane.platform.actor import command
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import SCOPES, USUAL_SCOPES, ApiKey
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.project.checks import OURS


class Command(BaseCommand):
    """Creates an API key. A running server accepts it within about a second."""

    requires_system_checks = OURS
    help = (
        "Create an API key for a tenant and print it; it cannot be shown again. Creates the first tenant if necessary."
    )

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--tenant", default="", help="slug of the tenant (default: the first tenant)")
        parser.add_argument("--name", default="command line", help="what the key is for")
        parser.add_argument(
            "--scopes", nargs="+", choices=SCOPES, default=USUAL_SCOPES, help="scopes of the key (default: infer)"
        )
        parser.add_argument(
            "--role", choices=Role.values, default=Role.VIEWER, help="role of the scope manage (default: viewer)"
        )
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--pools", nargs="+", default=[], metavar="SLUG", help="pools that the scope manage covers")
        where.add_argument("--all-pools", action="store_true", help="the scope manage covers all pools")
        parser.add_argument("--days", type=int, help="days until the key expires (default: never)")

        parser.add_argument("--rotate", metavar="KEY", help="give the key with this id (key-…) a new secret instead")
        parser.add_argument(
            "--overlap-hours",
            type=int,
            default=OVERLAP_H,
            help=f"with --rotate: hours for which the previous secret still works (default: {OVERLAP_H})",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Create or rotate the key, and print only the key on standard output."""
        if options["rotate"]:
            self.stdout.write(_rotated(options["rotate"], options["overlap_hours"]))
            return
        tenant = tenant_for_key(options["tenant"], actor=command("create_api_key"))
        days = options["days"]
        if days is not None and days < 1:
            raise CommandError("--days must be at least 1.")
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        role, pools = Role(options["role"]), [ALL_POOLS] if options["all_pools"] else options["pools"]
        if "manage" in options["scopes"] and role != Role.ADMIN and not pools:
            self.stderr.write("The scope manage covers no pool of the REST API: add --all-pools or --pools SLUG.")
        fields = {"scopes": options["scopes"], "role": role, "pools": pools, "expires_at": expires_at}
        try:
            _, text = create_api_key(tenant, options["name"], actor=command("create_api_key"), **fields)
        except InvalidFieldsError as error:
            raise CommandError(error.summary) from error
        self.stdout.write(text)


def _rotated(key_id: str, overlap_h: int) -> str:
    key = ApiKey.objects.filter(key_id=key_id).first()
    if key is None:
        raise CommandError("No key has this id. Its id is on the key's page and in the API.")
    try:
        return rotate_api_key(key, actor=command("create_api_key"), overlap_h=overlap_h)[1]
    except InvalidFieldsError as error:
        raise CommandError(error.summary) from error
