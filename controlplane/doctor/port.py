"""Is the port free, or does our own server listen there?"""

from __future__ import annotations

import http.client

from controlplane.doctor.finding import Finding, ok, problem
from controlplane.doctor.installation import Installation
from controlplane.server import PortTakenError, listen


def look(installation: Installation) -> list[Finding]:
    """Try to listen; where somebody does, ask whether it is Switchyard."""
    where = f"{installation.host}:{installation.port}"
    try:
        listen(installation.host, installation.port).close()
    except PortTakenError as error:
        if _is_ours(installation):
            return [ok(f"Switchyard listens on {where}.")]
        return [problem(str(error), "Free the port, or start with another `--port`.")]
    except OSError as error:
        return [problem(f"{where} is no address of this machine: {error.strerror}.", "Give `--host` one that is.")]
    return [ok(f"{where} is free; no server runs there.")]


def _is_ours(installation: Installation) -> bool:
    host = "127.0.0.1" if installation.host in ("0.0.0.0", "::") else installation.host  # noqa: S104 - compared only
    connection = http.client.HTTPConnection(host, installation.port, timeout=2)
    try:
        connection.request("GET", "/live", headers={"Host": "localhost"})
        answer = connection.getresponse()
        return answer.status == 200 and b'"live":true' in answer.read(1024)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
