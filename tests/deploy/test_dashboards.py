"""The dashboard and the alerts ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import yaml

from cronless_dagster.engine.report import TickReport
from cronless_dagster.store.status import Status, TypeStatus
from cronless_dagster.telemetry.metrics import Metrics
from cronless_dagster.telemetry.state import LatestStatus, StateCollector
from cronless_dagster.telemetry.trace_counts import TraceCollector
from cronless_dagster.telemetry.worker_counts import WorkerCollector
from cronless_dagster.worker.counts import Counts, TypeCounts
from tests.engine.support import NOON

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "cronless.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
PROMTOOL = shutil.which("promtool")
# Prometheus's own word for whether a target answered.
TARGETS = {"up": {"job", "instance"}}
# PromQL's words that stand where a metric could: https://prometheus.io/docs/prometheus/latest/querying/operators/
KEYWORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool (in Debian's package prometheus) is not installed"
)


class _Worker:
    counts = Counts(
        types={"work": TypeCounts(1, 1, 1)},
        stale=0, doubled=0, discarded=0, lost=0, poisoned=0, returned=0, given_back=0, unwritten=0,
        held=0, reconnects=0, connected=True, database=True, paused=False,
    )  # fmt: skip


def _everything() -> dict[str, set[str]]:
    """Return every name that our processes export, with its labels."""
    metrics = Metrics()
    report = TickReport(now=NOON, claimed={"work": 1}, published={"work": 1}, errors=["claim: no"])
    report.seconds = {"claim": 1.0}
    report.count("again")
    report.count_misfired("work", 1)
    metrics.tick(report, 1.0)
    metrics.handed_over.of("work").inc()
    metrics.check("dispatch", "acted", 1.0, 1)
    work = TypeStatus("work", True, 1, 1, 1, 1, 1, 1, 1, 1, 1, NOON)
    status = Status(NOON, (work,), {"CLAIMED": 1}, last_tick={"at": NOON.isoformat()})
    metrics.registry.register(StateCollector(None, latest=LatestStatus(lambda: status)))  # type: ignore[arg-type]
    metrics.registry.register(WorkerCollector(_Worker()))
    metrics.registry.register(TraceCollector())
    names: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            names.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return names | TARGETS


EXPORTED = _everything()


def _expressions() -> Iterator[tuple[str, str]]:
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


EXPRESSIONS = list(_expressions())


def _metrics_of(expression: str) -> set[str]:
    plain = re.sub(r'"[^"]*"', "", expression)
    plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", plain)
    plain = re.sub(GROUPING, "", plain)
    words = re.findall(r"\b([A-Za-z_:][A-Za-z0-9_:]*)\b(?!\s*\()", plain)
    return {word for word in words if word not in KEYWORDS}


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_every_metric_is_exported(where: str, expression: str) -> None:
    """What a panel or an alert asks for is something that a process of ours shows, with those labels."""
    names = _metrics_of(expression)
    assert names, where
    assert names <= EXPORTED.keys()
    labels = set().union(*(EXPORTED[name] for name in names))
    for grouped in re.findall(GROUPING, expression):
        assert {label.strip() for label in grouped.split(",") if label.strip()} <= labels
    for name, matchers in re.findall(r"([a-z_]+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= EXPORTED[name]


def test_names_are_found_in_expressions() -> None:
    """The reader of expressions finds names behind functions, matchers, ranges and groupings, and nothing else."""
    assert _metrics_of('(sum by (a) (rate(b_total{c="d e"}[5m])) or vector(0)) == 0 and on () f > 1') == {
        "b_total",
        "f",
    }


def test_counters_are_not_shown_as_they_are() -> None:
    """A counter is asked for its growth: by itself it falls to zero at each deployment."""
    for where, expression in EXPRESSIONS:
        for name in _metrics_of(expression):
            if name.endswith(("_total", "_bucket", "_sum")):
                assert re.search(rf"(rate|increase)\({name}", expression), where


class TestDashboard:
    """Grafana's model."""

    model: Any = json.loads(DASHBOARD.read_text())

    def test_it_asks_the_chosen_data_source(self) -> None:
        """Every panel and target names the variable: nothing is bound to one installation."""
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        assert self.model["templating"]["list"][0]["type"] == "datasource"
        for panel in self.model["panels"]:
            if panel["type"] != "row":
                assert panel["datasource"] == chosen
                assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(
                    panel["targets"]
                )
                assert panel["description"]

    @needs_promtool
    def test_prometheus_takes_the_questions(self, tmp_path: Path) -> None:
        """Each is PromQL, with a value in place of each of Grafana's variables."""
        assert PROMTOOL is not None
        asked = [target["expr"] for panel in self.model["panels"] for target in panel.get("targets", ())]
        plain = [one.replace("$__rate_interval", "1m").replace("$job_type", ".*") for one in asked]
        rules = [{"record": f"panel_{number}", "expr": one} for number, one in enumerate(plain)]
        file = tmp_path / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        found = subprocess.run(
            [PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr

    def test_panels_have_their_place(self) -> None:
        """No two overlap, each has its own id, none is wider than the page."""
        ids = [panel["id"] for panel in self.model["panels"]]
        assert len(set(ids)) == len(ids)
        taken: set[tuple[int, int]] = set()
        for panel in self.model["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells

    def test_a_person_can_import_it(self) -> None:
        """It has a stable address of its own and no id of somebody's database."""
        assert self.model["uid"]
        assert self.model.get("id") is None
        assert self.model["schemaVersion"] >= 37


class TestAlerts:
    """The alert rules."""

    rules: ClassVar[list[Any]] = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]

    def test_each_says_what_to_do(self) -> None:
        """A name of its own, a patience, a severity, what is wrong and what to do."""
        names = [rule["alert"] for rule in self.rules]
        assert len(set(names)) == len(names)
        for rule in self.rules:
            assert re.fullmatch(r"\d+[mh]", rule["for"])
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert set(rule["annotations"]) == {"summary", "description"}
            assert len(rule["annotations"]["description"]) > 60

    @needs_promtool
    def test_prometheus_takes_them(self) -> None:
        """Prometheus's own checker takes the rules and the configuration around them."""
        assert PROMTOOL is not None
        for arguments in (
            ["check", "rules", str(ALERTS)],
            ["check", "config", str(ALERTS.parent / "scrape.yaml")],
        ):
            found = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
            assert found.returncode == 0, found.stdout + found.stderr

    @needs_promtool
    def test_they_fire_when_they_should(self) -> None:
        """Made-up series make the alerts fire, and not before."""
        assert PROMTOOL is not None
        cases = Path(__file__).parent / "alert_cases.yaml"
        found = subprocess.run(
            [PROMTOOL, "test", "rules", str(cases)], capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
