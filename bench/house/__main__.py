"""Measure the rooms of a source tree: `python -m bench.house [BEFORE] AFTER` prints tables in Markdown.

Sizes count Python files without migrations. A pair is mutual if two siblings, at least one of them a folder, import
each other. A circle is a set of files that import each other. Imports for type checkers also count.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from statistics import median, quantiles

import grimp

from bench.house.features import folders_per_feature
from bench.house.words import broken_words

ROOMS = ("kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web")
WITH_FEATURES = ("controlplane", "web")
COLUMNS = (
    "files", "Python lines", "median file", "function median · p90", "largest folder", "mutual pairs", "circles",
    "words",
)  # fmt: skip
PER_FEATURE = "folders per feature"


def measured(tree: Path) -> dict[str, dict[str, str]]:
    """Return the value of each row for each room of a tree, and for all rooms together."""
    sources = {
        room: sorted(path for path in (tree / room).rglob("*.py") if "migrations" not in path.parts)
        for room in ROOMS
        if (tree / room).is_dir()
    }
    graph = _graph(tree, tuple(sources))
    result = {room: _room(tree, room, paths, graph) for room, paths in sources.items()}
    every = [path for paths in sources.values() for path in paths]
    result["all"] = _sizes(every) | {
        row: str(sum(int(room[row].split()[0]) for room in result.values()))
        for row in ("mutual pairs", "circles", "words")
    }
    return result


def _room(tree: Path, room: str, paths: Sequence[Path], graph: grimp.ImportGraph) -> dict[str, str]:
    names = [PurePosixPath(path.relative_to(tree / room)) for path in paths]
    imports = [
        (importer, imported)
        for importer in sorted(graph.modules)
        if importer.split(".")[0] == room
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if imported.split(".")[0] == room
    ]
    return _sizes(paths) | {
        PER_FEATURE: folders_per_feature(names) if room in WITH_FEATURES else "",
        "mutual pairs": str(len(_mutual(imports, graph))),
        "circles": _circles(imports, graph),
        "words": str(
            sum(len(words) for _, words in broken_words(tree, (room, "templates") if room == "web" else (room,)))
        ),
    }


def _sizes(paths: Sequence[Path]) -> dict[str, str]:
    texts = [path.read_text() for path in paths]
    lengths = [len(text.splitlines()) for text in texts]
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    folder, most = max(Counter(path.parent for path in paths if path.name != "__init__.py").items(), key=lambda f: f[1])
    return {
        "files": str(len(paths)),
        "Python lines": str(sum(lengths)),
        "median file": f"{median(length for length in lengths if length):.0f}",
        "function median · p90": f"{median(functions):.0f} · {quantiles(functions, n=10)[-1]:.0f}",
        "largest folder": f"{most} ({folder.name}/)",
    }


def _graph(tree: Path, rooms: tuple[str, ...]) -> grimp.ImportGraph:
    """Read the import graph of another tree. None of its rooms can be imported in this process."""
    sys.path.insert(0, str(tree.resolve()))
    importlib.invalidate_caches()
    try:
        return grimp.build_graph(rooms[0], *rooms[1:], cache_dir=None)
    finally:
        sys.path.pop(0)


def _mutual(imports: Iterable[tuple[str, str]], graph: grimp.ImportGraph) -> set[frozenset[str]]:
    siblings = {_siblings(importer, imported) for importer, imported in imports}
    return {
        frozenset(pair)
        for pair in siblings
        if pair[0] != pair[1] and pair[::-1] in siblings and any(graph.find_children(item) for item in pair)
    }


def _siblings(importer: str, imported: str) -> tuple[str, str]:
    """Return the two sibling files or folders that the import connects."""
    one, other = importer.split("."), imported.split(".")
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return ("", "") if same is None else (".".join(one[: same + 1]), ".".join(other[: same + 1]))


def _circles(imports: Iterable[tuple[str, str]], graph: grimp.ImportGraph) -> str:
    """Return the number of import circles and of their files."""
    inside: dict[str, set[str]] = defaultdict(set)
    for importer, imported in imports:
        if graph.chain_exists(importer=imported, imported=importer):
            inside[importer] |= inside[imported] | {importer, imported}
            for item in inside[importer]:
                inside[item] = inside[importer]
    circles = {id(files): files for files in inside.values()}
    return f"{len(circles)} ({sum(map(len, circles.values()))} files)" if circles else "0"


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row per room, and the number of folders of each feature."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path, help="source trees, oldest first")
    trees = [measured(tree) for tree in parser.parse_args(argv).trees]
    for names, columns in ((("all", *ROOMS), COLUMNS), (WITH_FEATURES, (PER_FEATURE,))):
        print(f"| room | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
        for room in names:
            cells = [" → ".join(tree[room][column] for tree in trees if room in tree) for column in columns]
            print(f"| {room} | {' | '.join(cells)} |")
        print()


if __name__ == "__main__":
    main()
