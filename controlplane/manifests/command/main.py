"""`headway export`, `headway diff FILE…`, and `headway apply FILE…`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from controlplane.manifests.command.manifest_files import FileObject, UnreadableFileError, read_files, written
from controlplane.manifests.command.server import ServerError, ask
from controlplane.platform.environment import env
from controlplane.platform.format import one_line
from routing.values.counted import count

DONE, FAILED, DIFFERS, CONFLICTS = range(4)
"""Exit statuses: nothing to do, or applied; an error; differences in a dry run; conflicts. After an error or conflict,
nothing was changed.
"""
_SIGNS = {"create": "+", "change": "~", "delete": "-", "release": "·", "orphan": "!"}
_STATUSES = (
    f"Exit status: {DONE} nothing to do or applied, {FAILED} error, {DIFFERS} differences, {CONFLICTS} conflicts."
)
_KEY = "HEADWAY_API_KEY"


def main(argv: Sequence[str], prog: str) -> int:
    """Run the command that is the last word of `prog`, and return the exit status."""
    command = prog.rsplit(maxsplit=1)[-1]
    options = parser(prog).parse_args(argv)
    try:
        key = env.text(_KEY)
        if not key:
            raise ServerError(f"Set {_KEY} to an API key with the scope manage.")
        return _COMMANDS[command](options, key)
    except (ServerError, UnreadableFileError) as error:
        sys.stderr.write("".join(f"{one_line(line)}\n" for line in str(error).splitlines()))
        return FAILED


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command that is the last word of `prog`."""
    command = prog.rsplit(maxsplit=1)[-1]
    made = argparse.ArgumentParser(prog=prog, description=_HELP[command], epilog=f"{_KEY}: a key with scope manage.")
    made.add_argument("--url", default=env.text("HEADWAY_URL", "http://127.0.0.1:8000"), help="address of Headway")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    if command == "export":
        made.add_argument("--kind", action="append", default=[], help="only this kind; may be repeated")
        made.add_argument("--defaults", action="store_true", help="include fields that have their defaults")
        made.add_argument("--out", type=Path, help="file to write (default: standard output)")
        return made
    made.epilog = f"{made.epilog} {_STATUSES}"
    made.add_argument("files", nargs="+", metavar="FILE", help="YAML file, folder of such files, or - for stdin")
    made.add_argument("--manager", default="apply", help="name of the field manager; one per repository")
    gone = made.add_mutually_exclusive_group()
    gone.add_argument("--prune", action="store_true", help="delete objects that were applied and left the files")
    gone.add_argument("--release", action="store_true", help="stop managing such objects and leave them as they are")
    made.add_argument("--force", action="store_true", help="overwrite fields in conflict")
    if command == "apply":
        made.add_argument("--dry-run", action="store_true", help="same as diff")
        made.add_argument("--message", default="", help="reason for the audit")
    return made


def _export(options: argparse.Namespace, key: str) -> int:
    query = urlencode([("kind", kind) for kind in options.kind] + [("defaults", str(options.defaults).lower())])
    answer = ask(options.url, key, f"manifests?{query}")
    text = _as_json(answer) if options.json else written(answer["objects"], answer["left_out"])
    if options.out is None:
        sys.stdout.write(text)
        return DONE
    try:
        options.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnreadableFileError(f"{options.out}: {error.strerror or error}.") from error
    return DONE


def _diff(options: argparse.Namespace, key: str) -> int:
    return _sent(options, key, dry_run=True)


def _apply(options: argparse.Namespace, key: str) -> int:
    return _sent(options, key, dry_run=options.dry_run)


def _sent(options: argparse.Namespace, key: str, *, dry_run: bool) -> int:
    objects = read_files(options.files)
    body = {name: getattr(options, name) for name in ("manager", "prune", "release", "force")}
    body["objects"] = [
        {**item.document, "spec": item.document.get("spec") or {}, "source": item.position()} for item in objects
    ]
    body["why"] = getattr(options, "message", "")
    try:
        answer = ask(options.url, key, f"manifests/{'diff' if dry_run else 'apply'}", body)
    except ServerError as error:
        if "changes" not in error.problem:
            raise UnreadableFileError("\n".join(problem_lines(error, objects))) from error
        answer = {name: error.problem[name] for name in ("applied", "unchanged", "changes")}
    sys.stdout.write(_as_json(answer) if options.json else "\n".join([*_lines(answer, objects, dry_run=dry_run), ""]))
    if not options.force and any(field["in_conflict"] for change in answer["changes"] for field in change["changed"]):
        return CONFLICTS
    return DIFFERS if dry_run and any(change["action"] != "orphan" for change in answer["changes"]) else DONE


def problem_lines(problem: ServerError, objects: Sequence[FileObject]) -> Iterator[str]:
    """Yield the errors, each with file, line, object, and field."""
    yield str(problem)
    for error in problem.problem.get("errors", ()):
        parts = [int(part) if part.isdecimal() else part for part in re.split(r"[.\[\]]+", error["path"]) if part]
        if parts[:1] != ["objects"] or len(parts) == 1:
            yield f"{error['path']}: {error['message']}".removeprefix(": ")
            continue
        item, inside = objects[int(parts[1])], parts[2:]
        named = ": ".join(filter(None, (item.position(inside), item.name, ".".join(map(str, inside)))))
        yield f"{named}: {error['message']}"


def _lines(answer: Mapping[str, Any], objects: Sequence[FileObject], *, dry_run: bool) -> Iterator[str]:
    for change in answer["changes"]:
        where = f" ({change['source']})" if change["source"] else ""
        remark = f": {change['remark']}" if change["remark"] else ""
        yield one_line(
            f"{_SIGNS[change['action']]} {change['action']} {change['kind']} {change['name']}{where}{remark}"
        )
        for field in change["changed"]:
            before = "" if change["action"] == "create" else f"{_value(field['before'])} → "
            yield "    " + one_line(f"{field['path']}: {before}{_value(field['after'])}")
            if field["in_conflict"]:
                at = objects[change["number"]].position(["spec", *field["path"].split(".")])
                by = f"set by {field['by']}" if field["by"] else "set since"
                yield "    ✗ " + one_line(f"{at}: conflict: {by}; applied was {_value(field['applied'])}")
    yield _summary(answer, dry_run=dry_run)


def _summary(answer: Mapping[str, Any], *, dry_run: bool) -> str:
    orphans = sum(change["action"] == "orphan" for change in answer["changes"])
    what = f"{count(len(answer['changes']) - orphans, 'object')} changed, {answer['unchanged']} unchanged"
    if orphans:
        what += f"; {count(orphans, 'object')} left the files: --prune deletes, --release stops managing"
    if dry_run:
        return f"Dry run: {what}."
    if not answer["applied"]:
        return "Nothing was applied. Take the stored values into the files, or repeat with --force."
    return f"Applied: {what}."


def _value(value: Any) -> str:
    return "—" if value is None else json.dumps(value, ensure_ascii=False)


def _as_json(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, indent=2) + "\n"


_COMMANDS: dict[str, Callable[[argparse.Namespace, str], int]] = {"export": _export, "diff": _diff, "apply": _apply}
_HELP = {
    "export": "Print every object of a running installation as YAML, without secrets.",
    "diff": "Compare files with a running installation, after all checks of an apply. Nothing is stored.",
    "apply": "Apply files to a running installation: all objects or none.",
}
