"""The processes of the demo's regions."""

from __future__ import annotations

import subprocess

import pytest

from controlplane.platform.bus import LOCAL_BUS
from controlplane.project.first_run.demo_regions import RegionPorts, region_children
from gateway.base.settings import FLEET_SECRET

PORTS = RegionPorts({"us": 1, "eu": 2}, {"us": 3, "eu": 4}, {("us", "eu"): 5, ("eu", "us"): 6})
URL = "unix://:password-of-the-bus@/nowhere/bus.sock"


def test_secrets_are_on_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_BUS, URL)
    children = {child.name: child for child in region_children(PORTS, "the API key", 1.0)}
    gateway = children["gateway-eu"].env
    assert (gateway["REDIS_URL"], len(children)) == (URL, 4)
    secrets = ("password-of-the-bus", gateway[FLEET_SECRET], "the API key")
    assert not [word for child in children.values() for word in child.argv for secret in secrets if secret in word]


def test_gateway_of_a_region_reports_wrong_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_BUS, "nonsense")
    (gateway,) = (child for child in region_children(PORTS, "", 1.0) if child.name == "gateway-eu")
    done = subprocess.run(gateway.argv, env=dict(gateway.env), capture_output=True, text=True, check=False)
    assert (done.returncode, "write redis://host" in done.stderr) == (2, True)
