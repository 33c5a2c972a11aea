"""Intervals and limits of one gateway, with their units."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.base.peer_settings import PeerSettings
from kvstore.transfer.shared_secret import NodeAccess

PROBE_TIMEOUT_S, HANG_LIMIT_S, ANSWER_LIMIT_S = 5, 300, 3600
"""Defaults of EngineLimits. A busy API server answers probes within seconds, cold compilation takes minutes, and a
request with few tokens to generate that runs for an hour will not end.
"""


PROXY_BODY_LIMIT, PROXY_BODY_RANGE = 64 << 20, (1 << 10, 256 << 20)
"""Limit of a body with a prompt in bytes, and the range of that setting. The default allows a dozen phone images or an
hour of compressed speech; other regions accept no more than the maximum.
"""
CLIENT_IDLE_S = 3900
"""Idle connections stay open longer than clients and proxies keep them, so that no request meets a closing connection.
Envoy keeps them for an hour, OkHttp for 5 minutes, Go and hyper for 90 s, nginx for 60 s.
"""
FLEET_SECRET = "HEADWAY_FLEET_SECRET"  # noqa: S105 - the variable's name, not the secret
FLEET_SECRET_ALSO = "HEADWAY_FLEET_SECRET_ALSO"  # noqa: S105 - as above


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When an engine is removed from rotation, and when it can return."""

    connect_failures: int = 3
    """Consecutive failed connections of requests that open the breaker."""
    timeouts: int = 3
    server_errors: int = 5
    """Consecutive 5xx responses or broken streams that open it, as in Envoy's outlier detection."""
    rejections: int = 3
    """Consecutive 401, 403, 404, 408 or 425 responses that open it: as many as can always be retried (RetryBudget)."""
    throttle_s: float = 1.0
    """Pause of an engine that responds 429 or 503 without a retry time."""
    throttle_max_s: float = 30.0
    failed_probes: int = 2
    """Consecutive failures of the gateway's own probes that open it. A refused connection opens it at once."""
    outlier_hold_s: float = 30.0
    """Seconds that an engine with 5xx responses but a healthy /health stays out, times its number of ejections."""
    outlier_hold_max_s: float = 300.0
    stall_s: float = 2.5
    """An engine whose streams are silent for this long beyond 1.5 times its longest prefill gets no new work while
    other streams progress.
    """
    trial_s: float = 1.0
    """Half-open seconds after which a second healthy probe closes the breaker of an idle engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Seconds after which an engine counts as dead. Measured times can only extend these limits."""

    probe_timeout_s: float = PROBE_TIMEOUT_S
    """A probe without a response counts as silent after this time."""
    hang_limit_s: float = HANG_LIMIT_S
    """Requests leave an engine that makes no progress for this long."""
    answer_limit_s: float = ANSWER_LIMIT_S
    """Time limit of one attempt. A large `max_tokens` extends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Limits of the KV-event intake of one engine."""

    replay_timeout_s: float = 2.0
    """Silence after which a running replay is abandoned."""
    verify_after_s: float = 2.0
    """Silence of the event socket after which the last batch is requested again, as a sign of life."""
    retry_min_s: float = 0.1
    retry_max_s: float = 2.0
    """Maximum pause between replays without progress. The pause doubles up to this value."""
    max_replays: int = 4
    """Replays without progress after which the gap is abandoned: the index is cleared and rebuilt."""
    max_pending: int = 4096
    """Live batches buffered during a replay. Further batches are dropped and requested again."""
    max_pending_bytes: int = 64 << 20
    max_batch_bytes: int = 16 << 20
    max_blocks: int = 500_000
    """Limit of blocks stored per engine."""
    rebuild_blocks: int = 4096
    """Minimum number of blocks to receive again before an index with lost history counts as exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway's intervals and limits, set once by the composition root."""

    window_s: float = 60.0
    """Length of the traffic window for percentiles and shares."""
    window_max_results: int = 16_384
    sample_interval_s: float = 0.5
    """Interval of fleet samples and of engine health evaluations."""
    tick_s: float = 0.02
    """Maximum interval between router runs in a pool with queued requests."""
    probe_interval_s: float = 0.5
    """Pause between the gateway's own probes of an engine that is suspect or out of rotation."""
    report_stale_s: float = 2.0
    """A report older than this is ignored for health; the gateway then probes the engine itself."""
    first_probe_s: float = 1.0
    """Maximum time that `Gateway.start` waits for the first response of every engine."""
    connect_timeout_s: float = 2.0
    index_max_bytes: int = 256 << 20
    """Memory budget of each pool's prefix index."""
    max_dispatched: int = 65_536
    """Requests per pool whose keys are kept until their first token (approximate pools)."""
    snapshot_max_age_s: float = 7 * 86_400.0
    """Maximum age since the last confirmation of a snapshot on disk. Older snapshots are not served, and a gateway
    whose bus was unreachable for longer rejects all API keys.
    """
    key_usage_interval_s: float = 5.0
    """Interval of reports of API keys' last use to the control plane."""
    cache_locality_interval_s: float = 2.0
    """Interval of reports on the spread of prompts over engines."""
    cost_report_interval_s: float = 15.0
    observe_delay_s: float = 60.0
    """Delay between the start of an observed request and its playback, so that late reports are played in order."""
    shadow_report_interval_s: float = 2.0
    """Interval of reports on the choices of shadow policies."""
    arm_report_interval_s: float = 1.0
    """Interval of reports on trial arms to the control plane while policies are compared."""
    request_interval_s: float = 0.5
    """Interval at which ended requests are sent to the request log."""
    decisions_kept_per_s: float = 50.0
    """Decisions kept per second. Beyond it, only a share is kept, plus all that missed their objective or failed."""
    recording: bool = True
    """Also sends the shape of every ended request to the request log."""
    stream_comment_s: float = 0.0
    """Interval of SSE comments to a client whose stream has not begun; 0 disables them."""
    snapshot_refresh_s: float = 600.0
    """Interval at which the snapshot on disk is confirmed while the gateway runs."""
    kv_access: NodeAccess = field(default_factory=NodeAccess)
    """Access to the node managers."""
    peers: PeerSettings | None = None
    """This gateway's address for other gateways; None: it connects to none."""
    engine_bearer: str = field(default="", repr=False)
    """API key for engines whose pools have no key; sent if the snapshot requires it."""
    limits: EngineLimits = field(default_factory=EngineLimits)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    events: EventSettings = field(default_factory=EventSettings)
