"""`/api/v1/pools/…/rings`, `/api/v1/pools/…/affinity` and `/api/v1/engines/…/hits`: which prompts go where."""

from __future__ import annotations

import time

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.history.affinity.answers import affinity_answer, hits_answer, rings_answer
from controlplane.history.affinity.intake import PoolWord, affinity_hearing
from controlplane.history.affinity.shape import EngineHitsShape, PoolAffinityShape, PoolRingsShape
from controlplane.platform.api.base import ApiView
from controlplane.platform.api.problem import ProblemError
from gateway.contracts.affinity_sample import EngineAffinity
from routing.rings.ring_shares import UnknownEngineError


class _OfPool(ApiView):
    noun = "pools"

    def told(self, slug: str) -> tuple[str, PoolWord | None]:
        """Return the pool's slug, if the actor may see it, and what a gateway said of it."""
        found: str = visible_pools(self.actor).get(slug=slug).slug
        return found, affinity_hearing().of(found, time.time())


class PoolRings(_OfPool):
    """The hash rings of one pool."""

    shape = PoolRingsShape
    parameters = (
        OpenApiParameter(
            "without", {"type": "string", "maxLength": 64}, description="Id or name of an engine to remove."
        ),
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """Return each engine's exact share of the keys, and with `without` what would move if that engine left."""
        pool, word = self.told(slug)
        try:
            return self.show(rings_answer(pool, word, request.query_params.get("without", "")))
        except UnknownEngineError as error:
            raise ProblemError(400, f"{error}. Name an engine that is listed without this parameter.") from error


class PoolAffinity(_OfPool):
    """Prefixes, engines, and where time goes."""

    shape = PoolAffinityShape

    def get(self, request: Request, *, slug: str) -> Response:
        """Return the prefixes that requests share with their holders, TTFT by part, and hits as reported."""
        return self.show(affinity_answer(*self.told(slug)))


class OneEngineHits(ApiView):
    """What an engine's index is worth."""

    noun = "engines"
    shape = EngineHitsShape

    def get(self, request: Request, *, engine_id: str) -> Response:
        """Return the hits that were predicted and reported, the trust in the engine's index, and its reason."""
        engine = visible_engines(self.actor).select_related("pool").get(engine_id=engine_id)
        word = affinity_hearing().of(engine.pool.slug, time.time())
        told = [each for each in word.pool.engines if each.engine_id == engine_id] if word is not None else []
        if not told:
            word = None
            told = [EngineAffinity(engine_id=engine_id, name=engine.name, accepts=False)]
        return self.show(hits_answer(told[0], engine.pool.slug, word))
