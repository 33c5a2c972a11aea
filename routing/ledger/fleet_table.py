"""The pool's engines: map facts about engines to targets of the view and the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvstore.index.cache_tails import STATE, WINDOW, Tail
from kvstore.index.prefix_index import PrefixIndex
from kvstore.index.target_table import TargetTable
from routing.cost.loading_costs import LoadingCosts
from routing.ledger.fleet_view import EngineFacts, FleetView
from routing.ledger.own_loads import OwnLoads
from routing.ledger.ready_targets import SCANNED_TARGETS, ReadyOrder


class FleetTable:
    """Engine id → target of its current incarnation, mirrored into the view.

    Mutable state: `_facts`, `_targets` and the engine lists of the view.
    """

    def __init__(self, view: FleetView, index: PrefixIndex) -> None:
        self._view = view
        self._index = index
        self._facts: dict[str, EngineFacts] = {}
        self._targets = TargetTable()
        self._target_of: dict[str, int] = {}
        self.incarnations: list[int] = []
        """Incarnation of each target's engine."""
        self.loading_costs = LoadingCosts()

    def known_target(self, engine_id: str) -> int:
        """Return the target of an engine. Raises KeyError if the engine is unknown."""
        return self._target_of[engine_id]

    def target_of(self, engine_id: str) -> int | None:
        """Return the target of the engine's current incarnation, None for an unknown engine."""
        return self._target_of.get(engine_id)

    def declare_tail(self, engine_id: str, tail: Tail) -> None:
        """Record the state that an engine needs at the end of a prefix besides its blocks, if the engine is known."""
        if engine_id in self._target_of:
            self._index.tails.declare(self._target_of[engine_id], tail)

    def change_tail(self, engine_id: str, part: str, stored: bool, keys: Sequence[int]) -> None:
        """Record blocks of a part of the tail that an engine stored or removed."""
        if engine_id in self._target_of:
            self._index.change_tail(self._target_of[engine_id], part, stored, keys)

    def keep_tail(self, engine_id: str, keys: Sequence[int]) -> None:
        """Record that an engine keeps the state it needs at the end of a prompt with these known keys."""
        if engine_id in self._target_of:
            target = self._target_of[engine_id]
            tail = self._index.tails.of(target)
            if tail.window_blocks:
                self._index.change_tail(target, WINDOW, True, keys[-tail.window_blocks :])
            if tail.states:
                self._index.change_tail(target, STATE, True, keys[-1:])

    def change_tier(self, engine_id: str, tier: str, stored: bool, keys: Sequence[int]) -> None:
        """Record blocks that a tier below an engine's memory stored or removed. Unknown engines are ignored."""
        if engine_id in self._target_of:
            # The first lower tier ends the fast path for equal engines.
            if stored:
                self.own_loads()
            self._index.change_tier(self._target_of[engine_id], tier, stored, keys)

    def note_adapters(self, engine_id: str, adapters: Iterable[str], limit: int | None = None) -> None:
        """Record the LoRA adapters that an engine uses, and how many it can keep, if known."""
        if engine_id in self._target_of:
            self.own_loads().adapters.used(self._target_of[engine_id], adapters, limit)

    def own_loads(self) -> OwnLoads:
        """Return the loads that engines make. After the first call, engines no longer count as alike."""
        view = self._view
        if view.own is None:
            view.own = OwnLoads(self._index.tiers, self.loading_costs)
            view.roster.alike = False
        return view.own

    def facts(self) -> list[EngineFacts]:
        """Return the facts of all engines, in the order of their ids."""
        return [self._facts[engine_id] for engine_id in sorted(self._facts)]

    def incarnation(self, engine_id: str) -> int:
        """Return the engine's current incarnation, 0 for an unknown engine."""
        facts = self._facts.get(engine_id)
        return facts.incarnation if facts is not None else 0

    def gone(self, engines: Sequence[EngineFacts]) -> list[int]:
        """Return the targets whose engine or incarnation is not in `engines`."""
        coming = {engine.engine_id: engine.incarnation for engine in engines}
        return [
            self._target_of[engine_id]
            for engine_id, facts in sorted(self._facts.items())
            if coming.get(engine_id) != facts.incarnation
        ]

    def replace(self, engines: Sequence[EngineFacts]) -> list[int]:
        """Set the whole pool to `engines`. Return the new targets."""
        for target in self.gone(engines):
            engine_id = self._view.roster.engine_ids[target]
            self._targets.release(_name(self._facts[engine_id]))
            self._index.clear(target)
            if self._view.own is not None:
                self._view.own.adapters.clear(target)
            del self._facts[engine_id], self._target_of[engine_id]
        # The index was cleared of the released bits above, so that they may be reused.
        self._targets.sweep()
        fresh = []
        for facts in sorted(engines, key=lambda engine: engine.engine_id):
            target = self._targets.assign(_name(facts))
            if facts.engine_id not in self._facts:
                fresh.append(target)
            self._facts[facts.engine_id] = facts
            self._target_of[facts.engine_id] = target
            self._write(target, facts, is_new=target in fresh)
        self._renew_view()
        return fresh

    def _write(self, target: int, facts: EngineFacts, *, is_new: bool) -> None:
        roster, load = self._view.roster, self._view.load
        while len(roster.engine_ids) <= target:
            roster.engine_ids.append("")
            load.grow()
            roster.costs.append(None)
            roster.decode_costs.append(None)
            roster.speeds.append(1.0)
            roster.trusts.append(1.0)
            self.incarnations.append(0)
        self.incarnations[target] = facts.incarnation
        roster.engine_ids[target] = facts.engine_id
        roster.costs[target] = facts.cost
        roster.decode_costs[target] = facts.decode_cost
        roster.speeds[target] = facts.speed
        roster.trusts[target] = facts.trust
        if facts.share < 1.0:
            roster.shares[target] = facts.share
        else:
            roster.shares.pop(target, None)
        if is_new:
            load.clear(target)

    def _renew_view(self) -> None:
        view, roster, load = self._view, self._view.roster, self._view.load
        accepting = [fact for fact in self.facts() if fact.accepts]
        roster.accepting = tuple(self._target_of[item.engine_id] for item in accepting)
        roster.accepting_mask = sum(1 << target for target in roster.accepting)
        roster.uniform = len({(item.speed, item.cost) for item in accepting}) <= 1
        roster.decodes_alike = len({item.decode_cost for item in accepting}) <= 1
        roster.alike = view.own is None and len({(item.speed, item.cost, item.trust) for item in accepting}) <= 1
        # For few targets a scan is quicker than an order that must be kept.
        ordered = len(load.ready_at) > SCANNED_TARGETS
        load.ready_order = ReadyOrder(load.ready_at) if ordered else None
        load.answer_order = ReadyOrder(load.answers) if ordered else None
        # Hash rings are derived once per version.
        roster.version += 1
        view.forget_derived()


def _name(facts: EngineFacts) -> str:
    # A restarted engine is another target: its cache is empty.
    return f"{facts.engine_id}#{facts.incarnation}"
