"""The table that maps names of engine models to their constructors."""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import colocated
from simulator.engine_models.pd import PrefillDecodeEngine
from simulator.engine_models.pipelined import PipelinedEngine
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import SimulatedEngine

ENGINE_MODELS: dict[str, Callable[[EngineProfile], SimulatedEngine]] = {
    "reference": ReferenceEngine,
    "colocated": colocated,
    "chunked": ChunkedEngine,
    "pd": PrefillDecodeEngine,
    "pipelined": PipelinedEngine,
}


class UnknownEngineModelError(ValueError):
    """No engine model has this name; the message lists the known names."""


def build_engine(name: str, profile: EngineProfile) -> SimulatedEngine:
    """Return a new engine of this model; raise UnknownEngineModelError if the name is unknown."""
    build = ENGINE_MODELS.get(name)
    if build is None:
        raise UnknownEngineModelError(f"engine model {name!r} is unknown; known are {', '.join(sorted(ENGINE_MODELS))}")
    return build(profile)
