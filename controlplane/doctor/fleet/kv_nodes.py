"""Do the node managers report, and is there one for each engine that names one?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.fleet.models.engine import Engine
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from routing.values.counted import count

_NAMED = 5


def look(_installation: Installation) -> list[Finding]:
    """Ask which nodes are silent, and which engines name one that does not serve; nothing where there are none."""
    try:
        states = dict(KvNode.objects.values_list("name", "state"))
        named = list(Engine.objects.exclude(kv_node="").order_by("engine_id").values_list("name", "kv_node"))
    except DatabaseError:
        # The question about engines says so.
        return []
    silent = sorted(name for name, state in states.items() if state == KvNodeState.SILENT)
    astray = [f"{engine} ({node})" for engine, node in named if states.get(node) not in LIVE]
    found = []
    if silent:
        found.append(
            warning(
                f"No report from {count(len(silent), 'KV node')} for 15 s: {_first(silent)}.",
                "Look at their logs and at the key with which they register; delete those that are gone over the API.",
            )
        )
    if astray:
        found.append(
            warning(
                f"No KV node serves {count(len(astray), 'engine')} by the name that is set: {_first(astray)}.",
                "Start `manage.py node --register`, or correct KV node on the Topology page. Demo nodes run only while "
                "`manage.py up` runs.",
            )
        )
    serving = sum(state in LIVE for state in states.values())
    return found or ([ok(f"{count(serving, 'KV node reports', 'KV nodes report')}.")] if serving else [])


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
