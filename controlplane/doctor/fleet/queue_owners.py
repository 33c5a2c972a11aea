"""Do the gateways of each pool agree on its owner?"""

from __future__ import annotations

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.platform.live_fleet.samples import fleet_samples
from gateway.contracts.fleet_sample import FleetSample, PoolRole
from routing.values.counted import count

FRESH_S = 5.0
LONG_S = 10.0
"""An election takes two seconds; gateways that disagree for longer have another reason."""


def look(installation: Installation) -> list[Finding]:
    """Ask which gateways decide alone, or know different owners; nothing where there is one gateway."""
    now = installation.now.timestamp()
    return judged([each for each in fleet_samples().newest() if abs(now - each.at) <= FRESH_S], now)


def judged(samples: list[FleetSample], now: float) -> list[Finding]:
    """Return what the newest samples of all gateways say; `now` is unix seconds."""
    roles: dict[str, list[PoolRole]] = {}
    for sample in samples:
        for pool in sample.pools:
            roles.setdefault(pool.pool_id, []).extend(pool.roles)
    found = []
    for pool_id, told in sorted(roles.items()):
        alone = [each for each in told if each.role == "alone" and now - each.since > LONG_S]
        settled = {(each.epoch, each.owner) for each in told if each.owner and now - each.since > LONG_S}
        if alone:
            names = "; ".join(f"{each.gateway} ({each.reason})" for each in alone)
            found.append(
                warning(
                    f"Gateways decide alone about {pool_id}: {names}.",
                    "Let the gateways reach each other's SWITCHYARD_PEER_LISTEN, and Redis.",
                )
            )
        elif len(settled) > 1:
            owners = ", ".join(f"{owner} (epoch {epoch})" for epoch, owner in sorted(settled))
            found.append(
                warning(
                    f"Gateways know different owners of {pool_id}: {owners}.",
                    "Let the gateways reach each other's SWITCHYARD_PEER_LISTEN.",
                )
            )
    shared = sum(1 for told in roles.values() if told)
    return found or ([ok(f"The gateways agree on who owns {count(shared, 'pool')}.")] if shared else [])
