from collections.abc import Callable

import pytest

from simulator.link import QueuedLink, Transfer
from simulator.sessions.engine_memory import EngineMemory
from simulator.sessions.hardware import SERVED_MODELS
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.turn import Session, Turn
from simulator.virtual_clock import VirtualClock

MODEL = SERVED_MODELS["8b"]
READ = MODEL.step_per_context_token_s


class Bench:
    """One engine, and the requests that it has answered."""

    def __init__(self, *, layerwise: bool = True) -> None:
        self.clock = VirtualClock()
        self.link = QueuedLink(22e9, self.clock)
        self._requests = 0
        self.started: list[Turn] = []
        self.answered: list[Turn] = []
        self.engine = SessionEngine(
            0,
            "node-1",
            self.clock,
            MODEL,
            EngineMemory(MODEL.num_blocks),
            self.link,
            QueuedLink(22e9, self.clock),
            lambda _, turn: self.started.append(turn),
            lambda _, turn: self.answered.append(turn),
            layerwise=layerwise,
        )

    def turn(self, prompt: int, answer: int, context: int = 0, load: Transfer | None = None) -> Turn:
        turn = Turn(Session(len(self.answered), context), prompt, answer, self.clock.now)
        turn.request_id = f"request-{self._requests}"
        self._requests += 1
        turn.expect_load(context, "node-1")
        turn.load = load
        self.engine.bind()
        self.engine.admit(turn)
        return turn


def prefill_step_s(tokens: int, batch: int = 1, resident: int = 0, position: int = 0) -> float:
    attention = tokens * (position + tokens / 2) * 3e-9
    return 0.012 + 60e-6 * batch + (resident + position) * READ + tokens * 0.11e-3 + attention


def test_one_request_takes_a_prefill_step_and_then_one_step_per_token() -> None:
    bench = Bench()
    turn = bench.turn(100, 3)
    bench.clock.run(10.0)
    first = prefill_step_s(100)
    assert turn.first_token_s == pytest.approx(first)
    steps = sum(0.012 + 60e-6 + tokens * READ for tokens in (101, 102))
    assert turn.finished_s == pytest.approx(first + steps)
    assert bench.engine.resident_tokens == 0


def test_a_jump_over_many_steps_lasts_as_long_as_the_steps() -> None:
    bench = Bench()
    turns = [bench.turn(100, 50), bench.turn(200, 80)]
    bench.clock.run(100.0)
    now, resident, left = turns[1].first_token_s or 0.0, 102 + 201, [48, 79]
    for _ in range(79):
        batch = sum(1 for item in left if item)
        now += 0.012 + 60e-6 * batch + resident * READ
        resident += batch
        left = [max(0, item - 1) for item in left]
        if not left[0] and batch == 2:
            resident -= 150
    assert turns[1].finished_s == pytest.approx(now)


def test_a_request_that_arrives_during_a_step_joins_at_its_end() -> None:
    bench = Bench()
    first = bench.turn(100, 100)
    arrival_s = prefill_step_s(100) + 0.030
    late: list[Turn] = []
    bench.clock.at(arrival_s, lambda: late.append(bench.turn(10, 2)))
    bench.clock.run(10.0)
    boundary = prefill_step_s(100) + sum(0.012 + 60e-6 + (101 + step) * READ for step in range(3))
    assert late[0].first_token_s == pytest.approx(boundary + prefill_step_s(10, 2, resident=104))
    assert first.finished_s is not None


def test_a_long_prompt_is_prefilled_in_chunks_next_to_decode() -> None:
    bench = Bench()
    turn = bench.turn(5_000, 2)
    bench.clock.run(10.0)
    chunks = [(2048, 0), (2048, 2048), (904, 4096)]
    assert turn.first_token_s == pytest.approx(sum(prefill_step_s(size, position=at) for size, at in chunks))


def test_a_batch_that_admits_a_request_too_early_waits_for_its_cache() -> None:
    bench = Bench()
    load = Transfer([bench.link], 2.2e9, lambda item: bench.engine.loaded(item) if item.done else None, urgent=True)
    turn = bench.turn(10, 2, context=16_000, load=load.start())
    bench.clock.run(10.0)
    step_s = prefill_step_s(10, position=16_000)
    assert turn.first_token_s == pytest.approx(0.1 + step_s / 32)


def test_without_layerwise_loads_the_whole_step_follows_the_load() -> None:
    bench = Bench(layerwise=False)
    load = Transfer([bench.link], 2.2e9, lambda item: bench.engine.loaded(item) if item.done else None, urgent=True)
    turn = bench.turn(10, 2, context=16_000, load=load.start())
    bench.clock.run(10.0)
    assert turn.first_token_s == pytest.approx(0.1 + prefill_step_s(10, position=16_000))


def test_a_leaving_request_leaves_at_the_end_of_a_step_with_its_remaining_tokens() -> None:
    bench = Bench()
    turn = bench.turn(100, 100)
    left: list[tuple[bool, int]] = []
    leave: Callable[[Turn, bool], None] = lambda moved, gone: left.append((gone, bench.engine.tokens_left(moved)))  # noqa: E731
    bench.clock.at(prefill_step_s(100) + 0.030, lambda: bench.engine.leave(turn, leave))
    bench.clock.run(10.0)
    assert left == [(True, 96)]
    assert bench.engine.resident_tokens == 0
    assert not bench.answered


def test_a_request_that_ended_before_does_not_leave() -> None:
    bench = Bench()
    turn = bench.turn(100, 2)
    left: list[bool] = []
    bench.clock.at(prefill_step_s(100) + 0.001, lambda: bench.engine.leave(turn, lambda _, gone: left.append(gone)))
    bench.clock.run(10.0)
    assert left == [False]
    assert bench.answered == [turn]


def test_at_most_256_requests_run_concurrently() -> None:
    bench = Bench()
    for _ in range(300):
        bench.turn(1, 50)
    bench.clock.run(0.2)
    assert bench.engine.running == 256
    bench.clock.run(60.0)
    assert len(bench.answered) == 300
    assert bench.engine.bound_requests == 300


def test_pending_requests_are_those_that_have_not_started() -> None:
    bench = Bench()
    bench.turn(100, 100)
    bench.clock.run(prefill_step_s(100) / 2)
    assert bench.engine.pending_requests == 0
    bench.turn(100, 100)
    bench.engine.bind()
    assert bench.engine.pending_requests == 2
    bench.clock.run(0.2)
    assert bench.engine.pending_requests == 1


def test_first_tokens_are_reported_before_the_end() -> None:
    bench = Bench()
    turn = bench.turn(100, 3)
    bench.clock.run(prefill_step_s(100))
    assert (bench.started, bench.answered) == ([turn], [])


def test_the_connector_learns_the_time_of_a_computed_token_from_full_steps() -> None:
    bench = Bench()
    bench.turn(10, 2)
    bench.clock.run(1.0)
    assert bench.engine.estimate.token_s == 0.0
    bench.turn(2048, 2)
    bench.clock.run(2.0)
    assert bench.engine.estimate.token_s == pytest.approx(prefill_step_s(2048) / 2048)
