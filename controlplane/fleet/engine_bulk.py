"""Applies several engine changes atomically, or reports their effects in a dry run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, delete_idle_engine, set_desired_state
from controlplane.fleet.engine_registration import ADDRESS_FIELDS, ENGINE_FIELDS, checked_addresses, store_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.roles import NotAllowedError

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """Result of one operation, applied or simulated. None: there was or is no engine."""

    op: str
    before: Engine | None
    after: Engine | None


def change_many(operations: Sequence[Operation], *, actor: Actor, dry_run: bool, why: str = "") -> list[BulkOutcome]:
    """Apply operations (register, state, delete) in order and return their results.

    Raises InvalidFieldsError with the problems of all operations, each under operations[n]. Nothing changes in that
    case or in a dry run.
    """
    # Names are resolved before the transaction, which would otherwise hold its lock meanwhile.
    addresses, problems = _resolved(operations, {pool.slug: pool for pool in visible_pools(actor)})
    outcomes: list[BulkOutcome] = []
    with transaction.atomic():
        for number, operation in enumerate(operations):
            if number not in addresses:
                continue
            try:
                # A savepoint each: after a failed statement, PostgreSQL would reject those of the next operations.
                with transaction.atomic():
                    outcomes.append(_VERBS[operation["op"]](operation, addresses[number], actor, why))
            except (NotAllowedError, EngineNotEmptyError) as error:
                problems.append(FieldProblem(f"operations[{number}]", str(error)))
            except InvalidFieldsError as error:
                problems += [_under(number, field_problem) for field_problem in error.problems]
        # All operations have run, so every problem is known; none takes effect.
        transaction.set_rollback(dry_run or bool(problems))
    if problems:
        raise InvalidFieldsError(sorted(problems, key=lambda field_problem: _number(field_problem.path)))
    return outcomes


def _resolved(
    operations: Sequence[Operation], pools: Mapping[str, Pool]
) -> tuple[dict[int, dict[str, str]], list[FieldProblem]]:
    addresses: dict[int, dict[str, str]] = {}
    problems = []
    for number, operation in enumerate(operations):
        missing = [name for name in _NEEDED[operation["op"]] if name not in operation]
        problems += [FieldProblem(f"operations[{number}].{name}", "Is missing.") for name in missing]
        if missing:
            continue
        registers = operation["op"] == "register"
        try:
            addresses[number] = checked_addresses(operation, pools.get(operation["pool"])) if registers else {}
        except RejectedUrlError as error:
            problems.append(FieldProblem(f"operations[{number}].{error.field}", f"{error}."))
    return addresses, problems


def _register(operation: Operation, addresses: dict[str, str], actor: Actor, why: str) -> BulkOutcome:
    pool = visible_pools(actor).filter(slug=operation["pool"]).first()
    if pool is None:
        raise _unknown_pool(actor)
    given = {name: operation[name] for name in ENGINE_FIELDS.difference(ADDRESS_FIELDS, ("name",)) & operation.keys()}
    engine = store_engine(pool, operation["name"], addresses, actor=actor, why=why, **given)
    return BulkOutcome("register", None, engine)


def _set_state(operation: Operation, _addresses: dict[str, str], actor: Actor, why: str) -> BulkOutcome:
    before, engine = _engine(operation, actor), _engine(operation, actor)
    after = set_desired_state(engine, DesiredState(operation["state"]), actor=actor, why=why)
    return BulkOutcome("state", before, after)


def _delete(operation: Operation, _addresses: dict[str, str], actor: Actor, why: str) -> BulkOutcome:
    engine = _engine(operation, actor)
    delete_idle_engine(engine, actor=actor, why=why)
    return BulkOutcome("delete", engine, None)


def _engine(operation: Operation, actor: Actor) -> Engine:
    engine = visible_engines(actor).filter(engine_id=operation["engine_id"]).first()
    if engine is None:
        raise problem("engine_id", "No such engine.")
    return engine


def _unknown_pool(actor: Actor) -> InvalidFieldsError:
    known: list[Pool] = list(visible_pools(actor)[:10])
    return problem("pool", f"There is no such pool; known are {', '.join(pool.slug for pool in known) or 'none'}.")


def _under(number: int, field_problem: FieldProblem) -> FieldProblem:
    path = f"operations[{number}]"
    return FieldProblem(f"{path}.{field_problem.path}" if field_problem.path else path, field_problem.message)


def _number(path: str) -> int:
    return int(path.partition("[")[2].partition("]")[0])


_NEEDED: dict[str, tuple[str, ...]] = {
    "register": ("pool", "name", "url"),
    "state": ("engine_id", "state"),
    "delete": ("engine_id",),
}
_VERBS: dict[str, Callable[[Operation, dict[str, str], Actor, str], BulkOutcome]] = {
    "register": _register,
    "state": _set_state,
    "delete": _delete,
}
