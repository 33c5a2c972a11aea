"""Text of an engine's drawer on lower cache tiers and loads."""

from __future__ import annotations

from typing import Any

from gateway.contracts.fleet_sample import EngineSample, TierSample
from web.live.engine_card import below_memory


def sample(**fields: Any) -> EngineSample:
    known: dict[str, Any] = {
        "engine_id": "e", "name": "e", "pool_id": "p", "incarnation": 1, "state": "serving", "reason": "", "since": 0.0,
        "in_flight_tokens": 0, "in_flight_s": 0.0, "running": 0, "bound": 0, "kv_usage": None,
        "prompt_tokens_total": 0, "cached_tokens_total": 0, "index_trust": "exact", "report_age_s": None,
    }  # fmt: skip
    return EngineSample(**{**known, **fields})


def test_tiers_are_listed_with_their_blocks_and_load_rates() -> None:
    tiers = (TierSample("cpu", 4096, 7e-6), TierSample("disk", 1, None))
    words = below_memory(sample(tiers=tiers, adapter_s=0.25)).replace("\u202f", " ")
    assert words == (
        "Lower tiers: 4,096 blocks in CPU memory, 7 ms per 1,000 tokens loaded; 1 block on disk. "
        "Loading a LoRA adapter takes 250 ms."
    )
    assert below_memory(sample()) == ""
