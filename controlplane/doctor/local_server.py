"""Requests to the server on this machine."""

from __future__ import annotations

import http.client
import re

from django.conf import settings

from controlplane.doctor.installation import Installation

_MOST_BYTES = 16 << 20
_REJECTING = re.compile(r'^headway_engine_rejects_key\{engine="([^"]*)"\} 1(?:\.0)?$', re.MULTILINE)


def answer_of(installation: Installation, path: str, *, key: str = "") -> bytes | None:
    """Return the body of a 200 response to GET `path` with this API key; None for any other response."""
    host = "127.0.0.1" if installation.host in ("0.0.0.0", "::") else installation.host  # noqa: S104 - compared only
    connection = http.client.HTTPConnection(host, installation.port, timeout=2)
    try:
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", path, headers={"Host": _allowed_host(), **bearer})
        answer = connection.getresponse()
        return answer.read(_MOST_BYTES) if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _allowed_host() -> str:
    """Return a name under which the server with these settings answers."""
    first = next(iter(settings.ALLOWED_HOSTS), "*")
    return "localhost" if first == "*" else first.removeprefix(".")


def rejecting_key(metrics: bytes | None) -> set[str]:
    """Return the engines that reject the gateway's key, from its metrics; None if no gateway responded."""
    return set(_REJECTING.findall((metrics or b"").decode()))
