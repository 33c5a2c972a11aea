"""The world of the management API's tests."""

from tests.controlplane.platform.api.conftest import (
    shared_world,  # noqa: F401
    world,  # noqa: F401
)
