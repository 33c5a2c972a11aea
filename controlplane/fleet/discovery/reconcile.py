"""Aligns a pool's engines with the list of one discovery source: registers, moves, drains, deletes, and readmits them.

An engine listed as not ready is drained, unless no other engine of its pool serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from controlplane.fleet.discovery.found_engine import FoundEngine, Presence
from controlplane.fleet.engine_lifecycle import EngineNotEmptyError, delete_idle_engine, set_desired_state
from controlplane.fleet.engine_registration import SOCKET_FIELDS, change_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.lifecycle import preflight_of, register_for_preflight, start_preflight
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.revisions import StaleRevisionError
from routing.values.counted import count

ACTOR = program("discovery")
VANISHED_SCANS = 3
"""Consecutive scans without an engine before it is drained, because DNS may answer with a part of the list. A cluster
lists all of its pods, so a missing engine is drained at once and deleted after this many scans.
"""
AGAIN_AFTER = timedelta(seconds=30)
"""Time after which an engine with a failed preflight is checked again. The preflight fails, for example, while the
engine loads its model.
"""


@dataclass(slots=True)
class Reconciled:
    """The outcome of one scan. Mutable: filled engine by engine."""

    missed: dict[str, int]
    """Engine id → consecutive scans that did not list it."""
    problems: list[str] = field(default_factory=list)


class Reconciliation:
    """One scan of one source. Mutable state: `done`."""

    def __init__(
        self, pool: Pool, source: str, missed: Mapping[str, int], now: datetime, *, complete: bool = False
    ) -> None:
        """Store the parameters. `complete`: each answer of the source lists all of its engines."""
        self._complete = complete
        self.done = Reconciled(dict(missed))
        self._pool = pool
        self._source = source
        self._now = now

    def run(self, listed_engines: Sequence[FoundEngine]) -> Reconciled:
        """Align the pool's engines of this source with the list. Other engines of the pool are unchanged.

        `problems` contains the reason for each rejected engine; the other engines proceed.
        """
        ours = list(Engine.objects.select_related("pool").filter(pool=self._pool, source=self._source))
        by_url, by_name = {our.url: our for our in ours}, {our.name: our for our in ours}
        # By name, too: a pod that is rescheduled may keep its name and gets another address.
        listed = [(item, by_url.get(item.url) or by_name.get(item.name)) for item in listed_engines]
        seen = {engine.engine_id for _, engine in listed if engine is not None}
        for listed_engine, engine in listed:
            self._take(listed_engine, engine)
        self._rest(
            [
                engine
                for listed_engine, engine in listed
                if listed_engine.presence == Presence.WAITING and engine is not None
            ]
        )
        for engine in ours:
            if engine.engine_id not in seen:
                self._miss(engine)
        missing = {engine.engine_id for engine in ours} - seen
        self.done.missed = {name: scans for name, scans in self.done.missed.items() if name in missing}
        return self.done

    def _take(self, listed: FoundEngine, engine: Engine | None) -> None:
        try:
            if engine is None:
                self._register(listed)
            elif listed.presence == Presence.LEAVING:
                _leave(engine, f"Terminating, as {self._source} reports")
            elif engine.url != listed.url:
                _move(engine, listed.url)
            elif listed.presence == Presence.READY:
                _return(engine, self._now)
        except (RejectedUrlError, InvalidFieldsError) as error:
            self.done.problems.append(f"{listed.name}: {error}")
        except (StaleRevisionError, Engine.DoesNotExist):
            # Another process changed it meanwhile; the next scan reads the new state.
            return

    def _rest(self, waiting: Sequence[Engine]) -> None:
        """Drain serving engines that are not ready, if another engine of the pool serves."""
        waiting = [engine for engine in waiting if engine.desired_state == DesiredState.READY]
        others = Engine.objects.filter(pool=self._pool, desired_state=DesiredState.READY)
        if waiting and not others.exclude(pk__in=[engine.pk for engine in waiting]).exists():
            # Where all of them fail their readiness probes, they may only be slow.
            kept = count(len(waiting), "engine serves", "engines serve")
            self.done.problems.append(f"no engine is ready; {kept} until another one is")
            return
        for engine in waiting:
            try:
                _drain(engine, f"Not ready, as {self._source} reports")
            except (StaleRevisionError, Engine.DoesNotExist):
                continue

    def _register(self, listed: FoundEngine) -> None:
        """Register a new engine that is ready, unless its address is already registered."""
        if listed.presence != Presence.READY or Engine.objects.filter(url=listed.url).exists():
            return
        register_for_preflight(
            self._pool,
            listed.name,
            listed.url,
            actor=ACTOR,
            source=self._source,
            why=f"Listed by {self._source}",
            **listed.fields,
        )

    def _miss(self, engine: Engine) -> None:
        scans = self.done.missed[engine.engine_id] = self.done.missed.get(engine.engine_id, 0) + 1
        # A complete list needs no second scan before the drain; deleting waits for it.
        stops = self._complete and engine.desired_state == DesiredState.READY
        if scans >= VANISHED_SCANS or stops:
            try:
                _leave(engine, f"No longer listed by {self._source}")
            except (StaleRevisionError, Engine.DoesNotExist):
                return


def _leave(engine: Engine, why: str) -> None:
    """Drain a serving engine, or delete a drained one, by the same rules as for people."""
    if engine.desired_state == DesiredState.READY:
        _drain(engine, why)
        return
    try:
        delete_idle_engine(engine, actor=ACTOR, expected=engine.revision, why=why)
    except EngineNotEmptyError:
        # It has work, or its work is unknown yet; the next scan checks again.
        return


def _drain(engine: Engine, why: str) -> None:
    # The source lists each rank of a process by itself.
    set_desired_state(engine, DesiredState.DRAINING, actor=ACTOR, expected=engine.revision, why=why, alone=True)


def _move(engine: Engine, url: str) -> None:
    """Store a new address and check the engine again, because another process runs there."""
    with transaction.atomic():
        # The sockets had the old address; the preflight stores those that the engine reports.
        moved = {"url": url, **dict.fromkeys(SOCKET_FIELDS, "")}
        engine = change_engine(engine, moved, actor=ACTOR, expected=engine.revision, why="It has another address")
        set_desired_state(engine, DesiredState.MAINTENANCE, actor=ACTOR, why="set to serve after its preflight")
        start_preflight(engine, actor=ACTOR, then_ready=True)


def _return(engine: Engine, now: datetime) -> None:
    """Check an engine again if discovery drained it and it is listed again, or its preflight failed a while ago."""
    if engine.desired_state == DesiredState.DRAINING and _drained_by_us(engine):
        with transaction.atomic():
            set_desired_state(
                engine, DesiredState.MAINTENANCE, actor=ACTOR, expected=engine.revision, why="Listed again"
            )
            start_preflight(engine, actor=ACTOR, then_ready=True)
    elif engine.desired_state == DesiredState.MAINTENANCE:
        seen = preflight_of(engine)
        failed = seen is not None and seen.state == "failed" and seen.then_ready and seen.finished_at is not None
        if failed and seen is not None and seen.finished_at is not None and now - seen.finished_at >= AGAIN_AFTER:
            start_preflight(engine, actor=ACTOR, then_ready=True)


def _drained_by_us(engine: Engine) -> bool:
    """Return whether discovery set the engine's current state. An engine drained by a person stays drained."""
    moves = AuditEvent.objects.filter(object_kind="engine", object_id=engine.engine_id, verb__in=_MOVES)
    last = moves.order_by("-pk").first()
    return last is not None and last.verb == "engine.drain" and last.actor_name == ACTOR.name


_MOVES = ("engine.ready", "engine.drain", "engine.maintain")
