"""Prefill and decode on one device: prefill first, else one decode step (the scheduling study's §1)."""

from __future__ import annotations

from msgspec.structs import replace

from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import EngineModel

DEVICE_TOKENS = 300_000
"""Tokens of running requests that fit besides the weights, where the profile does not state it."""


def colocated(profile: EngineProfile, *, emit_tokens: bool = False) -> EngineModel:
    """Return an engine whose running requests, prompt and output, share `device_tokens` of memory.

    A prefill that does not fit waits for a running request to end: the decode bottleneck of DualMap, A.8. With
    `emit_tokens` off, the default, decode steps between two events are simulated as one.
    """
    limited = profile if profile.device_tokens else replace(profile, device_tokens=DEVICE_TOKENS)
    return EngineModel(limited, emit_tokens=emit_tokens)
