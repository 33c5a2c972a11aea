"""Are background jobs woken?"""

from __future__ import annotations

import re

from controlplane.doctor.finding import Finding, ok, problem
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of
from gateway.bus.wake_up_age import NAME

LATE_S = 10.0
"""The most frequent jobs are woken twice a second; a busy machine may take longer."""
_AGE = re.compile(rf"^{NAME} (\S+)$", re.MULTILINE)


def look(installation: Installation) -> list[Finding]:
    """Ask the server on this machine how long ago it heard of a wake-up."""
    age_s = _age_s(installation)
    if age_s is None:
        return [ok("No local server reports when jobs were last woken.")]
    if age_s <= LATE_S:
        return [ok(f"Jobs were woken {age_s:.0f} s ago.")]
    what = "a `manage.py worker` with its schedule" if installation.redis_url else "the server"
    return [
        problem(f"No job was woken for {age_s:.0f} s: nothing is checked, scaled or published.", f"Restart {what}.")
    ]


def _age_s(installation: Installation) -> float | None:
    found = _AGE.search((answer_of(installation, "/metrics") or b"").decode("utf-8", "replace"))
    return float(found[1]) if found else None
