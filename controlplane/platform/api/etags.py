"""Revisions as entity tags: the client's version, and whether it is up to date."""

from __future__ import annotations

from typing import Any

from django.utils.http import parse_etags
from rest_framework.request import Request

from controlplane.platform.api.problem import ProblemError
from controlplane.platform.revisions import StaleRevisionError


def etag_of(thing: Any) -> str:
    """Return the weak entity tag of an object with a revision."""
    return f'W/"{thing.revision}"'


def is_unchanged(request: Request, etag: str) -> bool:
    """Return whether the client already has this version (If-None-Match)."""
    given = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in given or _opaque(etag) in {_opaque(tag) for tag in given}


def expected_revision(request: Request, thing: Any, *, required: bool = True) -> int | None:
    """Return the client's revision, for the service to compare under its lock.

    Raises ProblemError 428 if a required If-Match is missing, and StaleRevisionError if the client's version is
    outdated.
    """
    given = parse_etags(request.headers.get("If-Match", ""))
    if not given:
        if required:
            raise ProblemError(428, "Send If-Match with the ETag of the version you read, so that no change is lost.")
        return None
    if "*" in given:
        raise ProblemError(428, "If-Match: * names no version; send the ETag of the version you read.")
    if _opaque(etag_of(thing)) not in {_opaque(tag) for tag in given}:
        raise StaleRevisionError(thing)
    return int(thing.revision)


def _opaque(tag: str) -> str:
    return tag.removeprefix("W/").strip('"')
