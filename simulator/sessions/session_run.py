"""One run: clients in a closed loop on a fleet, and the measurements."""

from __future__ import annotations

import random
from functools import partial
from itertools import count
from typing import Literal

import msgspec

from routing.advisories.agent_workflows import AgentWorkflows
from simulator.sessions.agents import ROLES, AgentProject, profiled_call_graph
from simulator.sessions.conversations import LEAD_MEAN_S, Conversations
from simulator.sessions.hardware import ENGINES, MAX_CONTEXT, SERVED_MODELS, Hardware
from simulator.sessions.migration import SessionMigration
from simulator.sessions.session_fleet import SessionFleet
from simulator.sessions.session_report import SessionReport, report_of
from simulator.sessions.systems import system_named
from simulator.sessions.turn import NextTurn, Session, SessionClient, Turn
from simulator.virtual_clock import VirtualClock

CacheOn = Literal["dram", "half", "disk"]
WORKLOADS = ("chat", "burst", "agents", "prefill")
WARM_UP_S = 60.0
MEASURED_S = 300.0
_SAMPLE_S = 1.0
_SPURIOUS_WITHIN_S = 50.0
_CONTEXT_SHARE_OF_MEMORY = 0.75


class SessionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a run."""

    workload: str
    system: str
    users: int
    seed: int
    model: str = "8b"
    dram_gb: float = 200.0
    hbm_tokens: int | None = None
    cache_on: CacheOn = "dram"
    missed: float = 0.0
    spurious: float = 0.0
    lead_s: float | None = None
    fresh: bool = False
    priority: float = 0.0
    """Share of clients whose requests have priority."""
    compressed: bool = False
    files: int = 8
    """Number of files that an agents' project writes."""
    measured_s: float = MEASURED_S


def run_sessions(spec: SessionSpec) -> SessionReport:
    """Run until every request from the measured period is answered, or at most that period again; return the report."""
    run = _SessionRun(spec)
    run.clock.run(WARM_UP_S)
    end_s = WARM_UP_S + spec.measured_s
    run.clock.run(end_s)
    while (run.measured_left or run.projects) and run.clock.now < end_s + spec.measured_s:
        run.clock.run(run.clock.now + 10.0)
    run.fleet.check()
    return report_of(
        spec.system, spec.workload, spec.users, spec.seed, run.turns, run.samples, run.requests, now=run.clock.now,
        requests_per_s=run.answered / spec.measured_s, wasted_bytes=run.fleet.nodes.use.wasted_bytes,
        disk_busy=run.fleet.nodes.disk_busy,
        projects_s=[*run.projects_s, *(run.clock.now - begun_s for begun_s in run.projects.values())],
    )  # fmt: skip


