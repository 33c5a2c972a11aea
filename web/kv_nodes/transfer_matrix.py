"""What nodes sent to engines and to each other, as a matrix of those that moved the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log1p

from controlplane.platform.format import byte_rate, byte_size
from kvstore.node.node_report import LinkReport
from web.kv_nodes.node_rows import NodeRow

MAX_NODES, MAX_CLIENTS = 8, 24
_LEVELS, _RANGE = 9, 1000.0
"""Colors of the sequential map, and how much more the last stands for than the first."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One link; the bytes that the node sent, and those that came to be kept."""

    sent: str = ""
    kept: str = ""
    rate: str = ""
    level: int = 0
    """0 (nothing) to 8 (the most of all links), logarithmic."""


@dataclass(frozen=True, slots=True)
class Line:
    """One client of the nodes: an engine, or another node."""

    name: str
    cells: tuple[Cell | None, ...]
    sent: str
    kept: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """Nodes in columns, clients in rows; both by name, at most so many of those with the most bytes."""

    nodes: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    more: int = 0
    """Clients that are left out."""


def transfer_matrix(rows: Sequence[NodeRow], names: Mapping[str, str]) -> Matrix:
    """Return the matrix; `names` says how clients that gave their address are called."""
    moving = [row for row in rows if row.report.links]
    nodes = sorted(sorted(moving, key=lambda row: (-_moved(row.report.links), row.name))[:MAX_NODES], key=_name)
    clients: dict[str, dict[str, LinkReport]] = {}
    for row in nodes:
        for link in row.report.links:
            clients.setdefault(link.peer, {})[row.name] = link
    shown = sorted(clients, key=lambda peer: (-_moved(list(clients[peer].values())), peer))[:MAX_CLIENTS]
    most = max((link.sent_bytes for links in clients.values() for link in links.values()), default=0)
    lines = [_line(names.get(peer, peer), [clients[peer].get(row.name) for row in nodes], most) for peer in shown]
    return Matrix(tuple(row.name for row in nodes), tuple(sorted(lines, key=_name)), len(clients) - len(shown))


def _line(name: str, links: Sequence[LinkReport | None], most: int) -> Line:
    there = [link for link in links if link is not None]
    return Line(
        name=name,
        cells=tuple(_cell(link, most) if link is not None else None for link in links),
        sent=byte_size(sum(link.sent_bytes for link in there)),
        kept=byte_size(sum(link.received_bytes for link in there)),
    )


def _cell(link: LinkReport, most: int) -> Cell:
    scale = log1p(link.sent_bytes / most * _RANGE) / log1p(_RANGE) if most else 0.0
    sizes = byte_size(link.sent_bytes), byte_size(link.received_bytes)
    return Cell(*sizes, byte_rate(link.bytes_per_s), round(scale * (_LEVELS - 1)))


def _moved(links: Sequence[LinkReport]) -> int:
    return sum(link.sent_bytes + link.received_bytes for link in links)


def _name(thing: NodeRow | Line) -> str:
    return thing.name
