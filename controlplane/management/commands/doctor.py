"""`manage.py doctor`: checks the installation, and reports each problem with its fix."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone
from typing_extensions import override

from controlplane.doctor.finding import Finding, State
from controlplane.doctor.installation import Installation
from controlplane.doctor.questions import examine


class Command(BaseCommand):
    """Exits with 1 if a problem prevents the program from serving. Warnings do not change the exit status."""

    help = "Check this installation and print remedies; --json for machines. Secrets are never printed."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--host", default="127.0.0.1", help="listening address of the server")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Run all checks and print the findings."""
        findings_by_check = examine(
            Installation(settings.STATE_DIR, options["host"], options["port"], settings.REDIS_URL, timezone.now())
        )
        healthy = not any(
            finding.state is State.PROBLEM for findings in findings_by_check.values() for finding in findings
        )
        self.stdout.write(
            _as_json(findings_by_check, healthy) if options["json"] else _as_text(findings_by_check, healthy)
        )
        if not healthy:
            sys.exit(1)


def _as_json(findings_by_check: Mapping[str, Sequence[Finding]], healthy: bool) -> str:
    checks = [
        {"check": name, **asdict(finding)} for name, findings in findings_by_check.items() for finding in findings
    ]
    return json.dumps({"healthy": healthy, "checks": checks}, indent=2)


def _as_text(findings_by_check: Mapping[str, Sequence[Finding]], healthy: bool) -> str:
    lines = []
    for name, findings in findings_by_check.items():
        for finding in findings:
            lines.append(f"{finding.state:>8}  {name:<15}  {finding.says}")
            if finding.do:
                lines.append(f"{'':>8}  {'':<15}  → {finding.do}")
    last = "Headway can serve." if healthy else "Headway cannot serve; see above."
    return "\n".join([*lines, "", last])
