"""Declarations of settings: `Annotated[float, about(title, help), number(unit, ge=…, le=…, usual=…)]`.

The console's form, the API's schema, and error messages read these declarations. A constant that nothing varies is a
ClassVar of its document.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Meta, inspect

_FIXED = "x-fixed"


def about(title: str, text: str, *, group: str = "") -> Meta:
    """Declare the title and the help text of a setting, and its group in the form."""
    return Meta(title=title, description=text, extra_json_schema={"x-group": group} if group else None)


def number(unit: str = "", *, usual: tuple[float, float] | None = None, group: str = "", **bounds: Any) -> Meta:
    """Declare the unit and bounds (ge, gt, le, lt) of a number, the range that most pools use, and its group."""
    extra: dict[str, Any] = {"x-unit": unit, "x-usual": list(usual or ()), "x-group": group}
    return Meta(**bounds, extra_json_schema={name: value for name, value in extra.items() if value})


def fixed(**bounds: Any) -> Meta:
    """Declare a parameter of a rule that live pools use at its default, and that simulations vary within bounds."""
    return Meta(**bounds, extra_json_schema={_FIXED: True})


@cache
def fixed_values(rule: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of the rule's fixed parameters by name."""
    info = inspect.type_info(rule)
    fields = info.fields if isinstance(info, inspect.StructType) else ()
    return {item.encode_name: item.default for item in fields if _is_fixed(item.type)}


def _is_fixed(kind: inspect.Type) -> bool:
    while isinstance(kind, inspect.Metadata):
        if (kind.extra_json_schema or {}).get(_FIXED):
            return True
        kind = kind.type
    return False
