"""Declarations of settings: `Annotated[float, about(title, help), number(unit, ge=…, le=…, usual=…)]`.

The console's form, the API's schema, and error messages read these declarations.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def about(title: str, text: str, *, group: str = "") -> Meta:
    """Declare the title and the help text of a setting, and its group in the form."""
    return Meta(title=title, description=text, extra_json_schema={"x-group": group} if group else None)


def number(unit: str = "", *, usual: tuple[float, float] | None = None, group: str = "", **bounds: Any) -> Meta:
    """Declare the unit and bounds (ge, gt, le, lt) of a number, the range that most pools use, and its group."""
    extra: dict[str, Any] = {"x-unit": unit, "x-usual": list(usual or ()), "x-group": group}
    return Meta(**bounds, extra_json_schema={name: value for name, value in extra.items() if value})
