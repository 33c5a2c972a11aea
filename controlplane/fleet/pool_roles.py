"""Problems with the roles of a pool's engines."""

from __future__ import annotations

from collections.abc import Mapping


def role_problems(roles: Mapping[str, int]) -> list[str]:
    """Return one sentence part for each fault, given how many engines have each role.

    Prefill engines have nobody to hand over to without a decode engine, and nobody feeds a decode engine
    without a prefill engine; neither is then used.
    """
    prefill, decode = roles.get("prefill", 0), roles.get("decode", 0)
    if prefill and not decode:
        return [f"{prefill} prefill, but no decode engine: register one, or set them to mixed"]
    if decode and not prefill:
        return [f"{decode} decode, but no prefill engine: register one, or set them to mixed"]
    return []
