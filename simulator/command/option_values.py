"""Reads option values one by one and collects their problems, so that all are reported together."""

from __future__ import annotations

import argparse
import math
from typing import Any

import msgspec


class OptionValues:
    """Reads text values of parsed arguments. Mutable state: `problems`, without duplicates."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.problems: list[str] = []
        self._arguments = arguments

    def problem(self, sentence: str) -> None:
        """Record a problem."""
        if sentence not in self.problems:
            self.problems.append(sentence)

    def whole(self, name: str, least: int, most: int = 10**9) -> int | None:
        """Return a whole number in its range. Return None if it is missing, or invalid (and record a problem)."""
        text = getattr(self._arguments, name)
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            # Out of range, so that one message covers both faults.
            value = least - 1
        if least <= value <= most:
            return value
        self.problem(f"{_option(name)}: {text!r} is not a whole number from {least} to {most}")
        return None

    def above_zero(self, name: str) -> float | None:
        """Return a number above 0. Return None if it is missing, or invalid (and record a problem)."""
        text = getattr(self._arguments, name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            # Fails the comparison below, as every number that is not above 0 does.
            value = math.nan
        if 0 < value < math.inf:
            return value
        self.problem(f"{_option(name)}: {text!r} is not a number above 0")
        return None

    def pairs(self, name: str) -> dict[str, Any]:
        """Return the KEY=VALUE pairs of an option, values as JSON or text; record a problem for an invalid pair."""
        values: dict[str, Any] = {}
        for pair in getattr(self._arguments, name):
            key, equals, text = pair.partition("=")
            if not key or not equals:
                self.problem(f"{_option(name)}: {pair!r} is not KEY=VALUE")
                continue
            try:
                values[key] = msgspec.json.decode(text)
            except msgspec.DecodeError:
                values[key] = text
        return values

    def from_zero(self, name: str) -> float | None:
        """Return a number of at least 0. Return None if it is missing, or invalid (and record a problem)."""
        return 0.0 if getattr(self._arguments, name) in ("0", "0.0") else self.above_zero(name)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
