"""Sessions that stay on their last engine: InferCept and Parrot in SYMPHONY's comparisons (SYMPHONY §4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from routing.advisories.advised_routing import STICKY_S, AdvisedRouting, Option
from routing.values.load_options import Fetch, LoadOptions


class StickySessions(AdvisedRouting):
    """Reserves a session's last engine, and stages only blocks that this engine's own node holds on SSD.

    For a policy with the rule `symphony`, which keeps sessions without an advisory and never overrules a reservation.
    """

    lifetime_s = STICKY_S

    @override
    def _chosen(self, options: Sequence[Option], last_engine: str) -> Option:
        ids = self._view.roster.engine_ids
        home = next((option for option in options if ids[option.target] == last_engine), None)
        return home if home is not None else self._cheapest(options)

    @override
    def _fetch(self, chosen: Option, loads: LoadOptions) -> Fetch | None:
        fetch = chosen.prefill.fetch
        home = loads.costs.homes[self._view.roster.engine_ids[chosen.target]]
        return fetch if fetch is not None and fetch.node == home else None
