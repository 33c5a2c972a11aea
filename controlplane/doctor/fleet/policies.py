"""Can this program read the policies that are live, and follow them?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.policies.models.policy import Policy
from controlplane.policies.upgrade import baseline_note, reading_problem

_BASELINE_REMEDY = "Publish a version with another placement; compare with the baseline in a what-if."
_REMEDY = "Roll the policy back to a version written by this release, or run the newer release."


def look(_installation: Installation) -> list[Finding]:
    """Read every live version; the pools of one that cannot be read keep the policy that they had.

    Of one that names a baseline they follow the rest, and the placement of a new pool.
    """
    try:
        policies = list(Policy.objects.exclude(live_version=None).select_related("live_version__policy"))
    except DatabaseError as error:
        return [warning(f"Cannot read the policies: {type(error).__name__}.", "Fix the database connection first.")]
    found = []
    for policy in policies:
        live = policy.live_version
        if live is None:
            continue
        if wrong := reading_problem(live):
            says = f"This release cannot read the live version of {policy}: {wrong}. Its pools keep the last policy."
            found.append(problem(says, _REMEDY))
        elif note := baseline_note(live):
            found.append(warning(f"The live version of {policy} is not fully in effect. {note}", _BASELINE_REMEDY))
    return found or [ok("All live policies are readable.")]
