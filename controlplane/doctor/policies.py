"""Can this program read the policies that are live?"""

from __future__ import annotations

import msgspec
from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.models import Policy
from controlplane.services.policy_upgrade import automation_of, routing_of
from routing.schema_line import SchemaError

_REMEDY = "Roll the policy back to a version that this program wrote, or run the newer program."


def look(_installation: Installation) -> list[Finding]:
    """Read every live version; one that cannot be read keeps all gateways on the snapshot that they have."""
    try:
        policies = list(Policy.objects.exclude(live_version=None).select_related("live_version__policy"))
    except DatabaseError as error:
        return [warning(f"The policies cannot be read: {type(error).__name__}.", "Make the database answer first.")]
    found = []
    for policy in policies:
        live = policy.live_version
        try:
            if live is not None:
                routing_of(live)
                automation_of(live)
        except (SchemaError, msgspec.ValidationError) as error:
            found.append(problem(f"The live version of {policy} is none of this program's: {error}.", _REMEDY))
    return found or [ok("The live policies can be read.")]
