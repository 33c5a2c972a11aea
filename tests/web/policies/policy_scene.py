"""A policy with two published versions, a pool that uses it, and forms that a browser sends."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponse
from django.test import Client

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.policies.document.form import as_posted
from controlplane.policies.document.text import completed, document_text
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import draft, publish_version
from gateway.contracts.fleet_sample import FleetSample, PoolSample
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

ACTOR = program("test")
SLUG = "chat-policy"
URL = f"/policies/{SLUG}"
FIRST, SECOND = {"ttft_slo_s": 4.0}, {"ttft_slo_s": 3.0, "order": {"name": "fifo"}}


def make_scene(engines: int = 2) -> Policy:
    """Return a policy whose version 2 is live, for the pool chat with this many engines."""
    pool = make_pool()
    for number in range(engines):
        url = f"http://10.0.0.{number + 1}:8000"
        Engine.objects.create(pool=pool, engine_id=f"e{number}", name=f"e{number}", url=url, connect_url=url)
    policy = pool.policy
    publish_version(draft(policy, FIRST, actor=ACTOR, message="first"), instead_of=None, actor=ACTOR)
    publish_version(draft(policy, SECOND, actor=ACTOR, message="second"), instead_of=1, actor=ACTOR)
    policy.refresh_from_db()
    return policy


def live_number(policy: Policy) -> int | None:
    """Return the number of the stored live version."""
    return Policy.objects.select_related("live_version").get(pk=policy.pk).live_version.number  # type: ignore[union-attr]


def publish_meanwhile(policy: Policy, document: Any) -> PolicyVersion:
    """Publish as another person."""
    version = draft(policy, document, actor=ACTOR, message="meanwhile")
    return publish_version(version, instead_of=live_number(policy), actor=ACTOR)


def typed(document: Any, /, *, base: int | None = 2, **changes: str) -> dict[str, str]:
    """Return the form of the editor after its JSON was changed from the live version to `document`."""
    live = completed(SECOND)
    posted = {**as_posted(live), "document": document_text(document), "shown": document_text(live)}
    return {**posted, "base": str(base or ""), "message": "because", **changes}


def publish_form(version: PolicyVersion, *, word: str = "chat") -> dict[str, Any]:
    """Return the form of the publish dialog."""
    return {"version": version.number, "typed": word}


def listed_errors(answer: HttpResponse) -> dict[str, str]:
    """Return the errors in the page's summary by path."""
    return dict(re.findall(r'<li data-path="([^"]*)" data-message="([^"]*)"', page_text(answer)))


def sample_of(pool: Pool, **fields: Any) -> FleetSample:
    """Return a fleet sample of one pool."""
    known: dict[str, Any] = {
        "pool_id": pool.slug,
        "name": pool.name,
        "region": "here",
        "served_model": pool.served_model,
        "placement": "least_cost",
        "order": "fifo",
        "policy_version": 2,
        "ttft_slo_s": 3.0,
        "tokens_per_s": 12_000.0,
        "unbound": 0,
        "unbound_tokens": 0,
        "oldest_wait_s": 0.0,
        "load_cv": 0.0,
        "requests_per_s": 9.4,
        "prompt_tokens_per_s": 1000.0,
        "ttft_p50_s": 0.4,
        "ttft_p90_s": 0.9,
        "ttft_p99_s": 1.9,
        "on_time_share": 0.984,
        "hit_share": 0.7,
        "late": 3,
    }
    at = fields.pop("at", 1_800_000_000.0)
    pools = (PoolSample(**{**known, **fields}),)
    return FleetSample(seq=1, at=at, window_s=60.0, snapshot_version=1, engines=(), pools=pools)


def browser_of(role: str, pool: Pool, *, check_forgery: bool = False) -> Client:
    """Return a client in which a person with that role is signed in."""
    return client_of(make_person(role, pool), check_forgery=check_forgery)
