"""Drafts, publishes, and rolls back policies. Nothing is overwritten: each change is a new version.

Operators of one of a policy's pools may draft. A version that goes live affects all of the policy's pools, so
publishing requires the role in each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models, transaction
from django.dispatch import Signal
from django.utils import timezone

from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.audit_values import audit_values
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import check_fields, check_names
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.platform.snapshot_change import record_change
from controlplane.policies.approvals import require_approved
from controlplane.policies.document.problems import validated
from controlplane.policies.document.whole_policy import WholePolicy, halves
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduleState
from controlplane.policies.roles import only_pool, require_all_pools, require_some_pool
from controlplane.policies.schedule_end import end_overtaken
from controlplane.policies.upgrade import deviation_note

went_live = Signal()
"""Sent with `version` and `actor` in the transaction in which a version goes live."""

draft_deleted = Signal()
"""Sent with `version` in the transaction that deletes a draft, before its row goes. Receivers delete what refers to
it, or raise ConflictError."""

POLICY_FIELDS = frozenset(settable_fields(Policy))
PUBLISH, ROLL_BACK = "policy.publish", "policy.roll_back"
"""Audit verbs for a version that goes live."""


class StalePolicyError(RuntimeError):
    """Another version was published in the meantime. `live` is the current live version; None: no version is live."""

    def __init__(self, policy: Policy, live: PolicyVersion | None) -> None:
        self.live = live
        where = f"version {live.number} is live" if live else "no version is live"
        super().__init__(f"someone else published {policy}: {where}; review it and publish again")


def create_policy(slug: str, name: str, *, actor: Actor, needs_approval: bool = False, why: str = "") -> Policy:
    """Store a policy without versions. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.OPERATOR)
    return recorded_change.create(
        Policy(slug=slug, name=name, needs_approval=needs_approval), "policy.create", actor=actor, why=why
    )


