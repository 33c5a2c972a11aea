"""Prefill and decode on one device: a step is a prefill if one is waiting, else a decode step (the scheduling study's
§1).
"""

from __future__ import annotations

from msgspec.structs import replace

from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import EngineModel

DEVICE_TOKENS = 300_000
"""Device memory in tokens for running requests, besides the weights, if the profile does not state it."""


def colocated(profile: EngineProfile, *, emit_tokens: bool = False) -> EngineModel:
    """Return an engine whose running requests share `device_tokens` of memory for prompt and output.

    A prefill that does not fit waits for a running request to end: the decode bottleneck of DualMap, A.8. By default
    (`emit_tokens` off), decode steps between two events are simulated as one.
    """
    limited = profile if profile.device_tokens else replace(profile, device_tokens=DEVICE_TOKENS)
    return EngineModel(limited, emit_tokens=emit_tokens)
