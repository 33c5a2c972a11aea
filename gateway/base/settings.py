"""Intervals and limits of one gateway, all with their units."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.base.peer_settings import PeerSettings
from kvstore.transfer.shared_secret import NodeAccess
from routing.advisories.call_graph import CallGraph

PROBE_TIMEOUT_S, HANG_LIMIT_S, ANSWER_LIMIT_S = 5, 300, 3600
"""Defaults of EngineLimits: a busy API server answers its probes within seconds; cold compilation takes minutes; and a
request that takes an hour without many tokens to generate will not end by itself.
"""


PROXY_BODY_LIMIT, PROXY_BODY_RANGE = 64 << 20, (1 << 10, 256 << 20)
"""Bytes of a body with a prompt: a dozen images of a phone, or an hour of compressed speech; and the range of the
limit, no more than other regions take.
"""
CLIENT_IDLE_S = 3900
"""Idle connections stay open longer than clients and proxies keep them, so that no request meets a closing connection:
Envoy for an hour, OkHttp for 5 minutes, Go and hyper for 90 s, nginx for 60 s."""
FLEET_SECRET = "HEADWAY_FLEET_SECRET"  # noqa: S105 - the variable's name, not the secret
FLEET_SECRET_ALSO = "HEADWAY_FLEET_SECRET_ALSO"  # noqa: S105 - as above


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When an engine is taken out of rotation and when it may return."""

    connect_failures: int = 3
    """Consecutive failed connections of requests that open the breaker."""
    timeouts: int = 3
    server_errors: int = 5
    """Consecutive 5xx answers or broken streams that open it, as in Envoy's outlier detection."""
    rejections: int = 3
    """Consecutive 401, 403, 404, 408 or 425 that open it: as many as may always be retried (RetryBudget)."""
    throttle_s: float = 1.0
    """Pause of an engine that answers 429 or 503 without stating a time."""
    throttle_max_s: float = 30.0
    failed_probes: int = 2
    """Consecutive failures of the gateway's own probes; a refused connection opens at once."""
    outlier_hold_s: float = 30.0
    """An engine that answers 5xx although /health is fine stays out this long, times its number of ejections."""
    outlier_hold_max_s: float = 300.0
    stall_s: float = 2.5
    """An engine whose streams bring nothing for this long, beyond one and a half times its longest prefill, gets no new
    work while others move."""
    trial_s: float = 1.0
    """Half-open time after which a second healthy probe closes the breaker of an idle engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits after which an engine counts as dead, in seconds; its measured times only extend them."""

    probe_timeout_s: float = PROBE_TIMEOUT_S
    """A probe without answer counts as silent after this time."""
    hang_limit_s: float = HANG_LIMIT_S
    """Requests leave an engine without any progress for this long."""
    answer_limit_s: float = ANSWER_LIMIT_S
    """An attempt may take this long in all, or longer by its `max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Limits of the KV-event intake of one engine."""

    replay_timeout_s: float = 2.0
    """Silence after which a running replay is given up."""
    verify_after_s: float = 2.0
    """Silence of the event socket after which the last batch is asked for again, as a sign of life."""
    retry_min_s: float = 0.1
    retry_max_s: float = 2.0
    """Pause between replays that made no progress, doubled from the first value to the second."""
    max_replays: int = 4
    """Replays without progress after which the gap is given up: the index is cleared and rebuilt."""
    max_pending: int = 4096
    """Live batches kept while a replay runs; more are dropped and asked for again."""
    max_pending_bytes: int = 64 << 20
    max_batch_bytes: int = 16 << 20
    max_blocks: int = 500_000
    """Blocks remembered per engine."""
    rebuild_blocks: int = 4096
    """Blocks that must arrive again, at least, before an index whose history was lost counts as exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway's intervals and limits, set by the composition root and never changed."""

    window_s: float = 15.0
    """Length of the traffic window behind percentiles and shares."""
    window_max_results: int = 16_384
    sample_interval_s: float = 0.5
    """Interval of fleet samples, and of evaluations of the engines' health."""
    tick_s: float = 0.02
    """A pool with queued requests runs its router at least this often."""
    probe_interval_s: float = 0.5
    """Pause between the gateway's own probes of an engine that is suspect or out of rotation."""
    report_stale_s: float = 2.0
    """A report older than this says nothing about health; the gateway then probes by itself."""
    first_probe_s: float = 1.0
    """`Gateway.start` waits this long for the first answer of every engine."""
    connect_timeout_s: float = 2.0
    index_max_bytes: int = 256 << 20
    """Budget of each pool's prefix index."""
    max_dispatched: int = 65_536
    """Requests per pool whose keys are kept until their first token (approximate pools)."""
    snapshot_max_age_s: float = 7 * 86_400.0
    """A last-known-good snapshot on disk that was confirmed longer ago than this is not served, and a gateway whose bus
    was away for longer rejects all API keys.
    """
    key_usage_interval_s: float = 5.0
    """Interval at which last uses of API keys are reported to the control plane."""
    cache_locality_interval_s: float = 2.0
    """Interval at which the spread of prompts over engines is reported."""
    cost_report_interval_s: float = 15.0
    observe_delay_s: float = 60.0
    """Observed requests are played back this long after they began, so that those reported late fall into their place.
    """
    shadow_report_interval_s: float = 2.0
    """Interval at which the choices of shadow policies are reported."""
    arm_report_interval_s: float = 1.0
    """Interval at which results of arms are reported to the control plane, while policies are compared."""
    request_interval_s: float = 0.5
    """Ended requests go to the request log this often."""
    decisions_kept_per_s: float = 50.0
    """Decisions kept per second; beyond it a share of them, and all that missed their objective or failed."""
    recording: bool = True
    """The shape of every ended request goes to the request log, too."""
    stream_comment_s: float = 0.0
    """Interval of SSE comments to a client whose stream has not begun; 0: none."""
    snapshot_refresh_s: float = 600.0
    """The snapshot on disk is confirmed this often while the gateway runs."""
    kv_access: NodeAccess = field(default_factory=NodeAccess)
    """Access to the node managers."""
    peers: PeerSettings | None = None
    """This gateway's address for other gateways; None: it knows of no others."""
    call_graph: CallGraph | None = None
    """Predicts agents' next requests; None: they are not predicted."""
    engine_bearer: str = field(default="", repr=False)
    """Key of the engines whose pools have none of their own; sent where the snapshot demands it."""
    limits: EngineLimits = field(default_factory=EngineLimits)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    events: EventSettings = field(default_factory=EventSettings)
