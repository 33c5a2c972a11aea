"""Parsing of engine metrics: vLLM's, SGLang's, and malformed text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.pools.engines.engine_metrics import MAX_BYTES, UnreadableMetricsError, parse_engine_metrics, scan_load
from tests.gateway.fake_engine import METRICS


def test_vllm_metrics_are_parsed() -> None:
    metrics = parse_engine_metrics(METRICS)
    assert (metrics.running, metrics.waiting, metrics.kv_usage) == (3, 2, 0.25)
    assert (metrics.prefix_queries_total, metrics.prefix_hits_total) == (1658.0, 768.0)
    assert (metrics.process_start, metrics.block_size) == (1000.5, 32)


def test_the_light_scan_agrees_with_full_parsing() -> None:
    assert scan_load(METRICS) == (3, 2, 0.25)


def test_memory_size_is_block_count_times_block_size() -> None:
    assert parse_engine_metrics(METRICS).kv_tokens is None
    sized = METRICS.replace(b'block_size="32"', b'block_size="32",num_gpu_blocks="100"')
    assert parse_engine_metrics(sized).kv_tokens == 3200


def test_ranks_are_summed_and_their_usage_is_averaged() -> None:
    text = METRICS + METRICS.replace(b"0.25", b"0.75")
    metrics = parse_engine_metrics(text)
    assert (metrics.running, metrics.waiting, metrics.kv_usage, metrics.ranks) == (6, 4, 0.5, 2)


def test_a_rank_counts_only_its_own_series_and_those_of_the_process() -> None:
    other = METRICS.replace(b'engine="0"', b'engine="1"').replace(b" 3.0\n", b" 7.0\n").replace(b" 0.25\n", b" 0.75\n")
    assert scan_load(METRICS + other, 1) == (7, 2, 0.75)
    metrics = parse_engine_metrics(METRICS + other, 0)
    assert (metrics.running, metrics.kv_usage, metrics.ranks, metrics.process_start) == (3, 0.25, 1, 1000.5)
    with pytest.raises(UnreadableMetricsError, match="missing"):
        parse_engine_metrics(METRICS + other, 2)


def test_old_metric_names_are_understood() -> None:
    text = METRICS.replace(b"kv_cache_usage", b"gpu_cache_usage").replace(b":prefix_cache", b":gpu_prefix_cache")
    metrics = parse_engine_metrics(text)
    assert (metrics.kv_usage, metrics.prefix_queries_total, metrics.prefix_hits_total) == (0.25, 1658.0, 768.0)


def test_adapters_come_from_the_labels_with_the_newest_timestamp() -> None:
    assert (parse_engine_metrics(METRICS).adapters, parse_engine_metrics(METRICS).max_adapters) == (None, None)
    labels = b'vllm:lora_requests_info{max_lora="%d",running_lora_adapters="%s",waiting_lora_adapters="%s"} %s\n'
    text = METRICS + labels % (4, b"old", b"", b"1.7e9") + labels % (4, b"sql,law", b"poems", b"1.8e9")
    metrics = parse_engine_metrics(text + labels % (4, b"", b"", b"1.6e9"))
    assert (metrics.adapters, metrics.max_adapters) == (("poems", "sql", "law"), 4)
    idle = parse_engine_metrics(METRICS + labels % (1, b"", b"", b"1.0"))
    assert (idle.adapters, idle.max_adapters) == ((), 1)
    with pytest.raises(UnreadableMetricsError, match="lora"):
        parse_engine_metrics(METRICS + labels % (1, b"", b"", b"soon"))


SGLANG = b"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0",dp_rank="1"} 1.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0",dp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0",dp_rank="1"} 0.0
sglang:token_usage{engine_type="unified",model_name="m",dp_rank="0"} 0.5
sglang:token_usage{engine_type="unified",model_name="m",dp_rank="1"} 0.25
sglang:max_total_num_tokens{model_name="m"} 161721.0
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
sglang:cached_tokens_total{model_name="m",cache_source="device"} 1.0e+06
sglang:cached_tokens_total{model_name="m",cache_source="host"} 5.0e+05
"""


