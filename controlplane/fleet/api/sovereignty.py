"""`/api/v1/sovereignty`."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from controlplane.fleet.api.sovereignty_shape import SovereigntyChange, SovereigntyShape
from controlplane.fleet.models.sovereignty import Sovereignty
from controlplane.fleet.sovereignty.rules import replace_sovereignty, stored_sovereignty
from controlplane.platform.api.base import by_method
from controlplane.platform.api.changeable_object import Changeable
from controlplane.platform.role import Role


class SovereigntyRules(Changeable):
    """Which tenants' requests may leave which region for which other one."""

    noun = "regions"
    shape = SovereigntyShape
    changed = staticmethod(replace_sovereignty)
    bodies = by_method(PUT=SovereigntyChange, PATCH=SovereigntyChange)
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *_args: Any, **_names: Any) -> Sovereignty:
        """Return the only document."""
        return stored_sovereignty()
