"""The world of the management API's tests."""

from tests.controlplane.platform.api.conftest import shared_world as shared_world
from tests.controlplane.platform.api.conftest import world as world
