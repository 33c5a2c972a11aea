"""A policy with two published versions, and its pool."""

from __future__ import annotations

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy import Policy
from tests.web.policies.policy_scene import make_scene
from web.live.feed import FleetFeed


@pytest.fixture
def policy(feed: FleetFeed) -> Policy:
    return make_scene()


@pytest.fixture
def pool(policy: Policy) -> Pool:
    return policy.pools.get()
