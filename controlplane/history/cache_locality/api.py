"""`/api/v1/pools/…/rings`, `/api/v1/pools/…/cache_locality`, and `/api/v1/engines/…/hits`: cache locality."""

from __future__ import annotations

import time

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.history.cache_locality.answers import cache_locality_answer, hits_answer, rings_answer
from controlplane.history.cache_locality.intake import PoolCacheReport, cache_locality_intake
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.views import ApiView
from gateway.contracts.cache_locality_sample import EngineCacheLocality
from routing.rings.ring_shares import UnknownEngineError


class RingEngineShape(serializers.Serializer):
    """One engine on the rings of its pool. Shares 0..1."""

    engine = serializers.CharField()
    name = serializers.CharField()
    by_ring = serializers.ListField(child=serializers.FloatField(), help_text="Exact share of each ring.")
    share = serializers.FloatField(allow_null=True, help_text="Share of all key positions; a key has one per ring.")
    traffic = serializers.FloatField(allow_null=True, help_text="Share of key positions of observed requests.")
    dispatched = serializers.FloatField(allow_null=True, help_text="Share of observed requests.")
    gain = serializers.FloatField(allow_null=True, help_text="Gain in share if the other engine leaves.")
    traffic_gain = serializers.FloatField(allow_null=True)


class PoolRingsShape(serializers.Serializer):
    """The hash rings of one pool, and their changes if an engine left."""

    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="Time of the gateway's sample; null: no recent sample.")
    gateway = serializers.CharField(help_text="Gateway of the sample; empty: this process.")
    placement = serializers.CharField()
    rings = serializers.IntegerField(help_text="0: the placement uses none.")
    virtual_nodes = serializers.IntegerField()
    ideal = serializers.FloatField(allow_null=True, help_text="Ideal share per engine.")
    requests = serializers.IntegerField(help_text="Window of traffic and dispatched.")
    without = serializers.CharField(help_text="Engine to remove; empty: none.")
    moved = serializers.FloatField(allow_null=True, help_text="Share of key positions that would move.")
    keys_changed = serializers.FloatField(allow_null=True, help_text="Share of keys whose candidates would change.")
    traffic_moved = serializers.FloatField(
        allow_null=True, help_text="Share of key positions of observed requests that would move."
    )
    engines = RingEngineShape(many=True)


class SharedPrefixBody(serializers.Serializer):
    """A sequence of blocks shared by prompts. Keys are keyed digests and reveal no text."""

    key = serializers.CharField(help_text="Key of its last block, 16 hex digits.")
    parent = serializers.CharField(allow_null=True, help_text="Key of its parent prefix.")
    first_block = serializers.IntegerField(help_text="Counted from 1.")
    last_block = serializers.IntegerField()
    requests = serializers.IntegerField()
    share = serializers.FloatField(help_text="Share of observed requests, 0..1.")
    holders = serializers.ListField(child=serializers.CharField(), help_text="Engines that hold it, by the index.")
    key_blocks = serializers.IntegerField(help_text="Length of the placement key that ends here, in blocks; 0: none.")
    copies = serializers.ListField(
        child=serializers.IntegerField(allow_null=True),
        help_text="Node managers that hold it, in each of the last 60 minutes, the current one last; null: unknown.",
    )


class TtftPartsShape(serializers.Serializer):
    """Parts of a time to first token, in seconds."""

    queue_s = serializers.FloatField()
    transfer_s = serializers.FloatField()
    prefill_s = serializers.FloatField()


class TtftSpanShape(serializers.Serializer):
    """Parts of one engine's time to first token over a time span."""

    span_s = serializers.FloatField()
    requests = serializers.IntegerField()
    mean = TtftPartsShape()
    p90 = TtftPartsShape(help_text="Means of requests around the p90 TTFT.")


