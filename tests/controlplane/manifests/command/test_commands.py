"""The commands export, diff, and apply against a live server: exit statuses, texts, JSON."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.manifests.command.main import CONFLICTS, DIFFERS, DONE, FAILED, main
from tests.controlplane.platform.api.world import Api, World, make_world

pytestmark = pytest.mark.django_db
REGION = "apiVersion: headway/v1\nkind: Region\nmetadata: {name: there}\nspec:\n  name: There\n"


class Shell:
    """Runs the commands with a key of this world."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.capsys = capsys

    def run(self, command: str, *arguments: object) -> tuple[int, str, str]:
        """Return exit status, output, and errors."""
        status = main([*map(str, arguments), "--url", self.url], f"headway {command}")
        return status, *self.capsys.readouterr()


@pytest.fixture
def live_world(transactional_db: None) -> World:
    return make_world()


@pytest.fixture
def shell(
    live_world: World,
    live_server: LiveServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    monkeypatch.setenv("HEADWAY_API_KEY", live_world.texts["admin_key"])
    return Shell(live_server.url, capsys)


def test_a_walk_from_export_over_diff_and_conflict_to_prune(shell: Shell, live_world: World, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    assert shell.run("export", "--out", fleet) == (DONE, "", "")
    text = fleet.read_text()
    assert not any(secret in text for secret in live_world.texts.values())
    status, out, _ = shell.run("apply", fleet)
    assert (status, out) == (DONE, f"Applied: 0 objects changed, {text.count('---')} unchanged.\n")

    # The file of the pool gains a line.
    fleet.write_text(text.replace("name: B\n  region: here", "name: B\n  weight: 50\n  region: here"))
    for command in (("diff", fleet), ("apply", fleet, "--dry-run")):
        status, out, _ = shell.run(*command)
        assert status == DIFFERS
        assert "~ change Pool pool-b (" in out
        assert "    weight: 100 → 50\n" in out
        assert out.endswith(f"Dry run: 1 object changed, {text.count('---') - 1} unchanged.\n")
    assert Pool.objects.get(slug="pool-b").weight == 100
    assert shell.run("apply", fleet, "--message", "as agreed")[0] == DONE
    assert Pool.objects.get(slug="pool-b").weight == 50
    assert shell.run("diff", fleet)[0] == DONE

    Api(live_world).change("PATCH", "pools/pool-b", {"weight": 60})
    line = fleet.read_text().split("weight: 50")[0].count("\n") + 1
    status, out, _ = shell.run("apply", fleet)
    assert status == CONFLICTS
    assert f"    weight: 60 → 50\n    ✗ {fleet}:{line}: conflict: set by admin; applied was 50\n" in out
    assert out.endswith("Nothing was applied. Take the stored values into the files, or repeat with --force.\n")
    assert shell.run("diff", fleet)[0] == CONFLICTS
    assert shell.run("apply", fleet, "--force")[0] == DONE
    assert Pool.objects.get(slug="pool-b").weight == 50

    more = tmp_path / "more.yaml"
    more.write_text(REGION)
    assert "+ create Region there" in shell.run("apply", fleet, more)[1]
    status, out, _ = shell.run("diff", fleet)
    assert (status, "! orphan Region there: is no longer" in out, "--prune deletes" in out) == (DONE, True, True)
    assert shell.run("diff", fleet, "--prune")[0] == DIFFERS
    assert "- delete Region there" in shell.run("apply", fleet, "--prune")[1]
    assert not Region.objects.filter(slug="there").exists()


def test_errors_name_file_line_object_and_field_and_change_nothing(shell: Shell, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(f"{REGION}---\n{REGION.replace('Region', 'Pool').replace('There', 'T')}  weight: 5000\n")
    status, out, errors = shell.run("apply", bad)
    assert (status, out) == (FAILED, "")
    assert f"\n{bad}:12: Pool there: spec.weight: " in errors
    bad.write_text(REGION + "---\nkind: [\n")
    assert shell.run("apply", bad)[0] == FAILED
    assert not Region.objects.filter(slug="there").exists()


def test_output_as_json(shell: Shell, live_world: World, tmp_path: Path) -> None:
    exported = json.loads(shell.run("export", "--json", "--kind", "Region")[1])
    assert [item["metadata"]["name"] for item in exported["objects"]] == ["here"]
    file = tmp_path / "r.yaml"
    file.write_text(REGION.replace("there", "here"))
    answer = json.loads(shell.run("diff", "--json", file)[1])
    assert answer["changes"][0]["changed"][0]["after"] == "There"
    shell.run("apply", file)
    Api(live_world).change("PATCH", "regions/here", {"name": "Elsewhere"})
    status, out, _ = shell.run("apply", "--json", file)
    assert (status, json.loads(out)["changes"][0]["changed"][0]["before"]) == (CONFLICTS, "Elsewhere")


def test_a_wrong_key_or_address_is_an_error_with_its_remedy(
    shell: Shell, live_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_API_KEY", "hw_wrong")
    assert shell.run("export") == (FAILED, "", "Set HEADWAY_API_KEY to an API key with the scope manage.\n")
    monkeypatch.setenv("HEADWAY_API_KEY", live_world.texts["traffic_key"])
    assert shell.run("export")[0] == FAILED
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "file:///etc", "nothing"):
        shell.url = url
        status, out, errors = shell.run("export")
        assert (status, out, "--url" in errors) == (FAILED, "", True)
    monkeypatch.delenv("HEADWAY_API_KEY")
    assert shell.run("export")[0] == FAILED
