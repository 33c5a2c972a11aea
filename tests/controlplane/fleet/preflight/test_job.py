"""Preflights of real simulated engines through the job: the outcome and its message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import override_settings

from bench.live.loopback_ports import free_ports
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import KeySource, Pool
from controlplane.fleet.preflight import job
from controlplane.fleet.preflight.engine import EngineUnderTest, TestCompletion
from controlplane.fleet.preflight.lifecycle import Preflight, preflight_of, register_for_preflight, start_preflight
from controlplane.fleet.preflight.steps import FAILED, OK, SKIPPED, to_progress
from controlplane.platform.actor import CONSOLE, Actor, person
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from gateway.bus.bus import Bus
from tests.controlplane.simulated_engine import SimulatedEngine

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

Start = Callable[..., SimulatedEngine]


@pytest.fixture
def start(bus: Bus) -> Iterator[Start]:
    running: list[SimulatedEngine] = []

    def start_one(**how: object) -> SimulatedEngine:
        engine = SimulatedEngine(**how)  # type: ignore[arg-type]
        engine.start()
        running.append(engine)
        return engine

    with override_settings(ALLOW_LOOPBACK_ENGINES=True):
        yield start_one
    for engine in running:
        engine.stop()


@pytest.fixture
def small_pool(pool: Pool) -> Pool:
    pool.block_tokens = 16
    pool.max_prompt_tokens = 4096
    pool.save()
    return pool


@pytest.fixture
def operator(small_pool: Pool) -> Actor:
    user = User.objects.create(username="op")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR, pool=small_pool)
    return person(user, via=CONSOLE, request_id="request-1")


def checked(engine: Engine) -> Preflight:
    """Run the job as a wake-up does, and return the engine's finished preflight."""
    job.preflight()
    seen = preflight_of(engine)
    assert seen is not None and not seen.unfinished
    engine.refresh_from_db()
    return seen


def states(seen: Preflight) -> dict[str, str]:
    return {step.key: step.state for step in seen.steps}


def test_healthy_engine_passes_and_serves(start: Start, small_pool: Pool, operator: Actor) -> None:
    running = start()
    engine = register_for_preflight(
        small_pool, "a", running.url, kv_events_endpoint=running.events_endpoint, actor=operator
    )
    assert engine.desired_state == "maintenance"
    seen = checked(engine)
    assert seen.state == "passed"
    assert set(states(seen).values()) == {OK}
    assert "Serves m-8b." in [step.sentence for step in seen.steps]
    assert engine.desired_state == "ready"
    event = AuditEvent.objects.get(verb="engine.ready")
    assert (event.actor_name, event.request_id, event.why) == ("op", "request-1", "passed its preflight")


def test_event_sockets_reported_by_the_engine_are_stored(start: Start, small_pool: Pool, operator: Actor) -> None:
    running = start()
    engine = register_for_preflight(small_pool, "a", running.url, actor=operator)
    assert checked(engine).state == "passed"
    assert engine.kv_events_endpoint == running.events_endpoint
    assert engine.kv_replay_endpoint == f"tcp://127.0.0.1:{running.ports[2]}"


def test_an_address_without_a_listener_fails_the_preflight(small_pool: Pool, operator: Actor, start: Start) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    engine = register_for_preflight(small_pool, "a", url, actor=operator)
    seen = checked(engine)
    assert seen.state == "failed"
    assert seen.failure is not None
    assert seen.failure.sentence == f"Unreachable at {url}: connection refused."
    assert "listens on this address" in seen.failure.remedy
    assert states(seen) == {key: FAILED if key == "reachable" else SKIPPED for key in states(seen)}
    assert engine.desired_state == "maintenance"


def test_other_model_stops_the_preflight_and_a_corrected_engine_serves(
    start: Start, small_pool: Pool, operator: Actor
) -> None:
    wrong, right = start(model="other-8b"), start()
    engine = register_for_preflight(small_pool, "a", wrong.url, actor=operator)
    seen = checked(engine)
    assert seen.failure is not None
    assert seen.failure.sentence == "The engine serves other-8b; the pool's model is m-8b."
    assert seen.stopped_at == 3
    change_engine(engine, {"url": right.url}, actor=operator)
    start_preflight(engine, actor=operator, then_ready=True)
    assert checked(engine).state == "passed"
    assert engine.desired_state == "ready"


def test_pool_adopts_the_block_size_of_its_first_engine(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start(block_tokens=32).url, actor=operator)
    assert checked(engine).state == "passed"
    small_pool.refresh_from_db()
    assert (small_pool.block_tokens, engine.desired_state) == (32, "ready")
    event = AuditEvent.objects.get(verb="pool.change")
    assert (event.actor_name, event.why) == ("preflight", "as its only engine reports")


