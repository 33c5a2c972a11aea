import math

import pytest

from simulator.engine_models.engine_events import Finished, FirstTokenEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.faulty_engine import CRAWL_FACTOR, FaultyEngine
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_models.simulated_engine import PromptSequence


def engine() -> FaultyEngine:
    return FaultyEngine(EngineModel(EngineProfile()))


def sequence(name: str = "a", tokens: int = 5120) -> PromptSequence:
    return PromptSequence(name, tuple(range(tokens // 512)), tokens, 10)


def run(made: FaultyEngine, until_s: float) -> dict[str, float]:
    """Advance to each due time; return the times of the `first` and the `last` token."""
    seen: dict[str, float] = {}
    while (due := made.next_event_time()) is not None and due <= until_s:
        for event in made.advance(due):
            if isinstance(event, FirstTokenEvent):
                seen["first"] = event.at_s
            elif isinstance(event, Finished):
                seen["last"] = event.at_s
    made.advance(until_s)
    made.check()
    return seen


def usual() -> dict[str, float]:
    made = engine()
    made.submit(sequence(), 0.0)
    return run(made, 100.0)


def test_without_a_fault_the_engine_behaves_normally_and_counts_tokens() -> None:
    made, plain = engine(), EngineModel(EngineProfile(), emit_tokens=False)
    made.submit(sequence(), 0.0)
    plain.submit(sequence(), 0.0)
    first = [item.at_s for item in plain.advance(100.0) if isinstance(item, FirstTokenEvent)]
    assert run(made, 100.0)["first"] == first[0]
    assert (made.first_tokens_total, made.pieces_total) == (1, 10)
    assert made.metrics(100.0).prompt_tokens_total == 5120


def test_a_healed_hung_engine_continues_where_it_stopped() -> None:
    made = engine()
    made.submit(sequence(), 0.0)
    made.advance(0.1)
    made.set_fault("hang", 0.1)
    assert made.next_event_time() is None
    assert made.advance(50.0) == []
    assert made.metrics(50.0).running + made.metrics(50.0).waiting == 1
    made.set_fault("none", 50.1)
    assert run(made, 100.0)["last"] == pytest.approx(usual()["last"] + 50.0)


def test_a_crawling_engine_is_slower_by_the_given_factor() -> None:
    made = engine()
    made.set_fault("crawl", 0.0)
    made.submit(sequence(), 0.0)
    assert run(made, 1000.0)["last"] == pytest.approx(CRAWL_FACTOR * usual()["last"])


def test_a_lying_engine_counts_tokens_that_never_arrive() -> None:
    made = engine()
    made.submit(sequence(), 0.0)
    made.advance(0.0)
    made.set_fault("lie", 0.0)
    assert made.advance(20.0) == []
    assert made.metrics(20.0).generated_tokens_total > made.metrics(10.0).generated_tokens_total


def test_a_stopped_engine_does_not_respond_and_a_garbage_engine_reports_nonsense() -> None:
    made = engine()
    made.set_fault("stop", 1.0)
    assert not made.metrics(2.0).reachable
    made.set_fault("garbage", 3.0)
    assert math.isnan(made.metrics(4.0).kv_usage)


@pytest.mark.parametrize(("fault", "says"), [("pause", "paused"), ("never_starts", "")])
def test_a_paused_engine_finishes_running_requests_and_starts_none(fault: str, says: str) -> None:
    made = engine()
    made.submit(sequence("a"), 0.0)
    made.advance(0.05)
    made.set_fault(fault, 0.1)
    made.submit(sequence("b"), 0.2)
    run(made, 30.0)
    assert made.first_tokens_total == 1
    assert (made.metrics(30.0).paused, made.metrics(30.0).waiting) == (says, 1)
    made.set_fault("none", 31.0)
    run(made, 60.0)
    assert made.first_tokens_total == 2


def test_a_waiting_request_of_a_paused_engine_can_be_aborted() -> None:
    made = engine()
    made.set_fault("pause", 0.0)
    made.submit(sequence(), 0.1)
    assert made.abort("a", 0.2)
    assert not made.abort("a", 0.3)
    assert made.waiting == 0