def test_sglang_metrics_are_parsed() -> None:
    metrics = parse_engine_metrics(SGLANG)
    assert (metrics.running, metrics.waiting, metrics.kv_usage, metrics.ranks) == (4, 2, 0.375, 2)
    assert (metrics.prompt_tokens_total, metrics.generated_tokens_total) == (8128902.0, 7557572.0)
    assert (metrics.prefix_queries_total, metrics.prefix_hits_total) == (8128902.0, 1500000.0)
    assert (metrics.kv_tokens, metrics.block_size, metrics.process_start) == (161721, None, None)
    assert scan_load(SGLANG) == (4, 2, 0.375)


def test_timestamps_and_exemplars_are_not_read_as_values() -> None:
    text = METRICS.replace(b" 1658.0\n", b' 1658.0 1700000000 # {trace_id="a"} 7.0\n')
    assert parse_engine_metrics(text).prefix_queries_total == 1658.0


def test_missing_series_are_unknown() -> None:
    text = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
    metrics = parse_engine_metrics(text)
    assert (metrics.kv_usage, metrics.process_start, metrics.block_size) == (None, None, None)


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf", b"-1", b"1e308", b"abc", b"", b"0x10", b"1_0e400"])
def test_impossible_values_make_the_text_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableMetricsError, match="num_requests_running"):
        parse_engine_metrics(METRICS.replace(b"} 3.0", b"} " + value))


def test_a_usage_over_one_is_impossible() -> None:
    with pytest.raises(UnreadableMetricsError, match="kv_cache_usage_perc cannot be 25"):
        parse_engine_metrics(METRICS.replace(b"0.25", b"25"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<!DOCTYPE html><html><body>vllm:num_requests_running 3</body></html>",
        b'{"server_load": 1}',
        bytes(range(256)) * 16,
        METRICS.replace(b"vllm:num_requests_waiting{", b"vllm:num_requests_idle{"),
    ],
)
def test_other_documents_are_unreadable(text: bytes) -> None:
    with pytest.raises(UnreadableMetricsError):
        parse_engine_metrics(text)


def test_ten_megabytes_are_unreadable() -> None:
    with pytest.raises(UnreadableMetricsError, match=str(MAX_BYTES)):
        parse_engine_metrics(b"x" * (10 << 20))


def test_too_many_labels_are_unreadable() -> None:
    bomb = b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % number for number in range(10_000))
    with pytest.raises(UnreadableMetricsError, match="samples"):
        parse_engine_metrics(bomb)


@pytest.mark.parametrize("junk", [b"}", b"{", b'"', b"\\", b'="', b'{"'])
def test_a_long_malformed_line_is_cheap_to_parse(junk: bytes) -> None:
    crooked = b"vllm:num_requests_running{" + junk * (MAX_BYTES // 2 // len(junk))
    with pytest.raises(UnreadableMetricsError):
        parse_engine_metrics(crooked)


def test_the_reason_holds_no_control_characters() -> None:
    with pytest.raises(UnreadableMetricsError) as caught:
        parse_engine_metrics(METRICS.replace(b"} 3.0", b"} \x1b[31m\r\xe2\x80\xa8"))
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@given(st.binary(max_size=400), st.integers(0, len(METRICS)), st.integers(0, 40))
@example(b"\x00", 200, 3)
def test_damaged_text_is_parsed_or_reported_as_unreadable(damage: bytes, at: int, cut: int) -> None:
    text = METRICS[:at] + damage + METRICS[at + cut :]
    try:
        metrics = parse_engine_metrics(text)
    except UnreadableMetricsError:
        return
    assert 0 <= metrics.running <= 1e10
    assert metrics.kv_usage is None or 0 <= metrics.kv_usage <= 1
