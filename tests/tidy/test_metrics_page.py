"""The page of the metrics says what the server shows, and alerts ask for nothing else."""

import re

import yaml  # type: ignore[import-untyped]

from scripts import metrics_page
from tests.tidy.source import REPO
from turnkeeper.observe.metrics import Metrics

ALERTS = REPO / "deploy" / "alerts.yml"
NAME = re.compile(r"\b(?:turnkeeper|process)_[a-z_]+")
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def names_on_the_page() -> set[str]:
    text = metrics_page.PAGE.read_text(encoding="utf-8")
    return set(re.findall(r"^\| `((?:turnkeeper|process)_\w+)` \|", text, re.M))


def test_the_page_of_the_metrics_is_up_to_date() -> None:
    shown = metrics_page.PAGE.read_text(encoding="utf-8")
    assert shown == metrics_page.render(), "it is stale: run `make diagram`"


def test_every_metric_that_is_shown_is_on_the_page() -> None:
    shown = re.findall(r"^# TYPE (\w+) ", Metrics(version="0").render().decode(), re.M)
    assert len(shown) > 15
    assert set(shown) - names_on_the_page() == set()


def test_every_label_is_explained() -> None:
    used = {label for family in metrics_page.families() for label in family.labels}
    assert used == set(metrics_page.LABELS)


def unknown_names(text: str) -> set[str]:
    found = {
        name.removesuffix(next((end for end in OF_HISTOGRAMS if name.endswith(end)), ""))
        for name in NAME.findall(text)
    }
    return found - names_on_the_page()


def test_alerts_and_documents_ask_only_for_metrics_that_there_are() -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert len(rules) > 5
    assert {name for rule in rules for name in unknown_names(rule["expr"])} == set()
    page = (REPO / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    assert unknown_names(page) == set()


def test_every_alert_says_what_to_do_and_how_bad_it_is() -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    for rule in rules:
        assert rule["annotations"]["todo"], rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_a_metric_that_there_is_not_is_found() -> None:
    assert unknown_names("rate(turnkeeper_runs_total[5m]) + turnkeeper_moods") == {
        "turnkeeper_moods"
    }
