"""Is the port free, or does our own server listen there?"""

from __future__ import annotations

from controlplane.doctor.finding import Finding, ok, problem
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of
from controlplane.project.processes.public_port import PortTakenError, listen


def look(installation: Installation) -> list[Finding]:
    """Try to listen; where somebody does, ask whether it is Switchyard."""
    where = f"{installation.host}:{installation.port}"
    try:
        listen(installation.host, installation.port).close()
    except PortTakenError as error:
        if b'"live":true' in (answer_of(installation, "/live") or b""):
            return [ok(f"Switchyard listens on {where}.")]
        return [problem(str(error), "Free the port, or start with another `--port`.")]
    except OSError as error:
        return [
            problem(
                f"{where} is not an address of this machine: {error.strerror}.",
                "Use an address of this machine for `--host`.",
            )
        ]
    return [ok(f"{where} is free; no server is running there.")]
