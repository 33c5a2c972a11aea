from hypothesis import given
from hypothesis import strategies as st

from bench.evidence.bounds import (
    belady_cache_hits,
    hit_rate,
    lru_cache_hits,
    on_time_bound,
    service_percentiles,
    service_seconds,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run
from simulator.workloads.prepared_workload import infinite_cache_hits
from tests.simulator.engine_models.random_work import chained
from tests.simulator.fleets import chat, spec

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5).map(chained), max_size=40)


def lengths(prompts: list[tuple[int, ...]]) -> list[int]:
    return [512 * len(prompt) - 100 for prompt in prompts]


@given(PROMPTS, st.integers(1, 30))
def test_future_knowledge_beats_lru_and_nothing_beats_an_infinite_cache(
    prompts: list[tuple[int, ...]], blocks: int
) -> None:
    tokens = lengths(prompts)
    infinite = sum(infinite_cache_hits(prompts, tokens))
    belady = sum(belady_cache_hits(prompts, tokens, blocks))
    assert sum(lru_cache_hits(prompts, tokens, blocks)) <= belady <= infinite


@given(PROMPTS)
def test_cache_that_fits_everything_equals_an_infinite_one(prompts: list[tuple[int, ...]]) -> None:
    tokens = lengths(prompts)
    infinite = infinite_cache_hits(prompts, tokens)
    assert lru_cache_hits(prompts, tokens, 1000) == belady_cache_hits(prompts, tokens, 1000) == infinite


def test_partial_last_block_counts_only_its_tokens() -> None:
    assert infinite_cache_hits([(1, 2), (1, 2)], [600, 600]) == [0, 600]
    assert hit_rate([0, 600], [600, 600], 1) == 1.0


def test_no_run_beats_the_on_time_bound_or_the_service_time() -> None:
    workload = chat(300)
    for qps in (3.0, 6.0, 12.0):
        run_spec = spec("least_cost", "slack", qps=qps)
        report = report_of(run_spec, workload, run(run_spec, workload), 0.0)
        seconds = service_seconds(EngineProfile(), workload.infinite_hits, workload.prompt_tokens, 0)
        span_s = workload.arrivals(qps, 5.0)[-1].request.arrived_s
        assert report.slo_share <= on_time_bound(seconds, 2, span_s, 5.0)
        assert report.ttft_p50_s is not None
        assert report.ttft_p50_s >= service_percentiles(seconds)[0]
        assert report.token_hit_rate <= report.hit_rate_infinite


def test_bound_keeps_the_cheapest_requests_and_omits_those_longer_than_the_slo() -> None:
    assert on_time_bound([1.0, 4.0, 2.0, 3.0], engines=1, span_s=4.0, slo_s=5.0) == 0.75
    assert on_time_bound([1.0, 6.0], engines=8, span_s=100.0, slo_s=5.0) == 0.5
