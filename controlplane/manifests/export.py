"""Exports objects in the form of files. An unchanged export changes nothing when it is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from controlplane.manifests.kinds import KINDS
from controlplane.platform.actor import Actor
from routing.values.counted import count

API_VERSION = "headway/v1"


def exported(
    actor: Actor, *, kinds: Collection[str] = (), defaults: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects that the actor may see, in the order in which they are created, and sentences about others.

    `kinds` limits them; empty: all. With `defaults`, fields with default values are included.
    """
    objects, left_out = [], []
    for kind in KINDS:
        things = list(kind.rows(actor)) if not kinds or kind.name in kinds else []
        names = Counter(kind.name_in(kind.metadata_of(thing)) for thing in things)
        left_out += [f"{kind.name} {name}: {times} have this name" for name, times in names.items() if times > 1]
        discovered = [thing for thing in things if getattr(thing, "source", "")]
        left_out += [f"{count(len(discovered), kind.name)} that discovery maintains"] if discovered else []
        for thing in things:
            metadata = kind.metadata_of(thing)
            if names[kind.name_in(metadata)] == 1 and thing not in discovered:
                spec = kind.exported(thing, defaults=defaults)
                objects.append({"apiVersion": API_VERSION, "kind": kind.name, "metadata": metadata, "spec": spec})
    return objects, left_out
