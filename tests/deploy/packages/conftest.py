"""The container image, built once for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.packages.containers import Image, built_image


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    with built_image() as built:
        yield built
