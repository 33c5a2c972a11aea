"""Writes, publishes and rolls back policies. Nothing is overwritten: each change is a new version."""

from __future__ import annotations

from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import models, transaction
from django.utils import timezone

from controlplane.models import Policy, PolicyVersion
from controlplane.services.policy_problems import validated
from controlplane.services.publication import record_change


class StalePolicyError(RuntimeError):
    """Somebody else published in the meantime."""


def draft(policy: Policy, document: Any, *, author: User | None, message: str = "") -> PolicyVersion:
    """Store the document as the policy's next version, not live yet; raises InvalidPolicyError.

    What is stored is complete: defaults are written out, so that a later program with other defaults
    reads the same policy.
    """
    complete = msgspec.to_builtins(validated(document))
    with transaction.atomic():
        # The lock makes two authors take turns, so that each gets a number of its own.
        Policy.objects.select_for_update().get(pk=policy.pk)
        newest = policy.versions.aggregate(newest=models.Max("number"))["newest"] or 0
        return PolicyVersion.objects.create(
            policy=policy, number=newest + 1, routing_document=complete, author=author, message=message
        )


def publish_version(version: PolicyVersion, *, instead_of: int | None) -> None:
    """Make the version live in all pools of its policy.

    `instead_of` is the number of the version that the caller believes to be live (None: none is);
    raises StalePolicyError when another one is, and InvalidPolicyError when the stored document no
    longer fits this program.
    """
    validated(version.routing_document)
    with transaction.atomic():
        live = version.policy.versions.get(number=instead_of) if instead_of is not None else None
        changed = Policy.objects.filter(pk=version.policy_id, live_version=live).update(live_version=version)
        if not changed:
            raise StalePolicyError(f"{version.policy} was published by somebody else; look at its live version again")
        PolicyVersion.objects.filter(pk=version.pk, published_at=None).update(published_at=timezone.now())
        record_change()
    version.refresh_from_db()


def roll_back(policy: Policy, number: int, *, author: User | None) -> PolicyVersion:
    """Publish a copy of version `number` as the newest version and return it."""
    with transaction.atomic():
        policy.refresh_from_db()
        old = policy.versions.get(number=number)
        copy = draft(policy, old.routing_document, author=author, message=f"Roll back to version {number}")
        publish_version(copy, instead_of=policy.live_version.number if policy.live_version else None)
    return copy
