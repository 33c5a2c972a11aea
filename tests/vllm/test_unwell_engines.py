"""Real engines that answer /health but serve nothing, or end: no request is lost, and cached blocks stay known."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from tests.vllm.attached import PATIENCE_S, Answer, Headway, words
from tests.vllm.real_engine import RealEngine

pytestmark = pytest.mark.vllm
COMPLETIONS = "/v1/completions"


@contextmanager
def traffic(headway: Headway, *, streams: int = 2) -> Iterator[list[Future[Answer]]]:
    """Keep four clients sending until the block ends, `streams` of them with streaming requests.

    Yields their requests, including those still running.
    """
    stop, asked = threading.Event(), list[Future[Answer]]()

    def client(number: int) -> None:
        turn, streamed = 0, number < streams
        body = {"max_tokens": 8, "stream": streamed, "stream_options": {"include_usage": True} if streamed else None}
        while not stop.is_set():
            made: Future[Answer] = Future()
            asked.append(made)
            turn += 1
            # Every second client always sends a new prompt, so that each engine gets work.
            about = f"load {number} {turn if number % 2 else turn % 9}"
            try:
                made.set_result(headway.send(COMPLETIONS, prompt=words(120, about), **body))
            except Exception as error:  # noqa: BLE001 - the future passes it to the test
                made.set_exception(error)

    with ThreadPoolExecutor(4) as clients:
        running = [clients.submit(client, number) for number in range(4)]
        try:
            yield asked
        finally:
            stop.set()
    for item in running:
        item.result()


def _until(there: Callable[[], bool], headway: Headway, what: str = "it did not come about") -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < until_s, (what, headway.states())
        time.sleep(0.1)


def _answered(asked: list[Future[Answer]], at_least: int) -> bool:
    return sum(item.done() for item in list(asked)) >= at_least


def _statuses(asked: list[Future[Answer]]) -> set[int]:
    """Return the statuses, 0 for a stream that ended with an error."""
    return {item.result().status if "error" not in item.result().body else 0 for item in asked}


def _exact_again(headway: Headway, about: str) -> None:
    """Check that predictions match the engines on prompts that each engine may have cached."""
    prompts = [words(150, f"{about} {number}") for number in range(3)]
    answers = [headway.ask(COMPLETIONS, prompt=prompt, max_tokens=2) for prompt in prompts * 3]
    assert [answer.predicted for answer in answers] == [answer.cached for answer in answers]
    assert answers[-1].cached > 0


@pytest.mark.parametrize(("stop", "go"), [("/pause", "/resume"), ("/sleep?level=1", "/wake_up")])
def test_a_paused_engine_gets_no_more_work_until_it_resumes(
    engines: list[RealEngine], headway: Headway, stop: str, go: str
) -> None:
    headway.until_serving(2)
    with traffic(headway) as asked:
        _until(lambda: _answered(asked, 8), headway)
        assert engines[0].post(stop)[0] == 200
        headway.until_serving(1)
        before = len(asked)
        _until(lambda: _answered(asked, before + 12), headway)
        assert engines[0].post(go)[0] == 200
        headway.until_serving(2)
    assert _statuses(asked) == {200}


@pytest.mark.parametrize("streams", [4, 0], ids=["streams", "whole"])
def test_a_stuck_engine_gets_no_new_work_and_keeps_its_requests(
    engines: list[RealEngine], headway: Headway, streams: int
) -> None:
    headway.until_serving(2)
    core = engines[1].core_pid()
    with traffic(headway, streams=streams) as asked, ExitStack() as later:
        _until(lambda: _answered(asked, 8), headway)
        os.kill(core, signal.SIGSTOP)
        try:
            # The clients may all wait for that engine's requests, so that the other engine shows no progress.
            more = later.enter_context(traffic(headway, streams=streams))
            headway.until_serving(1)
            fresh = [
                headway.send(COMPLETIONS, prompt=words(120, f"new {number}"), max_tokens=8) for number in range(12)
            ]
        finally:
            os.kill(core, signal.SIGCONT)
        headway.until_serving(2)
    assert {item.status for item in fresh} == {200}
    assert _statuses([*asked, *more]) == {200}


def test_after_a_reset_the_index_is_correct_from_the_engines_next_step(
    engines: list[RealEngine], headway: Headway
) -> None:
    """An idle engine reports its reset only when it schedules again, so one request can hit less than predicted."""
    headway.until_serving(2)
    prompt = words(300, "reset")
    assert headway.ask(COMPLETIONS, prompt=prompt, max_tokens=2).status == 200
    assert headway.ask(COMPLETIONS, prompt=prompt, max_tokens=2).cached > 0
    cleared = headway.metric("headway_kv_events_total", type="AllBlocksCleared")
    for engine in engines:
        assert b'"success":true' in engine.post("/reset_prefix_cache")[1].replace(b" ", b"")
    served = headway.ask(COMPLETIONS, prompt=prompt, max_tokens=2)
    assert served.cached == 0
    # An event may arrive later than the answer of the step that sent it.
    _until(
        lambda: headway.metric("headway_kv_events_total", type="AllBlocksCleared") > cleared,
        headway,
        f"{served.engine} told of no reset",
    )
    headway.settle()
    _exact_again(headway, "after the reset")


def test_a_drained_engine_finishes_its_requests_and_gets_no_new_ones(
    engines: list[RealEngine], headway: Headway
) -> None:
    headway.until_serving(2)
    engine_id = headway.engine_id(engines[0].url)
    with traffic(headway) as asked:
        _until(lambda: _answered(asked, 8), headway)
        headway.change_engine(engine_id, "/state", {"state": "draining", "why": "test"})
        _until(lambda: headway.states()[engine_id] == "draining", headway)
        before = len(asked)
        _until(lambda: _answered(asked, before + 12), headway)
        headway.change_engine(engine_id, "/state", {"state": "ready", "why": "test"})
        headway.until_serving(2)
    assert _statuses(asked) == {200}
    assert engine_id not in {item.result().engine for item in asked[before + 4 : before + 12]}


def test_no_request_is_lost_while_a_terminating_engine_reports_good_health(
    engines: list[RealEngine], headway: Headway
) -> None:
    """After SIGTERM, vLLM rejects each new request with 500 while its /health is 200."""
    headway.until_serving(2)
    with traffic(headway) as asked:
        _until(lambda: _answered(asked, 8), headway)
        engines[0].terminate()
        headway.until_serving(1)
        before = len(asked)
        _until(lambda: _answered(asked, before + 12), headway)
    assert _statuses(asked) == {200}
    engines[0].restart()
    headway.until_serving(2)
    _exact_again(headway, "after its end")


def test_a_killed_engine_is_ejected_immediately_and_returns_with_an_empty_cache(
    engines: list[RealEngine], headway: Headway
) -> None:
    headway.until_serving(2)
    with traffic(headway) as asked:
        _until(lambda: _answered(asked, 8), headway)
        engines[1].kill()
        headway.until_serving(1)
        before = len(asked)
        _until(lambda: _answered(asked, before + 12), headway)
    ends = [item.result() for item in asked]
    assert {end.status for end in ends} == {200}
    assert sum("error" in end.body for end in ends) <= 2, "only streams that it had begun end with an error"
    engines[1].restart()
    headway.until_serving(2)
    _exact_again(headway, "after the kill")
