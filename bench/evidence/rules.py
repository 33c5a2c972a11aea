"""Queue orders by the document's names. A name can represent a registered order with special parameters."""

from __future__ import annotations

from collections.abc import Mapping

from routing.policy.policy_document import Parameter, Stage

FORGETTING = "late_last, forgetting"
"""`late_last` that stops counting the blocks of given-up requests as on their way."""
_VARIANTS: dict[str, Stage] = {FORGETTING: Stage(name="late_last", params={"forget_blocks": True})}


def order_stage(name: str, params: Mapping[str, Parameter]) -> Stage:
    """Return the stage of an order by the document's name. `params` override the name's parameters."""
    base = _VARIANTS.get(name, Stage(name=name))
    return Stage(name=base.name, params={**base.params, **params})
