"""The table of rules: equal to the file for Prometheus, and states from readings, incidents, and the jobs process."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from controlplane.incidents.models.incident import Incident
from controlplane.incidents.rules import FIRING, OK, PENDING, RULES, STALE, UNKNOWN, publish_conditions, rule_states
from planning.incidents import symptoms
from tests.controlplane.conftest import bus
from tests.controlplane.incidents.scene import JobScene

__all__ = ["bus"]

FILE = Path(__file__).parents[3] / "deploy" / "prometheus" / "headway.rules.yml"
KINDS = {
    value for name, value in vars(symptoms).items() if name.isupper() and isinstance(value, str)
}  # Each constant of the module that is a text names a kind.


def test_the_file_for_prometheus_has_the_alerts_severities_and_limits_of_the_table() -> None:
    (group,) = yaml.safe_load(FILE.read_text())["groups"]
    written = {rule["alert"]: rule for rule in group["rules"]}
    mine = {rule.alert: rule for rule in RULES if rule.alert}
    assert {name: rule["labels"]["severity"] for name, rule in written.items()} == {
        name: rule.severity for name, rule in mine.items()
    }
    limits = {name: rule.limit for name, rule in mine.items() if rule.limit is not None}
    assert limits == {"HeadwayRequestsFail": 0.02, "HeadwayRequestsRejected": 0.05, "HeadwayGatewayLate": 0.1}
    for name, limit in limits.items():
        assert f"> {limit:g}" in " ".join(written[name]["expr"].split()), name


def test_each_symptom_that_opens_incidents_is_a_rule() -> None:
    assert {rule.symptom for rule in RULES if rule.symptom} == KINDS
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.django_db
@pytest.mark.usefixtures("bus")
class TestStates:
    def states(self, scene: JobScene, after: timedelta = timedelta()) -> dict[str, str]:
        return {item.rule.name: item.state for item in rule_states(scene.at + after)}

    def test_a_burn_is_pending_then_firing_with_its_incident_and_ok_after_it(self) -> None:
        scene = JobScene()
        scene.run(300)
        publish_conditions(scene.watch, scene.at)
        assert self.states(scene)["burn"] == OK
        scene.world.pool().late = 0.6
        scene.run(15)
        publish_conditions(scene.watch, scene.at)
        assert (self.states(scene)["burn"], Incident.objects.count()) == (PENDING, 0)
        scene.run(60)
        publish_conditions(scene.watch, scene.at)
        burn = next(item for item in rule_states(scene.at) if item.rule.name == "burn")
        assert (burn.state, burn.incident) == (FIRING, Incident.objects.get().pk)
        assert [(item.kind, item.pool_id) for item in burn.conditions] == [("burn", "pool-0")]
        assert burn.fired_at == Incident.objects.get().onset
        scene.calm()
        publish_conditions(scene.watch, scene.at)
        burn = next(item for item in rule_states(scene.at) if item.rule.name == "burn")
        assert (burn.state, burn.conditions, burn.incident) == (OK, (), Incident.objects.get().pk)

    def test_states_are_unknown_without_reports_and_external_rules_have_none(self) -> None:
        scene = JobScene()
        assert set(self.states(scene).values()) == {UNKNOWN, "external"}
        scene.run(60)
        publish_conditions(scene.watch, scene.at)
        assert self.states(scene)["failing"] == OK
        assert self.states(scene, after=STALE + timedelta(seconds=1))["failing"] == UNKNOWN
