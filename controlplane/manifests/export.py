"""Exports objects in the form of files. An unchanged export changes nothing when it is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controlplane.manifests.kind import Kind
from controlplane.manifests.kinds import KINDS
from controlplane.platform.actor import Actor
from routing.values.counted import count

API_VERSION = "headway/v1"


@dataclass(frozen=True, slots=True)
class Export:
    """The exported objects, and sentences about those that are left out."""

    objects: list[dict[str, Any]]
    left_out: list[str]


def exported(actor: Actor, *, kinds: Collection[str] = (), defaults: bool = False) -> Export:
    """Return the objects that the actor may see, in the order in which they are created.

    `kinds` limits them; empty: all. With `defaults`, fields with default values are included.
    """
    export = Export([], [])
    for kind in KINDS:
        if kinds and kind.name not in kinds:
            continue
        rows = list(kind.rows(actor))
        named = [(kind.metadata_of(thing), thing) for thing in rows if not getattr(thing, "source", "")]
        if len(named) < len(rows):
            export.left_out.append(f"{count(len(rows) - len(named), kind.name)} that discovery maintains")
        export.objects.extend(_unambiguous(kind, named, export.left_out, defaults=defaults))
    return export


def _unambiguous(
    kind: Kind, named: list[tuple[dict[str, str], Any]], left_out: list[str], *, defaults: bool
) -> list[dict[str, Any]]:
    times = Counter(kind.name_in(metadata) for metadata, _ in named)
    left_out += [
        f"{kind.name} {name}: {number} have this name; rename them" for name, number in times.items() if number > 1
    ]
    return [
        {"apiVersion": API_VERSION, "kind": kind.name, "metadata": metadata, "spec": spec}
        for metadata, thing in named
        if times[kind.name_in(metadata)] == 1
        for spec in [kind.exported(thing, defaults=defaults)]
    ]