def test_block_size_mismatch_names_both_sizes(start: Start, small_pool: Pool, operator: Actor) -> None:
    first = register_for_preflight(small_pool, "first", start().url, actor=operator)
    assert checked(first).state == "passed"
    engine = register_for_preflight(small_pool, "a", start(block_tokens=32).url, actor=operator)
    failure = checked(engine).failure
    assert failure is not None
    assert (failure.key, failure.sentence) == ("block_size", "Its blocks have 32 tokens, the pool's 16.")
    assert "--block-size 16" in failure.remedy


def test_too_short_context_fails(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start(extra=("--max-model-len", "2048")).url, actor=operator)
    failure = checked(engine).failure
    assert failure is not None
    assert failure.sentence == "Its context length is 2,048 tokens; the pool accepts prompts of up to 4,096."


def test_engine_without_events_fails_in_an_exact_pool(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start(events=False).url, actor=operator)
    failure = checked(engine).failure
    assert failure is not None
    assert (failure.key, failure.sentence) == ("events", "The engine reports no KV event socket, and none is entered.")


def test_engine_without_events_serves_in_an_approximate_pool(start: Start, small_pool: Pool, operator: Actor) -> None:
    small_pool.key_source = KeySource.APPROXIMATE
    small_pool.save()
    engine = register_for_preflight(small_pool, "a", start(events=False).url, actor=operator)
    seen = checked(engine)
    assert seen.state == "passed"
    assert [step.key for step in seen.steps if step.state == SKIPPED] == ["block_size", "events"]


def test_events_of_another_engine_are_detected(start: Start, small_pool: Pool, operator: Actor) -> None:
    mine, other = start(), start()
    engine = register_for_preflight(small_pool, "a", mine.url, kv_events_endpoint=other.events_endpoint, actor=operator)
    failure = checked(engine).failure
    assert failure is not None
    assert failure.key == "keys"
    assert failure.sentence.startswith("No event within")
    assert "belongs to this engine" in failure.remedy


def test_silent_event_endpoint_is_distinguished_from_a_wrong_one(
    start: Start, small_pool: Pool, operator: Actor
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    engine = register_for_preflight(small_pool, "a", start().url, kv_events_endpoint=endpoint, actor=operator)
    failure = checked(engine).failure
    assert failure is not None
    assert (failure.key, failure.sentence[:19]) == ("events", "No publisher answer")


def test_several_engines_are_checked_in_one_run(start: Start, small_pool: Pool, operator: Actor) -> None:
    running = start()
    first = register_for_preflight(small_pool, "a", running.url, actor=operator)
    others = [
        register_for_preflight(small_pool, f"b{number}", f"http://127.0.0.1:{port}", actor=operator)
        for number, port in enumerate(free_ports(5))
    ]
    assert checked(first).state == "passed"
    assert {preflight_of(engine).state for engine in others} == {"failed"}  # type: ignore[union-attr]


def test_engine_changed_during_its_preflight_keeps_its_state(
    start: Start, small_pool: Pool, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = register_for_preflight(small_pool, "a", start().url, actor=operator)
    complete = EngineUnderTest.complete

    async def change_first(self: EngineUnderTest, prompt: str) -> TestCompletion:
        await sync_to_async(change_engine)(engine, {"speed": 2.0}, actor=operator)
        return await complete(self, prompt)

    monkeypatch.setattr(EngineUnderTest, "complete", change_first)
    seen = checked(engine)
    assert seen.state == "passed"
    assert "Another person changed the engine during the preflight" in seen.remark
    assert engine.desired_state == "maintenance"


def test_person_who_lost_the_role_sets_no_engine_ready(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start().url, actor=operator)
    RoleGrant.objects.update(role=Role.VIEWER)
    seen = checked(engine)
    assert "op may no longer set engines ready" in seen.remark
    assert engine.desired_state == "maintenance"


def test_deleted_engine_ends_its_preflight(small_pool: Pool, operator: Actor, start: Start) -> None:
    engine = register_for_preflight(small_pool, "a", "http://127.0.0.1:1", actor=operator)
    Engine.objects.filter(pk=engine.pk).delete()
    job.preflight()
    run = JobRun.objects.get(job="preflight")
    assert (run.state, run.outcome["reason"]) == (JobState.ABANDONED, "the engine was deleted")


def test_run_of_a_crashed_holder_is_resumed(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start().url, actor=operator)
    seen = preflight_of(engine)
    assert seen is not None
    JobRun.objects.filter(pk=seen.run_id).update(
        lease_owner="dead", progress=to_progress([seen.steps[0]]), fencing_token=7
    )
    assert checked(engine).state == "passed"


def test_prompt_of_the_probe_is_not_stored(start: Start, small_pool: Pool, operator: Actor) -> None:
    engine = register_for_preflight(small_pool, "a", start().url, actor=operator)
    checked(engine)
    run = JobRun.objects.get(job="preflight")
    assert "prompt" not in f"{run.inputs} {run.outcome}"
    assert max(len(step.sentence) for step in preflight_of(engine).steps) < 120  # type: ignore[union-attr]
