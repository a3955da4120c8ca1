"""The example's Grafana dashboard and Prometheus alerts use what the server exports: every metric, and no other."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from streamkit.core.data import Device
from streamkit.runtime.ingest.source_status import STATES
from streamkit.runtime.observe import nvml
from streamkit.serve.metrics import registry

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "streamkit.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(target["expr"], panel["title"]) for panel in PANELS for target in panel["targets"]]
ALERTS = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
SCRAPED = {"job", "instance"}  # the labels that Prometheus adds to every series


def selectors(expression: Any) -> list[Any]:
    """Every series that an expression selects."""
    if isinstance(expression, promql.VectorSelector):
        return [expression]
    parts = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    return [
        selector
        for part in [*parts, *getattr(expression, "args", ())]
        if part is not None
        for selector in selectors(part)
    ]


def parsed(text: str) -> Any:
    return promql.parse(text.replace("$__rate_interval", "5m"))


@pytest.fixture(scope="module")
def exported(server):
    """The labels of each series that the server exports, also those of a GPU, by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "Nvml", lambda index: SimpleNamespace(use=lambda: nvml.GpuUtilization(0.25, 0.5)))
        patch.setattr(server.engine.running.current, "devices", (Device("cuda"),))
        metrics = registry(server.engine)
    labels_by_series = {}
    for family in metrics.collect():
        labels = set(getattr(family, "_labelnames", ())).union(*(sample.labels for sample in family.samples))
        if isinstance(family, HistogramMetricFamily):
            labels_by_series |= {f"{family.name}_{end}": labels | {"le"} for end in ("bucket", "sum", "count")}
        else:
            labels_by_series[f"{family.name}_total" if isinstance(family, CounterMetricFamily) else family.name] = (
                labels
            )
    assert {"streamkit_frames_total", "streamkit_gpu_utilization_ratio", "process_open_fds"} <= labels_by_series.keys()
    return labels_by_series


def test_the_dashboard_shows_every_metric(exported):
    shown = {selector.name for text, _ in TARGETS for selector in selectors(parsed(text))}
    assert exported.keys() - shown == set(), "add a panel for each"
    assert shown - exported.keys() == set(), "the server does not export these"


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_alerts_use_existing_metrics(rule, exported):
    names = {selector.name for selector in selectors(parsed(rule["expr"]))}
    assert names
    assert names - exported.keys() - {"up"} == set()
    labels = set().union(SCRAPED, *(exported.get(name, ()) for name in names))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels


def test_selectors_and_legends_use_existing_labels(exported):
    for panel in PANELS:
        for target in panel["targets"]:
            selected = selectors(parsed(target["expr"]))
            for selector in selected:
                assert {match.name for match in selector.matchers.matchers} <= exported[selector.name] | SCRAPED, panel[
                    "title"
                ]
            labels = SCRAPED.union(*(exported[selector.name] for selector in selected))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]


def test_states_in_queries_are_those_of_sources():
    texts = [*(text for text, _ in TARGETS), *(rule["expr"] for rule in ALERTS)]
    matchers = [match for text in texts for selector in selectors(parsed(text)) for match in selector.matchers.matchers]
    states = {word for match in matchers if match.name == "state" for word in match.value.split("|")}
    assert {"running", "failed"} <= states <= set(STATES)


def test_panels_do_not_overlap_and_use_the_dashboard_s_data_source():
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(place, panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    sources = [owner["datasource"]["uid"] for panel in PANELS for owner in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}
    used = set(re.findall(r"\$(\w+)", " ".join(text for text, _ in TARGETS))) - {"__rate_interval"}
    assert used == variables.keys() - {"datasource"}


def test_the_provisioned_data_source_and_folder_are_those_of_the_compose_file():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"].removeprefix("http://").split(":")[0] in services
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "streamkit.yaml").read_text())["providers"]
    mounts = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounts
