"""What several lines state about one request, and what none of them does."""

from __future__ import annotations

from planning.router_audit.log_gaps import log_gaps
from planning.router_audit.logged_request import KEPT_PROBLEMS, LoggedRequest, RequestLog


def test_lines_with_one_id_are_one_request_and_a_counted_length_replaces_an_estimate() -> None:
    log = RequestLog()
    log.add("a:1", LoggedRequest(request_id="r", arrived_s=5.0, engine="e1", prompt_tokens=900, estimated=True))
    log.add(
        "b:1", LoggedRequest(request_id="r", prompt_tokens=1000, cached_tokens=0, blocks=(1,), block_source="hashes")
    )
    log.add("b:2", LoggedRequest(request_id="r", arrived_s=9.0, engine="e2", ttft_s=0.5))
    (request,) = log.requests()
    assert request == LoggedRequest(
        request_id="r", arrived_s=5.0, engine="e1", prompt_tokens=1000, cached_tokens=0, ttft_s=0.5, blocks=(1,),
        block_source="hashes",
    )  # fmt: skip


def test_requests_are_in_order_of_arrival_and_unusable_ones_are_counted() -> None:
    log = RequestLog()
    log.add("a:1", LoggedRequest(arrived_s=2.0))
    log.add("a:2", LoggedRequest(arrived_s=1.0))
    log.add("a:3", LoggedRequest(engine="e1"))
    log.add("a:4", LoggedRequest(arrived_s=1.0, outcome="client_error"))
    assert [request.request_id for request in log.requests()] == ["a:2", "a:1"]
    assert list(log.others.values()) == [2]


def test_all_unusable_lines_are_counted_and_the_first_are_kept() -> None:
    log = RequestLog()
    for number in range(KEPT_PROBLEMS + 5):
        log.reject(f"a:{number}", "not a JSON object")
    assert (log.unusable, len(log.problems), log.problems[0][0]) == (KEPT_PROBLEMS + 5, KEPT_PROBLEMS, "a:0")


def test_a_gap_names_the_fact_the_number_and_the_assumption() -> None:
    whole = LoggedRequest(
        engine="e", prompt_tokens=1, output_tokens=1, cached_tokens=0, ttft_s=0.1, blocks=(1,), block_source="hashes"
    )
    assert log_gaps([whole], "round_robin") == []
    gaps = {gap.fact: gap for gap in log_gaps([whole, LoggedRequest(prompt_tokens=9, estimated=True)], "round_robin")}
    assert set(gaps) == {
        "Engine", "Counted prompt length", "Prompt blocks", "Blocks or session", "Cached tokens", "Time to first token",
        "Output length",
    }  # fmt: skip
    assert (gaps["Engine"].missing, gaps["Engine"].total) == (1, 2)
    assert "round_robin" in gaps["Engine"].assumed
