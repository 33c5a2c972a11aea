"""Which prompts go where, on the wire: rings, shared prefixes, parts of TTFT, and hits as predicted and reported."""

from __future__ import annotations

from rest_framework import serializers


class RingEngineShape(serializers.Serializer):
    """One engine on the rings of its pool. Shares 0..1."""

    engine = serializers.CharField()
    name = serializers.CharField()
    by_ring = serializers.ListField(child=serializers.FloatField(), help_text="Its exact share of each ring.")
    share = serializers.FloatField(allow_null=True, help_text="Of all places of keys; a key has one per ring.")
    traffic = serializers.FloatField(allow_null=True, help_text="Of the places of the requests that were seen.")
    granted = serializers.FloatField(allow_null=True, help_text="Of the requests that were seen, those it got.")
    gain = serializers.FloatField(allow_null=True, help_text="What share grows by if the other engine leaves.")
    traffic_gain = serializers.FloatField(allow_null=True)


class PoolRingsShape(serializers.Serializer):
    """The hash rings of one pool, and what would move if an engine left."""

    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="When a gateway told it; null: none has lately.")
    gateway = serializers.CharField(help_text="That told it; empty: the one of this process.")
    placement = serializers.CharField()
    rings = serializers.IntegerField(help_text="0: the placement uses none.")
    virtual_nodes = serializers.IntegerField()
    ideal = serializers.FloatField(allow_null=True, help_text="An engine's share if all had the same.")
    requests = serializers.IntegerField(help_text="Of the last minutes, that traffic and granted are counted over.")
    without = serializers.CharField(help_text="Engine that is taken out; empty: none.")
    moved = serializers.FloatField(allow_null=True, help_text="Share of places that would get another engine.")
    keys_changed = serializers.FloatField(allow_null=True, help_text="Share of keys with other candidates.")
    traffic_moved = serializers.FloatField(allow_null=True, help_text="Share of places of the requests seen.")
    engines = RingEngineShape(many=True)


class SharedPrefixShape(serializers.Serializer):
    """A run of blocks along which prompts stay together; keys are keyed digests, never text."""

    key = serializers.CharField(help_text="Of its last block, 16 hex digits.")
    parent = serializers.CharField(allow_null=True, help_text="Key of the prefix it continues.")
    first_block = serializers.IntegerField(help_text="Counted from 1.")
    last_block = serializers.IntegerField()
    requests = serializers.IntegerField()
    share = serializers.FloatField(help_text="Of the requests that were seen, 0..1.")
    holders = serializers.ListField(child=serializers.CharField(), help_text="Engines that hold it by the index.")
    key_blocks = serializers.IntegerField(help_text="Blocks of the placement's key that ends here; 0: none does.")


class TtftPartsShape(serializers.Serializer):
    """Parts of a time to first token, in seconds."""

    queue_s = serializers.FloatField()
    transfer_s = serializers.FloatField()
    prefill_s = serializers.FloatField()


class TtftSpanShape(serializers.Serializer):
    """Where one engine's time to first token went over a span."""

    span_s = serializers.FloatField()
    requests = serializers.IntegerField()
    mean = TtftPartsShape()
    p90 = TtftPartsShape(help_text="Of the requests around the 90th percentile of TTFT.")


class EngineHitsShape(serializers.Serializer):
    """Hits that were predicted for one engine's requests, and those that it reported."""

    engine = serializers.CharField()
    name = serializers.CharField()
    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="When a gateway told it; null: none has lately.")
    compared = serializers.IntegerField(help_text="Requests of the last 5 minutes that were compared, 64 at most.")
    differing = serializers.IntegerField()
    predicted_tokens = serializers.IntegerField(help_text="Prompt tokens that the index knew on the engine.")
    reported_tokens = serializers.IntegerField(help_text="Prompt tokens that it reported as cached.")
    ratio = serializers.FloatField(allow_null=True, help_text="Reported by predicted; null: nothing was predicted.")
    trust = serializers.CharField(help_text="exact, degraded or blind; empty: not known.")
    trust_reason = serializers.CharField()
    trust_since = serializers.DateTimeField(allow_null=True, help_text="null: since the gateway began to look.")
    cause = serializers.CharField(help_text="Why hits differ: a code; empty: they do not, or no cause was found.")


class EngineAffinityShape(EngineHitsShape):
    """One engine's part in its pool's traffic."""

    requests = serializers.IntegerField(help_text="Of those that were seen.")
    ttft = TtftSpanShape(many=True)


class PoolAffinityShape(serializers.Serializer):
    """Which prompts go where in one pool."""

    pool = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True, help_text="When a gateway told it; null: none has lately.")
    gateway = serializers.CharField(help_text="That told it; empty: the one of this process.")
    gateways = serializers.IntegerField(help_text="That were heard lately; the one with most requests is shown.")
    placement = serializers.CharField()
    block_tokens = serializers.IntegerField()
    requests = serializers.IntegerField()
    span_s = serializers.FloatField(help_text="How far the requests that were seen go back.")
    prefixes = SharedPrefixShape(many=True)
    engines = EngineAffinityShape(many=True)
