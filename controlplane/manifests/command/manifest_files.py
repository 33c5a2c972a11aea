"""Reads YAML files of objects, with the line of each field, and writes them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

MAX_BYTES = 16 << 20
MAX_VALUES = 50_000
"""Maximum number of values of one object, with aliases expanded."""
STDIN = "-"
_ENDINGS = (".yaml", ".yml", ".json")
_MEMBERS = ("apiVersion", "kind", "metadata", "spec")
Lines = Mapping[tuple[str | int, ...], int]


class _Loader(yaml.SafeLoader):
    """Reads numbers and booleans as YAML 1.2 does: `off` is a text, 8e-5 a number. Dates are texts."""

    yaml_implicit_resolvers: ClassVar = {
        first: [rule for rule in rules if rule[0].rpartition(":")[2] in ("null", "merge")]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Dumper(yaml.SafeDumper):
    """Quotes texts that YAML 1.1 or 1.2 would read as another type."""


for _tag, _pattern, _first in (
    ("bool", r"true|false|True|False|TRUE|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
):
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), list(_first))


class UnreadableFileError(ValueError):
    """A file that cannot be read. The message starts with its name and line."""


@dataclass(frozen=True, slots=True)
class FileObject:
    """One object of a file."""

    document: dict[str, Any]
    file: str
    lines: Lines
    """Line of each value by its path, from 1; () is the object itself."""

    @property
    def name(self) -> str:
        """Return kind and name, such as Engine chat/e1."""
        metadata = self.document["metadata"]
        return f"{self.document['kind']} {'/'.join(map(str, metadata.values())) if isinstance(metadata, dict) else ''}"

    def position(self, path: Iterable[str | int] = ()) -> str:
        """Return file and line of the value, or of the nearest value around it."""
        inner = tuple(path)
        while inner and inner not in self.lines:
            inner = inner[:-1]
        return f"{self.file}:{self.lines[inner]}"


def read_files(names: Sequence[str]) -> list[FileObject]:
    """Return the objects of files, of all YAML and JSON files in folders, and of standard input (`-`).

    Raises UnreadableFileError.
    """
    return [item for name in names for path in _files(name) for item in _objects(path, _text(path))]


def written(objects: Iterable[Mapping[str, Any]], left_out: Iterable[str] = ()) -> str:
    """Return the objects as YAML documents, below comments about what is left out."""
    comments = "".join(f"# Not exported: {sentence}\n" for sentence in left_out)
    return comments + yaml.dump_all(
        objects,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        default_flow_style=False,
        width=120,
    )


def _files(name: str) -> list[str]:
    if name == STDIN or not Path(name).is_dir():
        return [name]
    listed = sorted(path for path in Path(name).rglob("*") if path.suffix in _ENDINGS and path.is_file())
    if not listed:
        raise UnreadableFileError(f"{name}: the folder has no file that ends in {', '.join(_ENDINGS)}.")
    return [str(path) for path in listed]


def _text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if name == STDIN else Path(name).read_bytes()
        text = data.decode()
    except OSError as error:
        raise UnreadableFileError(f"{name}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{name}: is not UTF-8.") from error
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"{name}: is larger than {MAX_BYTES >> 20} MiB.")
    return text


def _objects(name: str, text: str) -> Iterator[FileObject]:
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            positions = _Positions(name)
            positions.note(node, ())
            document = loader.construct_document(node)
            if document is not None:
                yield _checked(document, name, positions.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableFileError(f"{name}:{mark.line + 1 if mark else 1}: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise UnreadableFileError(f"{name}: {error}.") from error
    except RecursionError as error:
        raise UnreadableFileError(f"{name}: is nested too deeply, or contains itself.") from error


def _checked(document: Any, name: str, lines: Lines) -> FileObject:
    item = FileObject(document, name, lines)
    if not isinstance(document, dict):
        raise UnreadableFileError(f"{item.position()}: a document must be an object with {', '.join(_MEMBERS)}.")
    if missing := [member for member in _MEMBERS[:3] if not document.get(member)]:
        raise UnreadableFileError(f"{item.position()}: {missing[0]} is missing.")
    if unknown := [member for member in document if member not in _MEMBERS]:
        raise UnreadableFileError(
            f"{item.position(unknown[:1])}: {unknown[0]} is unknown; known: {', '.join(_MEMBERS)}."
        )
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UnreadableFileError(f"{item.position()}: has a value that JSON does not have: {error}.") from error
    return item


@dataclass(slots=True)
class _Positions:
    """Lines of the values of one document. Mutable state: `lines`, and the number of values."""

    name: str
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    values: int = 0

    def note(self, node: yaml.Node, path: tuple[str | int, ...]) -> None:
        """Store the lines of a value and those inside it.

        Raises UnreadableFileError for a name that an object has twice, and for too many values.
        """
        self.values += 1
        if self.values > MAX_VALUES:
            raise UnreadableFileError(f"{self.name}: has more than {MAX_VALUES} values.")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._note_members(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                self.note(value, (*path, number))

    def _note_members(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> None:
        seen = set()
        for key, value in node.value:
            if key.tag == _MERGE:
                self.note(value, path)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise UnreadableFileError(f"{self.name}:{key.start_mark.line + 1}: a name must be a text.")
            # YAML keeps the last of two equal names in silence.
            if key.value in seen:
                raise UnreadableFileError(
                    f"{self.name}:{key.start_mark.line + 1}: {key.value} appears twice; keep one."
                )
            seen.add(key.value)
            self.lines[*path, key.value] = key.start_mark.line + 1
            self.note(value, (*path, key.value))


_MERGE = "tag:yaml.org,2002:merge"
