"""All addresses of the console, from the URL patterns themselves, so that no new page is omitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.urls import URLPattern, URLResolver, get_resolver

API = "api/"


class UnknownParameterError(AssertionError):
    """The tests know no value for a parameter of a page."""


def addresses(values: Mapping[str, str]) -> Iterator[str]:
    """Yield the path of each pattern outside the API, with `values` for its parameters.

    Raise UnknownParameterError for a parameter without a value. Add the value to the test that calls this.
    """
    for pattern in _flat(get_resolver().url_patterns, ""):
        if not pattern.startswith(API):
            yield "/" + _fill(pattern, values)


def _flat(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[str]:
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _flat(pattern.url_patterns, path)
        else:
            yield path


def _fill(pattern: str, values: Mapping[str, str]) -> str:
    parts = []
    for part in pattern.split("<"):
        name, closed, rest = part.partition(">")
        if not closed:
            parts.append(part)
            continue
        name = name.rpartition(":")[2]
        if name not in values:
            raise UnknownParameterError(f"the page /{pattern} needs a value for {name!r}; add it to the test's values")
        parts.append(values[name] + rest)
    return "".join(parts)
