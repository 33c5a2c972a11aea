"""Can this program read the policies that are live?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.models import Policy
from controlplane.services.policy_upgrade import reading_problem

_REMEDY = "Roll the policy back to a version that this program wrote, or run the newer program."


def look(_installation: Installation) -> list[Finding]:
    """Read every live version; the pools of one that cannot be read keep the policy that they had."""
    try:
        policies = list(Policy.objects.exclude(live_version=None).select_related("live_version__policy"))
    except DatabaseError as error:
        return [warning(f"The policies cannot be read: {type(error).__name__}.", "Make the database answer first.")]
    found = []
    for policy in policies:
        wrong = reading_problem(policy.live_version) if policy.live_version is not None else ""
        if wrong:
            says = f"The live version of {policy} is none of this program's: {wrong}. Its pools keep the last policy."
            found.append(problem(says, _REMEDY))
    return found or [ok("The live policies can be read.")]
