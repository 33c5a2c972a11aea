"""A policy that serves at once: for pools that are made before anybody wrote one."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from controlplane.platform.actor import Actor
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import create_policy, draft, publish_version

DEFAULT = "default"


def create_live_policy(slug: str, name: str, *, actor: Actor, document: Any = None, why: str = "") -> Policy:
    """Store a policy whose first version is live; `document` says what differs from the program's defaults.

    Raises NotAllowedError, InvalidFieldsError, InvalidPolicyError.
    """
    with transaction.atomic():
        policy = create_policy(slug, name, actor=actor, why=why)
        make_live(policy, actor=actor, document=document)
    return policy


def make_live(policy: Policy, *, actor: Actor, document: Any = None) -> None:
    """Publish a first version of a policy that has none live."""
    first = draft(policy, document or {}, actor=actor, message="The defaults of this program")
    publish_version(first, instead_of=None, actor=actor)
    policy.refresh_from_db()


def usual_policy(*, actor: Actor) -> Policy:
    """Return the policy for a new pool: `default`, else the first that is live; made where there is none."""
    live = Policy.objects.filter(live_version__isnull=False).order_by("slug")
    return live.filter(slug=DEFAULT).first() or live.first() or create_live_policy(DEFAULT, "Default", actor=actor)
