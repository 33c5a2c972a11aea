"""Approvals: if a policy requires them, a version goes live only after a second person has approved it.

An approval is for one version, which never changes. It is valid while the person who gave it may publish the policy. A
rollback needs no approval, because it is for emergencies and the version was live before.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import CONSOLE, Actor, person
from controlplane.platform.conflict import ConflictError
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_approval import PolicyApproval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.roles import may_publish, only_pool, require_all_pools


class NotApprovedError(ConflictError):
    """The policy requires an approval that the version lacks. The message states who may approve."""

    def __init__(self, version: PolicyVersion) -> None:
        self.version = version
        super().__init__(
            f"v{version.number} of {version.policy.slug} needs the approval of a second person before it goes live: "
            f"{who_may_approve(version)}. A rollback needs none."
        )


class CannotApproveError(ConflictError):
    """This actor cannot approve the version or withdraw an approval. The message explains why."""


def who_may_approve(version: PolicyVersion) -> str:
    """Return a text that names who may approve the version."""
    besides = f" other than {version.author.get_username()}, who wrote it" if version.author else ""
    return f"anyone with the role operator in every pool of the policy{besides}"


def why_not_approve(actor: Actor, version: PolicyVersion) -> str:
    """Return why a person who may publish cannot approve the version; empty if they can."""
    if actor.user is None:
        return "Only a person can approve: sign in. API keys cannot."
    if version.author_id == actor.user.pk:
        return f"You wrote v{version.number}; a second person must approve it."
    if version.published_at is not None:
        return f"v{version.number} was already live; there is nothing to approve."
    return ""


def approve(version: PolicyVersion, *, actor: Actor, why: str = "") -> PolicyApproval:
    """Store the actor's approval and return it. A second approval by the same person changes nothing.

    Raises NotAllowedError, and CannotApproveError for the version's author and for actors that are not persons.
    """
    require_all_pools(actor, version.policy)
    if reason := why_not_approve(actor, version):
        raise CannotApproveError(reason)
    with transaction.atomic():
        _lock(version)
        approval, new = PolicyApproval.objects.get_or_create(
            version=version, person=actor.user, defaults={"at": timezone.now(), "why": why[:200]}
        )
        if new:
            after, pool = _audit_fields(version, approval), only_pool(version.policy)
            audit.record_for(actor, "policy.approve", version.policy, after=after, why=why, pool=pool)
    return approval


def withdraw_approval(version: PolicyVersion, *, actor: Actor, why: str = "") -> None:
    """Withdraw the actor's approval. Raises NotAllowedError, and CannotApproveError if there is none."""
    require_all_pools(actor, version.policy)
    with transaction.atomic():
        _lock(version)
        own = PolicyApproval.objects.filter(version=version, person=actor.user).first() if actor.user else None
        if own is None:
            raise CannotApproveError(f"You have not approved v{version.number}; there is nothing to withdraw.")
        before = _audit_fields(version, own)
        own.delete()
        pool = only_pool(version.policy)
        audit.record_for(actor, "policy.withdraw_approval", version.policy, before=before, why=why, pool=pool)


def require_approved(version: PolicyVersion) -> None:
    """Raise NotApprovedError if the policy requires an approval and no valid one is stored.

    Call it in the transaction that makes the version live, after locking the policy.
    """
    if lacks_approval(version):
        raise NotApprovedError(version)


def lacks_approval(version: PolicyVersion) -> bool:
    """Return whether the policy requires an approval and no valid one is stored."""
    policy = Policy.objects.get(pk=version.policy_id)
    return policy.needs_approval and not approvals_of([version])[version.pk]


def approvals_of(versions: Sequence[PolicyVersion]) -> dict[int, list[PolicyApproval]]:
    """Return the valid approvals by version id, oldest first."""
    by_version: dict[int, list[PolicyApproval]] = {version.pk: [] for version in versions}
    stored = PolicyApproval.objects.filter(version__in=by_version).select_related("person", "version__policy")
    judged: dict[tuple[int, int], bool] = {}
    for approval in stored.order_by("at", "pk"):
        version = approval.version
        key = (approval.person_id, version.policy_id)
        if key not in judged:
            judged[key] = may_publish(_as_actor(approval.person), version.policy)
        # Checked at each read: an approval lapses with the role of the person.
        if judged[key] and approval.person_id != version.author_id:
            by_version[version.pk].append(approval)
    return by_version


def _as_actor(user: User) -> Actor:
    return person(user, via=CONSOLE)


def _lock(version: PolicyVersion) -> None:
    """Serialize approvals, withdrawals, and publishes."""
    Policy.objects.select_for_update(of=("self",)).get(pk=version.policy_id)


def _audit_fields(version: PolicyVersion, approval: PolicyApproval) -> dict[str, object]:
    return {"version": version.number, "person": approval.person.get_username(), "why": approval.why}
