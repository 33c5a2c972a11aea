# What mypy cannot see without django-stubs: that choices are enums of texts. All else of Django is Any.
from enum import StrEnum
from typing import Any

from typing_extensions import override

class TextChoices(StrEnum):  # type: ignore[misc]
    choices: list[tuple[str, str]]
    values: list[str]
    labels: list[str]
    names: list[str]
    @property
    @override
    def value(self) -> str: ...
    @property
    def label(self) -> str: ...

def __getattr__(name: str) -> Any: ...
