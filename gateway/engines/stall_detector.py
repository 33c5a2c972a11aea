"""Notices engines that take requests and bring nothing, by the streams that this gateway has there.

A single stalled stream: gateway/proxy/progress_guard.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from gateway.engines.engine_progress import Watched
from routing.values.counted import count

LONGEST_STEP_S = 1.0
"""More does not pass between two looks: when this process stood still itself, that says nothing of the engines."""
PREFILL_SHARE = 1.5
"""So many times its longest prefill may an engine be silent, which decodes nothing meanwhile."""
OTHERS_WORK = 2.0
"""So many times as long where it holds requests of others, whose prefills are not known here."""


class StallWatch:
    """One pool's engines. Mutable state: each one's last count of signs and seconds without one, and the last look.

    An engine alone, or with half of the pool out already, is left in: others could not do its work.
    """

    def __init__(self, stall_s: float, vouches: Callable[[float, float], bool] = lambda _since_s, _now: True) -> None:
        """`vouches`: whether this process was there to hear the engines between two moments."""
        self._stall_s = stall_s
        self._vouches = vouches
        self._silent: dict[str, tuple[int, float]] = {}
        self._looked_at: float | None = None

    def look(
        self,
        watched: Mapping[str, Watched],
        said: Mapping[str, int | None],
        accepting: Collection[str],
        out: Collection[str],
        now: float,
    ) -> Iterator[tuple[str, str]]:
        """Yield engines that stand still, with the reason, the longest silent first.

        `said`: the requests that each says it holds. `accepting` take work now, `out` are out for standing still.
        """
        self._listen(watched, accepting, now)
        room = len(watched) // 2 - len(out)
        left = len(set(accepting))
        for engine_id in sorted(self._silent, key=lambda each: (-self._silent[each][1], each)):
            facts, silent_s = watched[engine_id], self._silent[engine_id][1]
            if engine_id not in accepting or silent_s < self._limit_s(facts, said.get(engine_id)):
                continue
            if room < 1 or left < 2:
                return
            room, left = room - 1, left - 1
            streams = count(facts.streams, "stream has", "streams have")
            yield engine_id, f"{streams} produced nothing for {silent_s:.1f} s"

    def _listen(self, watched: Mapping[str, Watched], accepting: Collection[str], now: float) -> None:
        step_s, since_s = 0.0, self._looked_at
        if since_s is not None and self._vouches(since_s, now):
            step_s = min(now - since_s, LONGEST_STEP_S)
        self._looked_at = now
        heard = {}
        for engine_id, facts in watched.items():
            signs, silent_s = self._silent.get(engine_id, (facts.signs, 0.0))
            # What an engine that is out has begun may take its time: it is judged anew from its return on.
            quiet = engine_id in accepting and facts.streams > 0 and facts.signs == signs
            heard[engine_id] = (facts.signs, silent_s + step_s if quiet else 0.0)
        self._silent = heard

    def _limit_s(self, facts: Watched, said: int | None) -> float:
        limit_s = self._stall_s + PREFILL_SHARE * facts.longest_prefill_s
        return limit_s * (OTHERS_WORK if said is not None and said > facts.standing else 1.0)
