"""Are the secrets there, strong and unread by others?"""

from __future__ import annotations

from django.conf import settings

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.project.first_run.secrets import FILE_NAME, UnsafeSecretsError, read_secrets

_SHORTEST = 32


def look(installation: Installation) -> list[Finding]:
    """Look at the environment's secrets, or at the file of the first start."""
    weak = [
        name
        for name, value in (
            ("SECRET_KEY", settings.SECRET_KEY),
            ("SWITCHYARD_FLEET_SECRET", settings.FLEET_SECRET.decode(errors="replace")),
        )
        if len(value) < _SHORTEST or len(set(value)) < 8
    ]
    if weak:
        return [warning(f"{name} is too weak.", "Set it to the output of `openssl rand -base64 48`.") for name in weak]
    if settings.SECRETS_GIVEN:
        return [ok("The secrets come from the environment.")]
    try:
        read_secrets(installation.state_dir / FILE_NAME)
    except UnsafeSecretsError as error:
        return [problem("The secrets of the first start are unusable.", str(error))]
    return [ok("The secrets of the first start are in the state directory, readable by its owner only.")]
