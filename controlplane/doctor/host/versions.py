"""Do Python and Django have the versions this program is tested with?"""

from __future__ import annotations

import sys

import django

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation

PYTHONS = ((3, 11), (3, 12), (3, 13))
DJANGO = (5, 2)


def look(
    _installation: Installation,
    *,
    python: tuple[int, ...] = tuple(sys.version_info[:3]),
    django_version: tuple[int, ...] = django.VERSION[:3],
) -> list[Finding]:
    """Compare both with what pyproject.toml and requirements.txt ask for."""
    return [_python(python), _django(django_version)]


def _python(found: tuple[int, ...]) -> Finding:
    text = ".".join(str(part) for part in found)
    if found[:2] in PYTHONS:
        return ok(f"Python is {text}.")
    return problem(f"Python is {text}, not 3.11 to 3.13.", "Install Python 3.13 and run `make setup` with it.")


def _django(found: tuple[int, ...]) -> Finding:
    text = ".".join(str(part) for part in found)
    if found[:2] == DJANGO:
        return ok(f"Django is {text}.")
    if found[:2] > DJANGO:
        return warning(f"Django is {text}; Switchyard is tested with 5.2.", "Run `make setup` for the tested version.")
    return problem(f"Django is {text}, older than 5.2.", "Run `make setup`.")
