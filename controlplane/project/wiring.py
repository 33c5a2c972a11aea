"""Connects features that may not import each other: signals of lower features, and their receivers."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models.signals import post_save

from controlplane.access.models.person import add_person
from controlplane.platform import snapshot_change
from controlplane.platform.actor import Actor
from controlplane.policies import publish, trials_of_version
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.roles import only_pool
from controlplane.publication import snapshot
from controlplane.trials.canary.end import end_running
from controlplane.trials.trials_of_version import SOURCES, delete_trials


def connect() -> None:
    """Connect all signals. A second call changes nothing."""
    post_save.connect(add_person, sender=User)
    snapshot_change.committed.connect(_publish)
    publish.went_live.connect(_end_canary)
    publish.draft_deleted.connect(delete_trials)
    trials_of_version.SOURCES.update(SOURCES)


def _publish(**_announced: Any) -> None:
    snapshot.publish()


def _end_canary(*, version: PolicyVersion, actor: Actor, **_announced: Any) -> None:
    reason = f"Version {version.number} went live"
    end_running(version.policy, reason, actor=actor, pool=only_pool(version.policy))
