"""Do the settings fit each other?"""

from __future__ import annotations

from django.core.checks import run_checks

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation


def look(_installation: Installation) -> list[Finding]:
    """Report what the start-up checks refuse or warn of."""
    found = [
        (problem if message.is_serious() else warning)(str(message.msg), str(message.hint or "Check the settings."))
        for message in run_checks()
    ]
    return found or [ok("The settings are consistent.")]
