"""Loads the script that breaks wide lines of templates as a module."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType


@cache
def template_breaker() -> ModuleType:
    """Return the module `.ci/format_templates.py`."""
    path = Path(__file__).resolve().parents[1] / ".ci/format_templates.py"
    spec = importlib.util.spec_from_file_location("format_templates", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
