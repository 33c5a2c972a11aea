"""All wire input is read or rejected; no other error is ever raised. `make fuzz` tries 10,000 inputs of each."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.api.route_request import read_at_once, read_flat
from gateway.contracts import (
    advisory,
    cache_locality_sample,
    engine_report,
    fleet_sample,
    kv_move,
    rebalance_order,
    recent_question,
    request_batch,
    shadow_tally,
    stored_decision,
    traffic_row,
)
from gateway.contracts.snapshot import decode_snapshot, encode_snapshot
from gateway.contracts.wire import UnreadableMessageError, WireForm
from gateway.peers.links import peer_calls, peer_link
from gateway.peers.owners import peer_directory, pool_owners, quota_shares
from gateway.peers.regions import forward_client, region_peers, region_takeover
from gateway.pools.engines.engine_metrics import UnreadableMetricsError, parse_engine_metrics, scan_load
from gateway.reports import arm_results, cost_reports, key_usage
from gateway.requests.formats.endpoints import BY_PATH, CHAT
from gateway.server.http.json_body import BadBodyError, decode_object, reject_nul
from kvstore.events.kv_events import (
    BlockRemoved,
    BlockStored,
    EventBatch,
    UnreadableEventError,
    decode_batch,
    encode_batch,
)
from tests.fuzz.mutations import near
from tests.gateway.served_gateway import snapshot

BUS = [
    wire
    for module in (
        advisory, arm_results, cache_locality_sample, cost_reports, engine_report, fleet_sample,
        forward_client, key_usage,
        kv_move, peer_calls, peer_directory, peer_link, pool_owners, quota_shares, rebalance_order, recent_question,
        region_peers, region_takeover, request_batch, shadow_tally, stored_decision, traffic_row,
    )
    for wire in vars(module).values()
    if isinstance(wire, WireForm)
]  # fmt: skip
PLAIN: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
METRICS = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 3.0
vllm:num_requests_waiting{model_name="m"} 1e2
vllm:kv_cache_usage_perc{model_name="m"} 0.5
"""
EVENTS = encode_batch(
    EventBatch(
        1.0,
        [
            BlockStored(block_hashes=[1, 2], parent_block_hash=None, token_ids=list(range(32)), block_size=16),
            BlockRemoved(block_hashes=[1]),
        ],
    )
)

QUESTION = b'{"model":"m","messages":[{"role":"user","content":"\\ud83d\\ude00"}],"block_hashes":[1,-2],"wait":false}'


def test_the_bus_has_messages_to_fuzz() -> None:
    assert len(BUS) >= 8


@pytest.mark.parametrize("wire", BUS, ids=lambda wire: wire._what)
@given(data=st.binary(max_size=200) | PLAIN.map(msgspec.msgpack.encode))
def test_a_bus_message_is_read_or_rejected(wire: WireForm[object], data: bytes) -> None:
    assert fault(wire.decode, data, UnreadableMessageError) == ""


@given(near([encode_snapshot(snapshot(["http://127.0.0.1:1"], roles=["prefill"]))]))
def test_a_snapshot_is_read_or_rejected(data: bytes) -> None:
    assert fault(decode_snapshot, data, UnreadableMessageError) == ""


@given(near([EVENTS]))
def test_kv_events_are_read_or_rejected(data: bytes) -> None:
    assert fault(decode_batch, data, UnreadableEventError) == ""


@given(near([METRICS]))
def test_metrics_are_read_or_rejected(data: bytes) -> None:
    assert fault(parse_engine_metrics, data, UnreadableMetricsError) == ""
    assert fault(scan_load, data, UnreadableMetricsError) == ""


@given(near([QUESTION]))
@example(b'{"a":"\\ud800"}')
@example(b"[" * 5000)
def test_a_body_is_read_or_rejected(data: bytes) -> None:
    assert fault(decode_object, data, BadBodyError) == ""
    assert fault(reject_nul, data, BadBodyError) == ""
    read_flat(data)
    for endpoint in (None, BY_PATH[CHAT]):
        assert fault(partial(read_at_once, endpoint=endpoint, waits=False, texts=True), data, BadBodyError) == ""


def fault(read: Callable[[bytes], object], data: bytes, rejection: type[Exception]) -> str:
    """Return the unexpected error of reading the data; empty if it is read or rejected."""
    try:
        read(data)
    except rejection:
        return ""
    except Exception:  # noqa: BLE001 - any other exception is a failure
        return traceback.format_exc()
    return ""