class _SessionRun:
    """Mutable state of one run."""

    def __init__(self, spec: SessionSpec) -> None:
        self.clock = VirtualClock()
        self.turns: list[Turn] = []
        self.samples: list[list[int]] = []
        self.requests: list[list[int]] = []
        self.projects: dict[int, float] = {}
        """Start of each client's first project, until that ends."""
        self.projects_s: list[float] = []
        self.measured_left = 0
        self.answered = 0
        self._spec = spec
        self._ids = count()
        self._lead_s = spec.lead_s or LEAD_MEAN_S
        self._end_s = WARM_UP_S + spec.measured_s
        profile = SERVED_MODELS[spec.model]
        system = system_named(spec.system, compressed=spec.compressed)
        memory = spec.hbm_tokens or profile.num_blocks
        self._workflows: AgentWorkflows[Session] = AgentWorkflows(
            profiled_call_graph(spec.model), limit=max(1, spec.users)
        )
        self._max_context = min(MAX_CONTEXT[spec.model], int(memory * _CONTEXT_SHARE_OF_MEMORY))
        hardware = Hardware(dram_bytes=spec.dram_gb * 1e9)
        self.fleet = SessionFleet(self.clock, system, profile, hardware, memory, self._answered)
        self._clients: list[SessionClient] = []
        self._hints: list[random.Random] = []
        self._upcoming: dict[int, NextTurn] = {}
        self._serving: dict[Turn, int] = {}
        self._left_alone: list[Session] = []
        self._distribute(self._make_clients())
        for number in range(spec.users):
            first = self._plan(number)
            if first.agent:
                self.projects[number] = first.after_s
            self._await(number)
        self.clock.at(WARM_UP_S, self._sample)
        if system.migrates:
            SessionMigration(self.fleet).start()

    def _make_clients(self) -> list[Session]:
        spec = self._spec
        for number in range(spec.users):
            rng = random.Random(f"{spec.seed} {number}")
            self._hints.append(random.Random(f"{spec.seed} hints {number}"))
            if spec.workload == "agents":
                self._clients.append(AgentProject(rng, self._ids, self._max_context, files=spec.files))
            else:
                self._clients.append(self._person(rng, fresh=spec.fresh))
        if spec.spurious:
            left = [self._person(random.Random(f"{spec.seed} left {number}")) for number in range(spec.users)]
            self._left_alone = [session for item in left for session in item.sessions()]
        return [session for client in self._clients for session in client.sessions()]

    def _person(self, rng: random.Random, *, fresh: bool = False) -> Conversations:
        spec = self._spec
        return Conversations(
            rng, self._ids, self._max_context, bursts=spec.workload == "burst", fresh=fresh, lead_s=spec.lead_s,
            prefill_only=spec.workload == "prefill",
        )  # fmt: skip

    def _distribute(self, sessions: list[Session]) -> None:
        """Put the sessions' caches on their engines; sessions that never return were used before the others."""
        random.Random(f"{self._spec.seed} places").shuffle(sessions)
        for number, session in enumerate([*self._left_alone, *sessions]):
            self._demote(session)
            self.fleet.join(session, number % ENGINES)

    def _demote(self, session: Session) -> None:
        on = self._spec.cache_on
        session.demoted = on == "disk" or (on == "half" and session.session_id % 2 == 0)

    def _plan(self, number: int) -> NextTurn:
        upcoming = self._clients[number].next_turn()
        upcoming.session.priority = number < self._spec.priority * self._spec.users
        self._demote(upcoming.session)
        self._upcoming[number] = upcoming
        return upcoming

    def _await(self, number: int) -> None:
        """Schedule the client's next request after its think time and, for a person who types, the advisory before
        it.
        """
        upcoming = self._upcoming[number]
        arrival_s = self.clock.now + upcoming.after_s
        if upcoming.lead_s is not None:
            self._advise(number, upcoming.session, self._lead_s, arrival_s - upcoming.lead_s)
        self.clock.at(arrival_s, partial(self._arrive, number, upcoming))

    def _advise(self, number: int, session: Session, lead_s: float, at_s: float) -> None:
        if self._hints[number].random() >= self._spec.missed:
            self.clock.at(at_s, partial(self.fleet.advise, session, lead_s))

    def _advise_next_agents(self, number: int, upcoming: NextTurn) -> None:
        advice = self._workflows.started(upcoming.workflow, upcoming.agent, upcoming.session)
        for session in advice.invalidate:
            self.fleet.invalidate(session)
        for item in advice.advise:
            self._advise(number, item.session, item.expected_s, self.clock.now)

    def _arrive(self, number: int, upcoming: NextTurn) -> None:
        turn = Turn(upcoming.session, upcoming.prompt_tokens, upcoming.answer_tokens, self.clock.now)
        self._serving[turn] = number
        if WARM_UP_S <= self.clock.now < self._end_s:
            self.measured_left += 1
            self.turns.append(turn)
        self.fleet.arrive(turn)
        if upcoming.agent:
            self._advise_next_agents(number, upcoming)
        self._plan(number)

    def _answered(self, turn: Turn) -> None:
        number = self._serving.pop(turn)
        if WARM_UP_S <= turn.arrived_s < self._end_s:
            self.measured_left -= 1
        self.answered += WARM_UP_S <= self.clock.now < self._end_s
        if number in self.projects and self._upcoming[number].agent == ROLES[0]:
            self.projects_s.append(self.clock.now - self.projects.pop(number))
        hints = self._hints[number]
        if self._left_alone and hints.random() < self._spec.spurious:
            at_s = self.clock.now + hints.random() * _SPURIOUS_WITHIN_S
            self.clock.at(at_s, partial(self.fleet.advise, hints.choice(self._left_alone), self._lead_s))
        self._await(number)

    def _sample(self) -> None:
        self.samples.append(self.fleet.active_tokens())
        self.requests.append(self.fleet.bound_requests())
        if self.clock.now + _SAMPLE_S < self._end_s:
            self.clock.at(self.clock.now + _SAMPLE_S, self._sample)
