"""Reads the program's settings from the environment, and rejects invalid values.

Every variable may also be given as NAME_FILE, the path of a file with the value, because containers pass secrets as
files. This module does not need Django settings, so that lightweight commands can use it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("HEADWAY_PROGRAM", "manage.py")
"""The name of the command line in texts: `headway` if the package is installed, manage.py in a source tree."""
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Environment:
    """Typed access to environment variables. Invalid values raise ImproperlyConfigured with the variable's name."""

    def __init__(self) -> None:
        self._values = environ.FileAwareEnv()

    def text(self, name: str, default: str = "") -> str:
        """Return the value unchanged, or `default` if it is not set."""
        try:
            # A file ends with a line break, which is no part of the secret in it.
            return str(self._values.str(name, default=default)).strip()
        except (OSError, ValueError, UnicodeError) as error:
            raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error}") from error

    def flag(self, name: str, *, default: bool) -> bool:
        """Return True for 1/true/yes/on and False for 0/false/no/off. Other values are invalid."""
        value = self.text(name).lower()
        if not value:
            return default
        if value in _YES or value in _NO:
            return value in _YES
        raise ImproperlyConfigured(f"{name}={value!r} is not a boolean; write true or false")

    def whole_number(self, name: str, *, default: int, at_least: int, at_most: int) -> int:
        """Return an integer between `at_least` and `at_most`, both inclusive."""
        value = self.text(name)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}={value!r} is not a whole number") from error
        if not at_least <= number <= at_most:
            raise ImproperlyConfigured(f"{name}={number} is not between {at_least} and {at_most}")
        return number

    def choice(self, name: str, *, default: str, choices: Sequence[str]) -> str:
        """Return one of `choices`."""
        value = self.text(name) or default
        if value not in choices:
            raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(choices)}")
        return value

    def words(self, name: str, default: Sequence[str] = ()) -> list[str]:
        """Return the comma-separated words of the value."""
        value = self.text(name)
        return [word.strip() for word in value.split(",") if word.strip()] if value else list(default)

    def database(self, name: str, default: str) -> dict[str, object]:
        """Return Django's database settings for the URL."""
        value = self.text(name) or default
        try:
            config = environ.Env.db_url_config(value)
        except (ValueError, KeyError, ImproperlyConfigured) as error:
            raise ImproperlyConfigured(f"{name} is not a database URL such as postgres://user@host/name") from error
        if not config.get("ENGINE") or not config.get("NAME"):
            raise ImproperlyConfigured(f"{name} is not a database URL such as postgres://user@host/name")
        return cast("dict[str, object]", config)


env = Environment()
"""The Environment instance that every module uses."""


def state_directory() -> Path:
    """Return the directory for the database, secrets, and logs of this installation."""
    value = env.text("HEADWAY_STATE_DIR")
    return (Path(value) if value else BASE_DIR / "var").expanduser().resolve()
