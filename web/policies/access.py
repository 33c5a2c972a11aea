"""Who can open and change a policy in the console, and the response to everyone else."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyAccess, policy_of, version_of
from web.shell.console_request import console_actor, row_number
from web.shell.no_role import lacks_role

NEEDS_OPERATOR = "This requires the role operator in every pool of the policy."

UNPROCESSABLE = 422
PRECONDITION_FAILED = 412
CONFLICT = 409


def opened(request: HttpRequest, slug: str) -> PolicyAccess:
    """Return the policy; 404 if it does not exist or is outside the person's pools."""
    try:
        return policy_of(console_actor(request), slug)
    except Policy.DoesNotExist as error:
        raise Http404("No such policy in your pools.") from error


def version_number(text: str | None) -> int | None:
    """Return a version number from a URL or form; None if the text is not a number."""
    return row_number(text, 9)


def version_named(state: PolicyAccess, text: str | None) -> PolicyVersion | None:
    """Return the version with the number from a URL or form; None if there is none."""
    number = version_number(text)
    return version_of(state.policy, number) if number is not None else None


def known_version(state: PolicyAccess, text: str | None) -> PolicyVersion:
    """Return the version with the number from a URL or form; 404 if there is none."""
    version = version_named(state, text)
    if version is None:
        raise Http404("No such version.")
    return version


def rejected(request: HttpRequest, state: PolicyAccess, reason: str = NEEDS_OPERATOR) -> HttpResponse:
    """Return a 403 that names the missing role. Nothing was changed."""
    return lacks_role(request, "Policies", reason, reverse("policy", args=[state.policy.slug]))