class EngineHitsShape(serializers.Serializer):
    """Predicted and reported hits of one engine's requests."""

    engine = serializers.CharField()
    name = serializers.CharField()
    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="Time of the gateway's sample; null: no recent sample.")
    compared = serializers.IntegerField(help_text="Requests compared in the last 5 minutes, 64 at most.")
    differing = serializers.IntegerField()
    predicted_tokens = serializers.IntegerField(help_text="Cached prompt tokens predicted by the index.")
    reported_tokens = serializers.IntegerField(help_text="Cached prompt tokens reported by the engine.")
    ratio = serializers.FloatField(allow_null=True, help_text="Reported / predicted; null: nothing predicted.")
    trust = serializers.CharField(help_text="exact, degraded or blind; empty: unknown.")
    trust_reason = serializers.CharField()
    trust_since = serializers.DateTimeField(allow_null=True, help_text="null: since the gateway started.")
    cause = serializers.CharField(help_text="Code of the cause of a mismatch; empty: none, or unknown.")


class EngineCacheLocalityShape(EngineHitsShape):
    """One engine's share of its pool's traffic."""

    requests = serializers.IntegerField(help_text="Observed requests.")
    ttft = TtftSpanShape(many=True)


class PoolCacheLocalityShape(serializers.Serializer):
    """Shared prefixes of one pool, and the engines that serve them."""

    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="Time of the gateway's sample; null: no recent sample.")
    gateway = serializers.CharField(help_text="Gateway of the sample; empty: this process.")
    gateways = serializers.IntegerField(
        help_text="Gateways with a recent sample; the one with the most requests is shown."
    )
    placement = serializers.CharField()
    block_tokens = serializers.IntegerField()
    requests = serializers.IntegerField()
    span_s = serializers.FloatField(help_text="Window of the observed requests.")
    prefixes = SharedPrefixBody(many=True)
    engines = EngineCacheLocalityShape(many=True)


class _OfPool(ApiView):
    noun = "pools"

    def reported(self, slug: str) -> tuple[str, PoolCacheReport | None]:
        """Return the pool's slug, if the actor may see the pool, and a gateway's report about it."""
        pool_slug: str = visible_pools(self.actor).get(slug=slug).slug
        return pool_slug, cache_locality_intake().of(pool_slug, time.time())


class PoolRings(_OfPool):
    """The hash rings of one pool."""

    shape = PoolRingsShape
    parameters = (
        OpenApiParameter(
            "without", {"type": "string", "maxLength": 64}, description="Id or name of an engine to remove."
        ),
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """Return each engine's exact share of the keys.

        With `without`, also return the keys that would move if that engine left.
        """
        pool, report = self.reported(slug)
        try:
            return self.show(rings_answer(pool, report, request.query_params.get("without", "")))
        except UnknownEngineError as error:
            raise ProblemError(400, f"{error}. Name an engine that is listed without this parameter.") from error


class PoolCacheLocalityView(_OfPool):
    """Shared prefixes, engines, and the parts of the time to first token."""

    shape = PoolCacheLocalityShape

    def get(self, request: Request, *, slug: str) -> Response:
        """Return the shared prefixes and the engines that hold them, TTFT by part, and reported hits."""
        pool, report = self.reported(slug)
        copies, now = cache_locality_intake().copies, time.time()
        return self.show(cache_locality_answer(pool, report, lambda key: copies(pool, key, now)))


class OneEngineHits(ApiView):
    """Accuracy of the cache index of one engine."""

    noun = "engines"
    shape = EngineHitsShape

    def get(self, request: Request, *, engine_id: str) -> Response:
        """Return predicted and reported hits, the trust in the engine's index, and its reason."""
        engine = visible_engines(self.actor).select_related("pool").get(engine_id=engine_id)
        report = cache_locality_intake().of(engine.pool.slug, time.time())
        localities = [item for item in report.pool.engines if item.engine_id == engine_id] if report is not None else []
        if not localities:
            report = None
            localities = [EngineCacheLocality(engine_id=engine_id, name=engine.name, accepts=False)]
        return self.show(hits_answer(localities[0], engine.pool.slug, report))