def change_policy(
    policy: Policy, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Policy:
    """Change POLICY_FIELDS. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError.

    Only admins may remove the approval requirement.
    """
    require_all_pools(actor, policy)
    check_names(changes, POLICY_FIELDS)
    with transaction.atomic():
        stored = Policy.objects.select_for_update(of=("self",)).get(pk=policy.pk)
        # Those whom it restrains could switch it off for a minute otherwise.
        if stored.needs_approval and changes.get("needs_approval") is False:
            require(actor, Role.ADMIN)
        return recorded_change.change(
            policy, changes, "policy.change", actor=actor, expected=expected, why=why, pool=only_pool(policy)
        )


def delete_policy(policy: Policy, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a policy without versions and pools. Raises NotAllowedError, StaleRevisionError, InUseError."""
    require_all_pools(actor, policy)
    recorded_change.delete(policy, "policy.delete", actor=actor, expected=expected, why=why)


def draft(
    policy: Policy, document: Any, *, actor: Actor, message: str = "", based_on: int | None = None
) -> PolicyVersion:
    """Store the document as the policy's next version, not live yet. Raises NotAllowedError, InvalidPolicyError.

    The stored document includes all defaults, so that a later program with other defaults reads the same policy.
    `based_on` is the number of the live version when the author began (None: the current one). For a document of the
    previous schema, the message ends with what the upgrade changed.
    """
    require_some_pool(actor, policy)
    complete = validated(document)
    message = _with_note(message, document)
    with transaction.atomic():
        version = _next_version(policy, complete, actor, message, based_on)
        after, pool = audit_values(version), only_pool(policy)
        audit.record_for(actor, "policy.draft", policy, after=after, why=message, pool=pool)
    return version


def delete_draft(version: PolicyVersion, *, actor: Actor, why: str = "") -> None:
    """Delete a version that never served a request, with its approvals, ended schedules, what-ifs, and shadows.

    Its author may delete it; otherwise deleting requires the role in all pools. Raises NotAllowedError, and
    ConflictError if the version was live, is scheduled, on trial, or was a canary. Its number is not used again.
    """
    own = actor.user is not None and version.author_id == actor.user.pk
    (require_some_pool if own else require_all_pools)(actor, version.policy)
    with transaction.atomic():
        policy = Policy.objects.select_for_update(of=("self",)).get(pk=version.policy_id)
        stored = policy.versions.select_for_update(of=("self",)).get(pk=version.pk)
        if stored.published_at is not None:
            raise ConflictError(f"v{stored.number} was live and stays, because decisions refer to it.")
        if stored.schedules.filter(state=ScheduleState.WAITING).exists():
            raise ConflictError(f"v{stored.number} is scheduled to go live. Cancel the scheduled publish first.")
        before, pool = audit_values(stored), only_pool(policy)
        draft_deleted.send(sender=PolicyVersion, version=stored)
        stored.schedules.all().delete()
        stored.approvals.all().delete()
        # By a query: the method raises for all versions.
        policy.versions.filter(pk=stored.pk, published_at=None).delete()
        Policy.objects.filter(pk=policy.pk, highest_deleted__lt=version.number).update(highest_deleted=version.number)
        audit.record_for(actor, "policy.delete_draft", policy, before=before, why=why, pool=pool)


def publish_version(version: PolicyVersion, *, instead_of: int | None, actor: Actor, why: str = "") -> PolicyVersion:
    """Make the version live in all pools of its policy and return it.

    `instead_of` is the number of the version that the caller believes to be live (None: no version). Raises
    NotAllowedError, StalePolicyError if another version is live, InvalidPolicyError if the stored document is no longer
    valid in this program, and NotApprovedError if a required approval is missing.
    """
    require_all_pools(actor, version.policy)
    validated(version.document)
    with transaction.atomic():
        policy = _locked(version, instead_of)
        # Under the policy's lock, which withdrawing an approval takes, too.
        require_approved(version)
        _activate(policy, version, PUBLISH, actor, why)
    return version


def roll_back(policy: Policy, number: int, *, instead_of: int | None, actor: Actor, why: str = "") -> PolicyVersion:
    """Publish a copy of version `number` as the newest version and return it.

    Raises the same errors as publish_version, but needs no approval, because rollbacks are for emergencies.
    """
    require_all_pools(actor, policy)
    with transaction.atomic():
        old = policy.versions.get(number=number)
        document = validated(old.document)
        message = _with_note(why or f"Roll back to version {number}", old.document)
        copy = _next_version(policy, document, actor, message, instead_of, copies=number)
        _activate(_locked(copy, instead_of), copy, ROLL_BACK, actor, why)
    return copy


def _with_note(message: str, document: Any) -> str:
    """Return a version's message, followed by how it differs from the document it was made of."""
    note = deviation_note(document) if isinstance(document, dict) else ""
    text = f"{message} ({note})".strip() if note else message
    limit = PolicyVersion._meta.get_field("message").max_length
    return text if not note or len(text) <= limit else f"{text[: limit - 1]}…"


def _next_version(
    policy: Policy,
    document: WholePolicy,
    actor: Actor,
    message: str,
    based_on: int | None,
    copies: int | None = None,
) -> PolicyVersion:
    # The lock serializes two authors, so that each gets a number of its own.
    stored = Policy.objects.select_for_update(of=("self",)).select_related("live_version").get(pk=policy.pk)
    newest = max(policy.versions.aggregate(newest=models.Max("number"))["newest"] or 0, stored.highest_deleted)
    live = stored.live_version
    routing, automation = halves(document)
    version = PolicyVersion(
        policy=policy,
        number=newest + 1,
        routing_document=routing,
        automation_document=automation,
        author=actor.user,
        message=message,
        based_on=based_on if based_on is not None or live is None else live.number,
        copies=copies,
    )
    check_fields(version)
    version.save()
    return version


def _locked(version: PolicyVersion, instead_of: int | None) -> Policy:
    """Lock the version's policy and return it. Raises StalePolicyError unless version `instead_of` is live."""
    # Of the policy alone: live_version may be NULL, and PostgreSQL locks no nullable side of a join.
    policy = Policy.objects.select_for_update(of=("self",)).select_related("live_version").get(pk=version.policy_id)
    live = policy.live_version
    if (live.number if live else None) != instead_of:
        raise StalePolicyError(policy, live)
    return policy


def _activate(policy: Policy, version: PolicyVersion, verb: str, actor: Actor, why: str) -> None:
    live = policy.live_version
    changed = Policy.objects.filter(pk=policy.pk, live_version=live).update(
        live_version=version, revision=models.F("revision") + 1
    )
    if not changed:
        raise StalePolicyError(policy, Policy.objects.select_related("live_version").get(pk=policy.pk).live_version)
    # By a query: save() raises for a stored version, and the first time counts.
    PolicyVersion.objects.filter(pk=version.pk, published_at=None).update(published_at=timezone.now())
    version.refresh_from_db()
    before = audit_values(live) if live else None
    audit.record_for(actor, verb, policy, before=before, after=audit_values(version), why=why, pool=only_pool(policy))
    went_live.send(sender=PolicyVersion, version=version, actor=actor)
    end_overtaken(policy, version.number, actor=actor)
    record_change()


DEFAULT = "default"


def create_live_policy(slug: str, name: str, *, actor: Actor, document: Any = None, why: str = "") -> Policy:
    """Create a policy and publish its first version. `document` contains the deviations from the defaults.

    Raises NotAllowedError, InvalidFieldsError, InvalidPolicyError.
    """
    with transaction.atomic():
        policy = create_policy(slug, name, actor=actor, why=why)
        publish_first_version(policy, actor=actor, document=document)
    return policy


def publish_first_version(policy: Policy, *, actor: Actor, document: Any = None) -> None:
    """Publish the first version of a policy without a live version."""
    first = draft(policy, document or {}, actor=actor, message="The defaults of this program")
    publish_version(first, instead_of=None, actor=actor)
    policy.refresh_from_db()


def usual_policy(*, actor: Actor) -> Policy:
    """Return the policy for a new pool: `default`, otherwise the first live policy, otherwise a new one."""
    live = Policy.objects.filter(live_version__isnull=False).order_by("slug")
    return live.filter(slug=DEFAULT).first() or live.first() or create_live_policy(DEFAULT, "Default", actor=actor)
