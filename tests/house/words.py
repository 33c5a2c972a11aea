"""Words that the code does not use: our own terms for established ones, and figures of speech for data flow."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

WORDS = {
    r"[Tt]ickets?|TICKETS?": "queued request",
    r"[Hh]opeless": "SLO-infeasible",
    r"(?<![A-Za-z])[Pp]ark(?:s|ed|ing)?(?![a-z])|PARKED": "deferred",
    r"[Ll]ate[ _]?[Bb]inding": "pull scheduling",
    r"[Cc]ontrol[ _]?[Ss]lices?": "holdback",
    r"[Pp]ass(?:ed|ing)[ _]over": "starvation limit",
    r"[Pp]ush[ _]?[Gg]ate": "dispatch limit",
    r"[Ff]ading[ _]load": "EWMA load",
    r"[Ss]low[ _]return": "slow start",
    r"[Oo]utlier[ _]excuse": "max ejection, panic threshold",
    r"[Aa]rm[ _]?[Cc]omparison": "trial",
    r"[Jj]ourneys?": "release timeline",
    r"(?:[Bb]ase|[Tt]ried) arm": "baseline, candidate",
    r"AgentHints|hint that a request": "advisory",
    r"(?<![A-Za-z])[Tt]bt(?![a-z])": "TPOT, ITL",
    r"[Oo]utstanding|OUTSTANDING": "in-flight work",
    r"(?<![\"'|])[Rr]efusals?|\w_refused\b": "reject, rejection",
    r"/steering|\bSteering\b": "automation",
    r"(?<![A-Za-z])[Ee]xperiments?(?![a-z])": "trial",
    r"TODO|FIXME|NotImplementedError": "finished code",
}
"""A pattern, and the replacement."""

CONTRACTS = (
    # The name of a queue order, as its papers call it.
    r"late_binding|LateBinding",
)
"""Names that other products or papers set."""

SPEECH = "told|tells?|telling|hears?|heard|hearing|looks?|looked|looking|whoever|nobody|somebody|stands|anew"
"""Verbs of speech for data flow, verbs of posture for state, and persons for null."""
_PROSE = re.compile(rf"\b(?:{SPEECH})\b", re.IGNORECASE)
_NAME = re.compile(rf"(?:^|_)(?:{SPEECH}|found|each|places?|standings?)(?=_|$)", re.IGNORECASE)
_TEST_NAME = re.compile(rf"_(?:{SPEECH})(?=_|$)")
DECIDES = {"place"}
"""Methods that place a request; as a variable, `place` would be an index."""

_SCRIPT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|(?P<name>[A-Za-z_$][\w$]*)""", re.DOTALL
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEMPLATE = re.compile(r"\{% for (?P<loop>[\w, ]+) in |\{% with (?P<bound>\w+)=|\{% \w[^%]* as (?P<set>\w+) ")
BY_THE_LANGUAGE = {"forEach"}
"""Names defined by JavaScript."""

SUFFIXES = {".py", ".html", ".js", ".css", ".md"}
SKIPPED = {"migrations", "node_modules", "static", "results", "dist", "__pycache__"}


def broken_words(tree: Path, parts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line under `parts` with a term of our own, as "path:line", and the terms."""
    pattern, contracts = re.compile("|".join(WORDS)), re.compile("|".join(CONTRACTS))
    for path in _files(tree, parts, SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if pattern.search(line) and (words := pattern.findall(contracts.sub("", line))):
                yield f"{path.relative_to(tree)}:{number}", words


def spoken(tree: Path, parts: Sequence[str]) -> Iterator[str]:
    """Yield "path:line: kind text" of each name, docstring, and comment of Python with a figure of speech."""
    for path in _files(tree, parts, {".py"}):
        source = path.read_text()
        module = ast.parse(source)
        for line, kind, text in (*_names(module), *_prose(module, source)):
            yield f"{path.relative_to(tree)}:{line}: {kind} {text}"


def spoken_by_the_console(tree: Path, parts: Sequence[str]) -> Iterator[str]:
    """Yield "path:line: kind text" of each name and comment of a script, and each variable and text of a template."""
    for path in _files(tree, parts, {".js", ".html"}):
        source = path.read_text()
        for at, kind, text in _in_script(source) if path.suffix == ".js" else _in_template(source):
            yield f"{path.relative_to(tree)}:{source.count(chr(10), 0, at) + 1}: {kind} {text}"


def _in_script(source: str) -> Iterator[tuple[int, str, str]]:
    for token in _SCRIPT.finditer(source):
        name, comment = token["name"], token["comment"]
        if name and name not in BY_THE_LANGUAGE and _NAME.search(_CAMEL.sub("_", name)):
            yield token.start(), "name", name
        elif comment and (word := _PROSE.search(comment)):
            yield token.start() + word.start(), "comment", word[0]


def _in_template(source: str) -> Iterator[tuple[int, str, str]]:
    for tag in _TEMPLATE.finditer(source):
        for name in (tag["loop"] or tag["bound"] or tag["set"]).replace(",", " ").split():
            if _NAME.search(name):
                yield tag.start(), "variable", name
    for word in _PROSE.finditer(source):
        yield word.start(), "text", word[0]


def _files(tree: Path, parts: Sequence[str], suffixes: set[str]) -> Iterator[Path]:
    for part in parts:
        for path in sorted((tree / part).rglob("*")):
            if path.suffix in suffixes and not SKIPPED & set(path.parts):
                yield path


def _names(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                if _TEST_NAME.search(name):
                    yield node.lineno, "test", name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if _NAME.search(name) and name.strip("_") not in DECIDES:
                    yield node.lineno, "definition", name
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                if _NAME.search(name):
                    yield node.lineno, "name", name


def _prose(module: ast.Module, source: str) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if _PROSE.search(text):
                yield node.lineno, "docstring", text.strip().splitlines()[0]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _PROSE.search(token.string):
            yield token.start[0], "comment", token.string
