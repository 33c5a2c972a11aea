"""The plan of one prefill/decode round, and the state kept between rounds."""

from __future__ import annotations

import msgspec

from planning.facts.fleet_facts import Role
from planning.facts.reason import Reason


class RoleChange(msgspec.Struct, frozen=True):
    """An engine to drain and restart in another role."""

    engine_id: str
    before: Role
    after: Role


class RatioPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Engines that change roles. If there are none, the reasons say why."""

    pool_id: str
    at_s: float
    role_changes: tuple[RoleChange, ...] = ()
    imbalance: float | None = None
    """f_im. Above 1, decode is the busier side."""
    prefill_load: float | None = None
    decode_load: float | None = None
    prefill: int = 0
    """Prefill engines that serve or start."""
    decode: int = 0
    target_prefill: int = 0
    target_decode: int = 0
    reasons: tuple[Reason, ...] = ()


class RatioMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State between rounds. The first round starts with an empty one."""

    out_since_s: float | None = None
    """When the factor left its band, on the side of `out_role`."""
    out_role: str = ""
    changed_s: float | None = None
    changed_to: str = ""
    turns: int = 0
    """Number of role changes that reversed the previous one."""
