"""All installed packages are pinned by hash, in the versions of the requirements files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRA_LOCKS = ("deploy/requirements-envoy.lock", ".ci/requirements-proxies.lock")
VLLM_LOCK = ".ci/requirements-vllm.lock"
"""The lock of an environment of its own, whose versions may differ from ours."""
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([A-Za-z0-9.+]+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    return {re.sub(r"[._-]+", "-", name.lower()): version for name, version in PIN.findall((ROOT / file).read_text())}


def test_locks_have_every_pin_in_the_same_version() -> None:
    product, whole = pins("requirements.lock"), pins("requirements-dev.lock")
    assert pins("requirements.txt").items() <= product.items(), "run .ci/lock-python"
    assert pins("requirements-dev.txt").items() <= whole.items(), "run .ci/lock-python"
    assert product.items() <= whole.items(), "run .ci/lock-python"


@pytest.mark.parametrize("lock", EXTRA_LOCKS)
def test_extra_lock_has_its_pins_and_contradicts_none(lock: str) -> None:
    locked, base = pins(lock), pins("requirements-dev.lock")
    wanted = pins("deploy/requirements-envoy.txt") | pins(lock.replace(".lock", ".txt"))
    assert wanted.items() <= locked.items(), "run .ci/lock-python"
    assert {name: base[name] for name in base.keys() & locked.keys()} == {
        name: locked[name] for name in base.keys() & locked.keys()
    }


def test_lock_of_real_engines_has_its_pins_and_omits_the_listed_packages() -> None:
    locked = pins(VLLM_LOCK)
    assert pins(".ci/requirements-vllm.txt").items() <= locked.items(), "run .ci/lock-python"
    left_out = re.findall(r"^([a-z0-9-]+);", (ROOT / ".ci/overrides-vllm.txt").read_text(), re.MULTILINE)
    assert left_out
    assert not locked.keys() & set(left_out), "run .ci/lock-python"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", *EXTRA_LOCKS, VLLM_LOCK])
def test_every_locked_package_has_hashes_and_no_index_url(lock: str) -> None:
    text = (ROOT / lock).read_text()
    packages = re.split(r"\n(?=[^\s#])", text.strip())
    assert len(packages) == len(pins(lock))
    assert [package for package in packages if "--hash=sha256:" not in package] == []
    assert "://" not in text


def test_setup_installs_no_package_without_its_hash() -> None:
    installs = [line for line in (ROOT / ".ci/setup-python").read_text().splitlines() if "pip install" in line]
    assert [line for line in installs if '--require-hashes -r "$lock"' not in line] == []
