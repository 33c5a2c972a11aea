"""Each decision is judged in the state that the log's own decisions caused."""

from __future__ import annotations

import pytest

from controlplane.router_audit.audited_fleet import audited_fleet
from controlplane.router_audit.judging import judged_decisions
from controlplane.router_audit.log_files import UnreadableLogError
from controlplane.router_audit.rebuild import Assumptions, run_as_logged, run_by_default
from planning.router_audit.audit_summary import BUSY, CACHE, AuditedDecision
from planning.router_audit.logged_request import LoggedRequest
from simulator.engine_models.engine_profile import EngineProfile

ASSUMED = Assumptions(name="test", profile=EngineProfile(), engine_model="chunked")


def request(at_s: float, engine: str, blocks: range, **facts: object) -> LoggedRequest:
    given = {"arrived_s": at_s, "engine": engine, "prompt_tokens": len(blocks) * 512, "output_tokens": 10, **facts}
    return LoggedRequest(request_id=f"at {at_s}", blocks=tuple(blocks), block_source="hashes", **given)


def judged(*requests: LoggedRequest, by_log: bool = True) -> list[AuditedDecision]:
    fleet = audited_fleet(requests, "2")
    return judged_decisions(fleet, run_as_logged(fleet, ASSUMED, "round_robin"), ASSUMED, by_log=by_log)


def test_a_request_sent_away_from_its_prefix_has_regret_by_cache() -> None:
    *_, last = judged(request(0, "a", range(30)), request(60, "b", range(100, 110)), request(120, "b", range(31)))
    assert (last.engine, last.better_engine, last.default_engine) == ("b", "a", "a")
    assert (last.hit_tokens, last.better_hit_tokens, last.cause) == (0, 30 * 512, CACHE)
    assert last.regret_s == pytest.approx(last.ttft_s - last.better_ttft_s) == pytest.approx(sum(last.parts.values()))


def test_a_request_sent_behind_others_has_regret_by_load() -> None:
    crowd = [request(0.001 * number, "a", range(1000 * number, 1000 * number + 30)) for number in range(6)]
    *_, last = judged(*crowd, request(60, "a", range(50, 60)))
    assert (last.regret_s, last.parts) == (0.0, dict.fromkeys(last.parts, 0.0))
    behind = judged(*crowd, request(0.1, "a", range(9000, 9010)), request(60, "b", range(3)))[-2]
    assert (behind.better_engine, behind.cause) == ("b", BUSY)
    assert behind.better_ttft_s >= ASSUMED.profile.prefill_s(10 * 512, 0)


def test_logged_outcomes_count_where_there_are_any() -> None:
    requests = request(0, "a", range(20), ttft_s=9.0, cached_tokens=512), request(60, "b", range(100, 110))
    assert next((item.ttft_s, item.hit_tokens) for item in judged(*requests)) == (9.0, 512)
    simulated = judged(*requests, by_log=False)[0]
    assert (simulated.ttft_s, simulated.hit_tokens) == (
        pytest.approx(ASSUMED.profile.prefill_s(20 * 512, 0), rel=0.1),
        0,
    )


def test_the_run_follows_the_log_and_the_rule_places_the_rest() -> None:
    requests = [request(number, "b" if number % 3 else "", range(number, number + 4)) for number in range(12)]
    fleet = audited_fleet(requests, "2")
    run = run_as_logged(fleet, ASSUMED, "round_robin")
    chosen = [fleet.names[record.engine_id] for record in run.records]
    assert all(engine == "b" for engine, item in zip(chosen, requests, strict=True) if item.engine)
    assert len({engine for engine, item in zip(chosen, requests, strict=True) if not item.engine}) == 2
    assert [record.status for record in run_by_default(fleet, ASSUMED)] == ["finished"] * 12


def test_engines_that_the_log_never_names_exist_under_names_of_their_own() -> None:
    fleet = audited_fleet([request(0, "e-002", range(3)), request(1, "x", range(3))], "4")
    assert list(fleet.names.values()) == ["e-002", "x", "unnamed-1", "unnamed-2"]
    assert list(fleet.chosen.values()) == ["e-001", "e-002"]


def test_a_wrong_year_is_an_error_and_not_a_simulation_of_years() -> None:
    with pytest.raises(UnreadableLogError, match=r"more than 31 days are between at 0 and at 1795946400; check times"):
        audited_fleet([request(0, "a", range(3)), request(1795946400, "a", range(3))], "1")
