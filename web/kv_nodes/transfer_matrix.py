"""A matrix of bytes sent from nodes to engines and other nodes, limited to those with the most bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log1p

from kvstore.node.node_report import LinkReport
from web.kv_nodes.node_rows import NodeRow, rate_words

MAX_NODES, MAX_CLIENTS = 8, 24
_LEVELS, _RANGE = 9, 1000.0
"""Number of colors in the sequential map, and the ratio between the last color's rate and the first's."""


@dataclass(frozen=True, slots=True)
class TransferLine:
    """One client of the nodes: an engine, or another node."""

    name: str
    cells: tuple[tuple[LinkReport, int, str] | None, ...]
    """Link from each node, its color, 0 (nothing) to 8 (the fastest of all links), logarithmic, and its rate."""
    kept: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Nodes in columns and clients in rows, both by name, limited to those with the most bytes."""

    nodes: tuple[str, ...]
    lines: tuple[TransferLine, ...]
    most: str
    """Rate of the busiest link; empty if none sends."""
    more: int
    """Number of omitted clients."""


def transfer_matrix(rows: Sequence[NodeRow], names: Mapping[str, str]) -> Matrix:
    """Return the matrix; `names` maps client addresses to names."""
    moving = [row for row in rows if row.report.links]
    most_first = sorted(moving, key=lambda row: (-_moved(row.report.links), row.name))
    nodes = sorted(most_first[:MAX_NODES], key=lambda row: row.name)
    clients: dict[str, dict[str, LinkReport]] = {}
    for row in nodes:
        for link in row.report.links:
            clients.setdefault(link.peer, {})[row.name] = link
    shown = sorted(clients, key=lambda peer: (-_moved(clients[peer].values()), peer))[:MAX_CLIENTS]
    rates = {(row.name, link.peer): row.sent_per_s(link) for row in nodes for link in row.report.links}
    most = max((rate or 0.0 for rate in rates.values()), default=0.0)
    lines = []
    for peer in shown:
        links = clients[peer]
        cells = tuple(
            (links[row.name], _level(rates[row.name, peer] or 0.0, most), rate_words(rates[row.name, peer]))
            if row.name in links
            else None
            for row in nodes
        )
        kept = sum(item.received_bytes for item in links.values())
        lines.append(TransferLine(names.get(peer, peer), cells, kept))
    lines.sort(key=lambda line: line.name)
    return Matrix(
        tuple(row.name for row in nodes), tuple(lines), rate_words(most) if most else "", len(clients) - len(shown)
    )


def _level(rate: float, most: float) -> int:
    scale = log1p(rate / most * _RANGE) / log1p(_RANGE) if most else 0.0
    return round(scale * (_LEVELS - 1))


def _moved(links: Iterable[LinkReport]) -> int:
    return sum(link.sent_bytes + link.received_bytes for link in links)
