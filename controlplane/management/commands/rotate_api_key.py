"""`manage.py rotate_api_key`: gives a key a new secret and shows it once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.access.api_keys import MAX_OVERLAP_H, OVERLAP_H, rotate_api_key
from controlplane.platform.actor import command
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey
from controlplane.project.checks import OURS


class Command(BaseCommand):
    """Rotates an API key. A running server accepts the new secret within about a second."""

    requires_system_checks = OURS
    help = "Give an API key a new secret and print it once. The previous secret stays valid for a while."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("key", help="its id (key-…)")
        parser.add_argument(
            "--overlap-hours",
            type=int,
            default=OVERLAP_H,
            help=f"hours for which the previous secret stays valid, 0 to {MAX_OVERLAP_H} (default: {OVERLAP_H})",
        )
        parser.add_argument("--why", default="", help="reason, for the audit")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate the key, and print only the new secret on standard output."""
        key = ApiKey.objects.filter(key_id=options["key"]).first()
        if key is None:
            raise CommandError("No key has this id. Its id is on the key's page and in the API.")
        actor, overlap_h = command("rotate_api_key"), options["overlap_hours"]
        try:
            _, text = rotate_api_key(key, actor=actor, overlap_h=overlap_h, why=options["why"])
        except InvalidFieldsError as error:
            raise CommandError(error.summary) from error
        self.stdout.write(text)
