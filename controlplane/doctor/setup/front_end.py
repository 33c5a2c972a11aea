"""Have the console's scripts and styles been built?"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders

from controlplane.doctor.finding import Finding, ok, problem
from controlplane.doctor.installation import Installation

_FILES = ("dist/console.js",)


def look(_installation: Installation) -> list[Finding]:
    """Look for the bundles that every page loads."""
    root = settings.STATIC_ROOT
    missing = [name for name in _FILES if not (_collected(root, name) if root else finders.find(name))]
    if missing and root:
        return [problem(f"{missing[0]} is not in {root}.", "Run `manage.py collectstatic`.")]
    if missing:
        return [problem(f"The console is not built: {missing[0]} is missing.", "Run `make setup`, or `npm run build`.")]
    return [ok("The console is built.")]


def _collected(root: str, name: str) -> bool:
    path = Path(root) / name
    return any(path.parent.glob(f"{path.stem}*{path.suffix}"))
