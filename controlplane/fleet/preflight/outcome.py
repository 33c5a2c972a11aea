"""Applies the results of a preflight: stores discovered facts, and sets the engine to ready if requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.fleet.engine_addressing import engine_url_rules, key_variable
from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import KeySource
from controlplane.fleet.preflight.checks import EventSource, PreflightSubject
from controlplane.fleet.preflight.steps import Step, failed_step
from controlplane.fleet.ready_engines import others_in_use
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import Actor, program
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError

WHY = "passed its preflight"
BLOCK_SIZE = "as its only engine reports"


def preflight_subject(run_id: int) -> PreflightSubject | None:
    """Return the engine and requirements to check, as stored now; None if the engine was deleted."""
    run = JobRun.objects.get(pk=run_id)
    engine = _engine_of(run)
    if engine is None:
        return None
    pool = engine.pool
    return PreflightSubject(
        url=engine.url,
        connect_url=engine.connect_url,
        served_model=pool.served_model,
        exact=pool.key_source == KeySource.EXACT,
        block_tokens=pool.block_tokens,
        alone=not others_in_use(pool, engine),
        max_prompt_tokens=pool.max_prompt_tokens,
        events_endpoint=engine.kv_events_endpoint,
        replay_endpoint=engine.kv_replay_endpoint,
        revision=engine.revision,
        rules=engine_url_rules(pool),
        key_variable=key_variable(engine),
        rank=engine.rank,
    )


def conclude(
    run_id: int, revision: int, steps: Sequence[Step], source: EventSource, block_tokens: int | None = None
) -> dict[str, Any]:
    """Store the discovered event sockets and block size, set the engine to ready, and return the run's outcome.

    Nothing is changed if the engine no longer has the `revision` at which the check began.
    """
    failure = failed_step(steps)
    if failure is not None:
        return {"result": "failed", "step": failure.key, "reason": failure.sentence, "remedy": failure.remedy}
    run = JobRun.objects.get(pk=run_id)
    try:
        remark = _apply(run, revision, source, block_tokens)
    except StaleRevisionError:
        remark = "Another person changed the engine during the preflight, so its state is unchanged. Check it again."
    except NotAllowedError as error:
        remark = f"{run.inputs.get('by')} may no longer set engines ready, so its state is unchanged. {error}"
    except RejectedUrlError as error:
        remark = f"Its event socket was not stored: {error}."
    return {"result": "passed", "remark": remark}


def _apply(run: JobRun, expected: int, source: EventSource, block_tokens: int | None) -> str:
    engine = _engine_of(run)
    if engine is None:
        return "The engine was deleted."
    actor = _actor_of(run)
    done = []
    with transaction.atomic():
        if block_tokens not in (None, engine.pool.block_tokens):
            if others_in_use(engine.pool, engine):
                return "Another engine came into use meanwhile, so the block size is unchanged. Check it again."
            # A block size is a fact, not a wish: an operator may correct the pool's by registering the first engine.
            change_pool(engine.pool, {"block_tokens": block_tokens}, actor=program("preflight"), why=BLOCK_SIZE)
            done.append(f"The pool's block size is now {block_tokens}.")
        if source.discovered:
            sockets = {"kv_events_endpoint": source.endpoint, "kv_replay_endpoint": source.replay_endpoint}
            engine = change_engine(
                engine, sockets, actor=actor, expected=expected, why=f"{WHY}; reported by the engine"
            )
            expected = engine.revision
            done.append("Its event socket is stored.")
        if run.inputs.get("then_ready"):
            # Alone: each rank of a process has a preflight of its own.
            set_desired_state(engine, DesiredState.READY, actor=actor, expected=expected, why=WHY, alone=True)
            done.append("It is serving.")
    return " ".join(done)


def _engine_of(run: JobRun) -> Engine | None:
    return Engine.objects.select_related("pool").filter(engine_id=run.inputs.get("engine_id")).first()


def _actor_of(run: JobRun) -> Actor:
    """Return the actor who requested the preflight, with their current roles."""
    user_pk = run.inputs.get("user")
    if user_pk is None:
        return program("preflight")
    user = User.objects.filter(pk=user_pk, is_active=True).first()
    if user is None:
        raise NotAllowedError("The account was deleted.")
    return Actor(user.get_username(), str(run.inputs.get("via", "")), user, str(run.inputs.get("request_id", "")))
