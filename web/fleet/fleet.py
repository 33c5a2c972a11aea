"""The Fleet page: the server renders the verdict, and the live feed draws everything else."""

from __future__ import annotations

import json

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.automation.pool_policy import pool_policy
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.trials.trials_of_version import running_trials
from gateway.contracts.fleet_sample import FleetSample
from routing.policy.schema_versions import SchemaError
from simulator.replay.host_pace import read_paces
from web.fleet.block_sizes import seen_block_size_problems
from web.fleet.installation_problems import installation_problems
from web.live.feed import FleetFeed, fleet_feed
from web.live.scope import scope_of
from web.live.verdict import FleetVerdict
from web.shell.console_request import console_actor
from web.shell.frame import shell_context
from web.shell.shown_pools import shown_pools

TILES = (
    ("On time", "late=1"),
    ("TTFT p50, p90", "sort=ttft"),
    ("Hit rate, reported", "group=cause"),
    ("Load CV", "group=engine"),
    ("Requests", "group=tenant"),
    ("Queued requests", "state=running"),
)
"""Label of each tile in the first paint, and the query of the requests behind it.

The live feed adds the SLO and the pool to the label, and the pool and the time shown to the query.
"""


LANES = (
    ("waiting", "Waiting", "state=running"),
    ("dispatched", "Dispatched", "group=engine"),
    ("failed", "Failed", "state=failed"),
    ("rejected", "Rejected", "state=rejected"),
)
"""Name and title of each lane of the queue, and the query of the requests behind it."""
RANGES = (("5m", "5 min", "1"), ("1h", "1 h", "2"), ("24h", "24 h", "3"))
"""URL name, label, and key of each choice in the time control."""


PAST = FleetVerdict("quiet", "Past data.", "Loading history.", shape="unknown")
"""Text of the first paint when the URL is in the past. The script then shows the history or why it is unavailable."""


@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    """Show the verdict on the newest sample, and the frame that the live feed fills."""
    actor = console_actor(request)
    feed, scope = fleet_feed(), scope_of(actor)
    region = _region_words(feed.seen(scope))
    pools = shown_pools(actor)
    limits = {pool.slug: limit for pool in pools if (limit := _cv_limit(pool)) is not None}
    context = shell_context(
        request,
        page="Fleet",
        tiles=TILES,
        ranges=RANGES,
        lanes=LANES,
        # The live sentence must not appear above a past that is still loading or does not exist.
        verdict=PAST if request.GET.get("end") else feed.verdict(scope),
        region=region,
        trials=running_trials(actor),
        cv_limits=json.dumps(limits),
        targets=json.dumps(_targets(feed, [pool.slug for pool in pools])),
        may_connect=_is_empty(feed.latest) and may(actor, Role.ADMIN),
        installation_problems=installation_problems(actor),
        replays=read_paces(settings.STATE_DIR),
        block_problems=seen_block_size_problems(pools, feed.latest),
    )
    return render(request, "fleet/fleet.html", context)


def _targets(feed: FleetFeed, pools: list[str]) -> dict[str, float]:
    """Return the targets of the pools that the actor may see, and that of all others."""
    return {pool: target for pool, target in feed.targets.items() if not pool or pool in pools}


def _is_empty(sample: FleetSample | None) -> bool:
    """Return whether no engine is registered. Queries the database only if the newest sample has no engine."""
    return sample is not None and not sample.engines and not Engine.objects.exists()


def _cv_limit(pool: Pool) -> float | None:
    """Return the load CV above which the pool's live policy considers the load uneven; None if it cannot be read."""
    try:
        return pool_policy(pool).automation.rebalance.cv_high
    except (SchemaError, msgspec.ValidationError):
        return None


def _region_words(sample: FleetSample | None) -> str:
    """Return the region words before the pool in the scope label. The live feed writes the same words."""
    regions = sorted({pool.region for pool in sample.pools}) if sample else []
    return regions[0] if len(regions) == 1 else "All regions" if regions else "Fleet"
