"""What is in deploy/ for several nodes is what the program takes, and has what nodes need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.helpers.terminal import COMMAND, TIMEOUT_S
from turnkeeper.core.limits import Limits

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text()))
NODES = {name: one for name, one in COMPOSE["services"].items() if name.startswith("node-")}
PORT = "7433"


def of_kind(kind: str) -> Any:
    return next(one for one in KUBERNETES if one["kind"] == kind)


def pod() -> Any:
    return of_kind("StatefulSet")["spec"]["template"]["spec"]


def container() -> Any:
    return pod()["containers"][0]


CONFIGURATIONS = [
    COMPOSE["configs"]["turnkeeper"]["content"],
    of_kind("ConfigMap")["data"]["turnkeeper.toml"],
]


@pytest.mark.parametrize("text", CONFIGURATIONS, ids=["compose", "kubernetes"])
def test_the_configuration_is_one_that_the_program_takes(text: str, tmp_path: Path) -> None:
    file = tmp_path / "turnkeeper.toml"
    file.write_text(text)
    done = subprocess.run(
        [COMMAND, "config", "check", "--config", str(file)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
        env={"PATH": "/usr/bin", "TURNKEEPER_API_TOKEN": "0123456789abcdef"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for key, value in (
        ("server.drain", "true"), ("server.host", "0.0.0.0"), ("server.port", PORT),
        ("store.url", "postgresql://turnkeeper@"), ("data", "/data"),
    ):  # fmt: skip
        assert re.search(rf"^{re.escape(key)} +{re.escape(value)}", done.stdout, re.M)


def test_the_server_and_whoever_types_a_command_beside_it_read_the_same_configuration() -> None:
    for node in NODES.values():
        assert node["command"] == ["serve"]
        assert node["environment"]["TURNKEEPER_CONFIG"] == node["configs"][0]["target"]
    assert container()["args"] == ["serve"]
    given = {one["name"]: one.get("value") for one in container()["env"]}
    [place] = [x["mountPath"] for x in container()["volumeMounts"] if x["name"] == "config"]
    assert given["TURNKEEPER_CONFIG"] == f"{place}/turnkeeper.toml"


def test_what_the_image_has_below_its_volume_is_there_in_a_pod_too() -> None:
    image = (DEPLOY / "Containerfile").read_text()
    [tmp] = re.findall(r"TMPDIR=(\S+)", image)
    mounted = {one["mountPath"]: one["name"] for one in container()["volumeMounts"]}
    assert {"name": mounted[tmp], "emptyDir": {}} in pod()["volumes"]


def test_every_node_has_a_place_of_its_own() -> None:
    places = [one["volumes"] for one in NODES.values()]
    assert len(NODES) == 3
    assert len({tuple(place) for place in places}) == 3
    spec = of_kind("StatefulSet")["spec"]
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert {"name": "data", "mountPath": "/data"} in container()["volumeMounts"]
    assert {one["metadata"]["name"] for one in KUBERNETES if one["kind"] == "Service"} == {
        "turnkeeper", spec["serviceName"],
    }  # fmt: skip


def test_a_node_has_the_time_to_drain() -> None:
    limits = Limits()
    needed = 60 + limits.drain_s + limits.term_s
    assert pod()["terminationGracePeriodSeconds"] > needed
    assert all(float(one["stop_grace_period"].removesuffix("s")) > needed for one in NODES.values())


def test_the_probes_ask_whether_it_lives_and_whether_it_is_ready() -> None:
    live, ready = container()["livenessProbe"], container()["readinessProbe"]
    assert (live["httpGet"]["path"], ready["httpGet"]["path"]) == ("/healthz", "/readyz")
    assert {live["httpGet"]["port"], ready["httpGet"]["port"]} == {container()["ports"][0]["name"]}


def test_one_node_at_a_time_may_be_taken_away() -> None:
    assert of_kind("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_no_password_is_in_them() -> None:
    plain = ("POSTGRES_USER", "POSTGRES_DB", "TURNKEEPER_CONFIG")
    for one in container()["env"]:
        assert one["name"] in plain or set(one["valueFrom"]) == {"secretKeyRef"}
    for node in (*NODES.values(), COMPOSE["services"]["db"]):
        for name, value in node["environment"].items():
            assert value.startswith("${") or name in plain
