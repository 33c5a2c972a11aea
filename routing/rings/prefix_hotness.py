"""Number of leading blocks in a prompt's key, more if much of the traffic shares them.

DualMap §3.2: a tree over the prefixes of recent requests. If a prefix carries more than 2/n of the requests in a
sliding window (n engines: its two candidates could not carry more than their share), the tree grows by one block below
it, so that its requests spread over more pairs of engines. If a prefix later carries less than 1/n, it loses its
children. A request's key is the path to its leaf.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

GROW, SHRINK = 2.0, 1.0
"""Shares of one engine: above GROW a prefix is hot, below SHRINK it cools down."""


@dataclass(slots=True, eq=False)
class _Prefix:
    """One prefix: how many requests in the window reached it, and its children if it has been hot."""

    key: int
    parent: _Prefix | None
    count: int = 0
    children: dict[int, _Prefix] | None = None


_Path = tuple[Sequence[int] | None, _Prefix | None, int]
_NOTHING: _Path = (None, None, 0)


class PrefixHotness:
    """The tree and its window. Sizes are in blocks; at most `window` × `max_blocks` prefixes are kept.

    Mutable state: `_roots` (prefixes of `least_blocks` blocks, by key), `_recent` (the leaf of each request in the
    window, None if the prompt was shorter than a root), and `_last_path`, the leaf of the last measured prompt, valid
    until the tree changes: that prompt is usually the next to be counted.
    """

    def __init__(self, *, window: int = 1000, least_blocks: int = 2, max_blocks: int = 64) -> None:
        if window < 1 or not 1 <= least_blocks <= max_blocks:
            raise ValueError(f"no tree of {least_blocks} to {max_blocks} blocks over {window} requests can be kept")
        self._window = window
        self._least = least_blocks
        self._max = max_blocks
        self._roots: dict[int, _Prefix] = {}
        self._recent: deque[_Prefix | None] = deque()
        self._last_path: _Path = _NOTHING
        # Of the first few requests, any prefix would have more than its share.
        self._least_seen = window // 10

    def __len__(self) -> int:
        return len(self._recent)

    def blocks(self, keys: Sequence[int]) -> int:
        """Return the length of the prompt's key: its path in the tree, or all blocks of a shorter prompt."""
        depth = self._least
        if len(keys) <= depth:
            return len(keys)
        node = self._roots.get(keys[depth - 1])
        while node is not None and node.children is not None and depth < len(keys):
            node = node.children.get(keys[depth])
            depth += 1
        self._last_path = keys, node, depth
        return depth

    def peek(self, keys: Sequence[int]) -> int:
        """Return the same without changing state."""
        last_path = self._last_path
        blocks = self.blocks(keys)
        self._last_path = last_path
        return blocks

    def observe(self, keys: Sequence[int], engines: int) -> int:
        """Count one request of a fleet of `engines`, and return the length of its key."""
        measured, leaf, blocks = self._last_path
        self._last_path = _NOTHING
        # By identity: comparing the keys would cost as much as the walk.
        if keys is not measured or leaf is None:
            leaf, blocks = self._reach(keys) if len(keys) >= self._least else (None, len(keys))
        node = leaf
        while node is not None:
            node.count += 1
            node = node.parent
        recent = self._recent
        recent.append(leaf)
        if len(recent) > self._window:
            self._leave(recent.popleft())
        if leaf is not None:
            seen = len(recent)
            one_engine = (seen if seen > self._least_seen else self._least_seen) / (engines or 1)
            if leaf.parent is not None or leaf.count > GROW * one_engine:
                self._adapt(leaf, blocks, one_engine)
        return blocks

    def check(self) -> None:
        """Raise AssertionError unless counts, tree and window agree."""
        counts: dict[int, int] = {}
        for leaf in self._recent:
            node = leaf
            while node is not None:
                counts[id(node)] = counts.get(id(node), 0) + 1
                node = node.parent
        pending = [(node, self._least) for node in self._roots.values()]
        while pending:
            node, depth = pending.pop()
            if node.count != counts.get(id(node), 0) or node.count < 1:
                raise AssertionError(
                    f"prefix {node.key:#x} counts {node.count}, reached {counts.get(id(node), 0)} times"
                )
            if depth > self._max or (node.children is not None and depth == self._max):
                raise AssertionError(f"prefix {node.key:#x} is {depth} blocks long, more than {self._max}")
            for child in (node.children or {}).values():
                if child.parent is not node:
                    raise AssertionError(f"prefix {child.key:#x} lost its parent")
                pending.append((child, depth + 1))
        if len(self._recent) > self._window:
            raise AssertionError(f"{len(self._recent)} requests are in a window of {self._window}")

    def _reach(self, keys: Sequence[int]) -> tuple[_Prefix, int]:
        """Return the prompt's leaf, created if no prompt has reached it before, and its length in blocks."""
        depth = self._least
        key = keys[depth - 1]
        node = self._roots.get(key)
        if node is None:
            node = self._roots[key] = _Prefix(key, None)
        while node.children is not None and depth < len(keys):
            key = keys[depth]
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _Prefix(key, node)
            node = child
            depth += 1
        return node, depth

    def _leave(self, leaf: _Prefix | None) -> None:
        """Remove a request from the window. Prefixes that no request in the window reaches are dropped."""
        node = leaf
        while node is not None:
            node.count -= 1
            if not node.count:
                siblings = self._roots if node.parent is None else node.parent.children
                if siblings is not None and siblings.get(node.key) is node:
                    del siblings[node.key]
            node = node.parent

    def _adapt(self, leaf: _Prefix, blocks: int, one_engine: float) -> None:
        """Grow below a hot leaf, and shorten the path above a cool prefix. `one_engine` is 1/n of the window."""
        if leaf.children is None and blocks < self._max and leaf.count > GROW * one_engine:
            leaf.children = {}
        coldest: _Prefix | None = None
        node = leaf.parent
        while node is not None:
            if node.count < SHRINK * one_engine:
                coldest = node
            node = node.parent
        if coldest is not None:
            self._fold(coldest)

    def _fold(self, node: _Prefix) -> None:
        """Remove the children of a prefix. Requests that reached them count for the prefix."""
        below: list[_Prefix] = []
        pending = list((node.children or {}).values())
        while pending:
            child = pending.pop()
            below.append(child)
            pending += (child.children or {}).values()
        node.children = None
        gone = set(map(id, below))
        self._recent = deque(node if leaf is not None and id(leaf) in gone else leaf for leaf in self._recent)
