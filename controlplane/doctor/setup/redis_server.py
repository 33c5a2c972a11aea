"""Does the Redis server that several processes need answer?"""

from __future__ import annotations

from typing import Any, cast

import redis

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation

_ALLOWED_EVICTION = "noeviction"


def look(installation: Installation) -> list[Finding]:
    """Ask it for its version and whether it may throw our keys away."""
    if not installation.redis_url:
        return [ok("REDIS_URL is empty: bus and broker serve the processes of this machine only.")]
    try:
        with redis.Redis.from_url(installation.redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
            about = cast("dict[str, Any]", client.info())
            version, policy = str(about["redis_version"]), str(about.get("maxmemory_policy", ""))
    except (redis.RedisError, ValueError, OSError) as error:
        return [
            problem(
                f"The server at REDIS_URL does not answer: {type(error).__name__}.",
                "Start it, or correct REDIS_URL (redis://[:password@]host:port/number).",
            )
        ]
    if policy not in ("", _ALLOWED_EVICTION):
        return [
            warning(f"Redis {version} answers, but may evict our keys ({policy}).", "Set maxmemory-policy noeviction.")
        ]
    return [ok(f"Redis {version} answers.")]
