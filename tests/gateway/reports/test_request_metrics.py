"""Metrics of requests by model: each value, the bound of their labels, and their exemplars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.base.metrics import CONTENT_TYPE, GatewayMetrics
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED
from gateway.proxy import engine_transport
from gateway.proxy.engine_relay import TIMED_STREAMS
from gateway.proxy.engine_transport import TimedChunks
from gateway.reports import request_metrics
from gateway.reports.request_metrics import RequestMetrics
from tests.gateway.decision_records import decision_record
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

OF_MODEL = {"pool": "pool", "model_name": "big"}
UNIX_S = 1_790_000_000.5


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> GatewayMetrics:
    monkeypatch.setattr(request_metrics, "time", lambda: UNIX_S)
    return GatewayMetrics()


def record(name: str = "r1", *, model: str = "", output: int | None = 11, **fields: Any) -> DecisionRecord:
    """Return the record of a request that got its first token after 0.3 s and its last after 2.3 s."""
    made = decision_record(name, 0.0, 0.3, **fields)
    made.pool = cast("Any", SimpleNamespace(entry=SimpleNamespace(served_model="big")))
    made.asked_model, made.outcome, made.finished_s = model, COMPLETED, 2.3
    made.cached_tokens, made.output_tokens = 512, output
    return made


def replay(metrics: GatewayMetrics, *records: DecisionRecord) -> None:
    listener = RequestMetrics(metrics)
    for item in records:
        listener.dispatched(item, cast("Any", None), 1e-5, False)
        listener.first_token(item, 0.3)
        listener.ended(item, 2.3)


def samples(metrics: GatewayMetrics) -> dict[tuple[str, tuple[str, ...]], Any]:
    """Return the samples of an OpenMetrics scrape by name and label values in the order of the labels."""
    text, content_type = metrics.negotiated("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_each_metric_of_a_completed_request_has_its_value(metrics: GatewayMetrics) -> None:
    replay(metrics, record(queued_s=0.125, hit_tokens=480))
    values = {name: sample.value for (name, labels), sample in samples(metrics).items() if labels == ("big", "pool")}
    assert values == {
        "headway_prompt_tokens_total": 2000,
        "headway_cached_tokens_total": 512,
        "headway_predicted_hit_tokens_total": 480,
        "headway_output_tokens_total": 11,
        "headway_ttft_seconds_count": 1,
        "headway_ttft_seconds_sum": 0.3,
        "headway_tpot_seconds_count": 1,
        "headway_tpot_seconds_sum": pytest.approx(0.2),
        "headway_e2e_seconds_count": 1,
        "headway_e2e_seconds_sum": 2.3,
        "headway_queue_wait_seconds_count": 1,
        "headway_queue_wait_seconds_sum": 0.125,
    }


@pytest.mark.parametrize("output", [None, 0, 1])
def test_a_request_without_a_time_between_tokens_has_no_tpot(metrics: GatewayMetrics, output: int | None) -> None:
    replay(metrics, record(output=output))
    assert metrics.tpot.count("pool", "big") == 0
    assert metrics.e2e.count("pool", "big") == 1


def test_a_failed_request_counts_no_tokens_and_no_latency(metrics: GatewayMetrics) -> None:
    failed = record()
    failed.outcome = FAILED
    replay(metrics, failed)
    assert metrics.e2e.count("pool", "big") == metrics.tpot.count("pool", "big") == 0
    assert metrics.output_tokens.value("pool", "big") == 0
    assert metrics.ttft.count("pool", "big") == 1


def test_aliases_and_adapters_have_their_own_series(metrics: GatewayMetrics) -> None:
    replay(metrics, record(), record(model="legal-lora", output=5))
    assert metrics.output_tokens.value("pool", "big") == 11
    assert metrics.output_tokens.value("pool", "legal-lora") == 5


def test_model_names_beyond_the_limit_share_one_series(metrics: GatewayMetrics) -> None:
    replay(metrics, *(record(model=f"adapter-{number}", output=2) for number in range(250)))
    names = {labels[0] for name, labels in samples(metrics) if name == "headway_output_tokens_total"}
    assert len(names) == 201
    assert metrics.output_tokens.value("pool", "other") == 50 * 2
    replay(metrics, record(model="adapter-7", output=2))
    assert metrics.output_tokens.value("pool", "adapter-7") == 4


def test_a_bucket_names_its_latest_decision(metrics: GatewayMetrics) -> None:
    replay(metrics, record("early"), record("late", queued_s=0.125))
    exported = samples(metrics)
    for name, bound, value in (("ttft", "0.5", 0.3), ("e2e", "3.0", 2.3), ("queue_wait", "0.25", 0.125)):
        exemplar = exported[f"headway_{name}_seconds_bucket", (bound, "big", "pool")].exemplar
        assert exemplar.labels == {"decision_id": "late"}
        assert (exemplar.value, float(exemplar.timestamp)) == (value, UNIX_S)
    assert exported["headway_ttft_seconds_bucket", ("60.0", "big", "pool")].exemplar is None
    assert metrics.queue_wait.count("pool", "big") == 2


def test_the_older_text_format_has_no_exemplars(metrics: GatewayMetrics) -> None:
    replay(metrics, record())
    text, content_type = metrics.negotiated("text/plain;version=0.0.4")
    assert content_type == CONTENT_TYPE
    assert b"decision_id" not in text
    assert b"# EOF" not in text


async def test_both_ways_through_a_gateway_count_the_same(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        engine.chunks, engine.pause_s = ["a", "b", "c", "d"], 0.03
        await gateway.stream()
        proxied, engine.pause_s = gateway.gateway.metrics, 0.0
        # Chunks that arrive together count as one.
        assert 1 <= (timed := proxied.itl.count("pool", MODEL)) <= 3
        for _ in range(TIMED_STREAMS - 1):
            await gateway.stream()
        assert proxied.itl.count("pool", MODEL) == timed
        usage = {"prompt_tokens": 64, "cached_tokens": 16, "output_tokens": 9}
        for verb in ("first_token", "complete"):
            await gateway.report(decision_id := await gateway.decided(), verb, usage)
            await gateway.report(decision_id, "complete", usage)
        for family in (proxied.e2e, proxied.queue_wait):
            assert family.count("pool", MODEL) == TIMED_STREAMS + 2
        # The second decision has no report of its first token.
        assert proxied.tpot.count("pool", MODEL) == proxied.ttft.count("pool", MODEL) == TIMED_STREAMS + 1
        assert proxied.output_tokens.value("pool", MODEL) == 2 * TIMED_STREAMS + 2 * 9
        async with gateway.client.get(
            gateway.url + "/metrics", headers={"accept": "application/openmetrics-text"}
        ) as response:
            text = await response.text()
    assert f'decision_id="{decision_id}"' in text
    assert text.endswith("# EOF\n")


def test_the_time_between_chunks_ends_with_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: Iterator[float] = iter((10.0, 10.2, 10.25, 11.25))
    monkeypatch.setattr(engine_transport, "monotonic", lambda: next(moments))
    passed, gaps = list[bytes](), list[float]()
    answer = SimpleNamespace(receive=lambda body, last: passed.append(body), end=lambda broken: passed.append(b"end"))
    timed = TimedChunks(cast("Any", answer), gaps.append)
    token = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    usage, done = b'data: {"choices":[],"usage":{}}\n\n', b"data: [DONE]\n\n"
    sent = [token, token, b'data: {"half', token, usage, done]
    for body in sent:
        timed.receive(body, body is done)
    timed.end(None)
    assert passed == [*sent, b"end"]
    assert gaps == pytest.approx([0.2, 0.05, 1.0])
