"""`export`: what it writes is right by the validators of each format, and says what the file says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lmos_actors.cli import main
from tests.commands import started
from tests.scenario.project import Ran
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AGENTS = """\
from lmos_actors import Agent, Ref, action

class Weather(Agent):
    @action
    def forecast(self, city: str) -> str:
        return f"{city}: sun"

class Desk(Agent):
    weather: Ref[Weather]

    @action
    async def answer(self, city: str) -> str:
        return await self.weather.invoke(Weather.forecast, city)
"""

DESK = """\
lmos: deployment/v1
name: Travel desk
summary: Forecasts, 100% sure
agents:
  weather: {from: agent, use: "desk_agents.py:Weather"}
  desk: {from: agent, use: "desk_agents.py:Desk", args: {weather: $(agents.weather)}}
  counter: {from: agent, use: "desk_agents.py:Weather"}
  far:
    from: remote
    use: "desk_agents.py:Weather"
    url: "https://far.example/agents/far"
    bearer: "env:FAR_TOKEN"
groups:
  registry:
    directory: state/directory.db
    listen: wss://0.0.0.0:7100
    cert: server.pem
    key: server.key
    security: rules.yaml
  weather:
    agents: [weather]
    register: registry
    replicas: 2
    insecure: true
    limits: {descriptors: 4096, memory: 2GiB, processors: 2}
    env: {LEVEL: "50%", WHERE: "a b $(replica)", PRICE: "$5"}
    drain: {timeout: 20s, spread: 2500ms}
    update: {order: start_first}
    backoff: {initial: 200ms}
  several:
    directory: true
    replicas: 3
    insecure: true
  front:
    agents: [desk]
    register: registry
    needs: {counter: started}
    listen: ws://127.0.0.1:7101
    insecure: true
  counter:
    agents: [counter]
    store: sqlite:state/counter.db
    insecure: true
launcher: {strategy: rest_for_one}
"""

RULES = """\
schemes:
  - scheme: bearer
    tokens: {ops: "env:OPS_TOKEN", web: "file:web.token"}
access:
  directory: {invoke: authenticated}
"""

PLAIN = """\
lmos: deployment/v1
name: plain
agents:
  weather: {from: agent, use: "desk_agents.py:Weather"}
groups:
  registry:
    agents: [weather]
    directory: true
    listen: ws://127.0.0.1:7100
    insecure: true
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all tests: of one name only one module is imported."""
    path = list(sys.path)
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text("")
    (folder / "desk_agents.py").write_text(AGENTS)
    yield folder
    sys.path[:] = path
    sys.modules.pop("desk_agents", None)


@pytest.fixture
def folder(project: Path) -> Path:
    for path in project.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    for name, text in (("rules.yaml", RULES), ("desk.yaml", DESK), ("plain.yaml", PLAIN)):
        (project / name).write_text(text)
    return project


@pytest.fixture
def export(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    monkeypatch.chdir(folder)

    def export(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["export", *words])
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return export


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def documents(export: Callable[..., Ran]) -> dict[tuple[str, str], Any]:
    """Return the manifests of Kubernetes, by kind and name."""
    made = list(yaml.safe_load_all(export("k8s", "desk.yaml").out))
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


# ---- the validators of the formats


@pytest.mark.slow
def test_a_file_of_compose_fits_the_schema_of_its_specification(
    export: Callable[..., Ran], folder: Path
) -> None:
    for name in ("desk", "plain"):
        assert export("compose", f"{name}.yaml", "--out", name).code == 0
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    files = [str(folder / name / "compose.yaml") for name in ("desk", "plain")]
    checked = subprocess.run([sys.executable, *words, *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes(export: Callable[..., Ran], version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for file in ("desk.yaml", "plain.yaml"):
        made = list(yaml.safe_load_all(export("k8s", file).out))
        assert len(made) in (3, 15)
        for each in made:
            validator.validate(each, version, strict=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_has_nothing_to_say_against_the_units(export: Callable[..., Ran], folder: Path) -> None:
    assert export("systemd", "desk.yaml", "--out", "units", "--command", shutil.which("true") or "").code == 0
    for path in sorted((folder / "units").glob("*@.service")):
        for number in range(1, 4):
            shutil.copyfile(path, path.with_name(path.name.replace("@.", f"@{number}.")))
    units = [str(path) for path in sorted((folder / "units").iterdir()) if "@." not in path.name]
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder / 'units'}:"},
    )
    assert (checked.returncode, checked.stderr) == (0, "")


# ---- systemd


def unit(text: str) -> dict[str, list[str]]:
    """Return the settings of a unit by name."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_a_unit_says_what_the_file_says_of_its_group(export: Callable[..., Ran], folder: Path) -> None:
    words = ("--out", "units", "--root", "/srv/desk", "--command", "/opt/bin/lmos-actors", "--user", "desk")
    ran = export("systemd", "desk.yaml", *words)
    assert (ran.code, ran.out) == (0, "")
    made = written(folder / "units")
    groups = ("counter", "front", "registry", "several", "weather")
    assert list(made) == [*(f"travel-desk-{name}@.service" for name in groups), "travel-desk.target"]
    weather = unit(made["travel-desk-weather@.service"])
    command = "/opt/bin/lmos-actors serve /srv/desk/desk.yaml --group weather --replica %i"
    assert weather == {
        "Description": ["Travel desk: weather, process %i"],
        "PartOf": ["travel-desk.target"],
        "Requires": ["travel-desk-registry@1.service"],
        "After": ["network.target travel-desk-registry@1.service"],
        "StartLimitIntervalSec": ["60"],
        "StartLimitBurst": ["4"],
        "Type": ["exec"],
        "User": ["desk"],
        "WorkingDirectory": ["/srv/desk"],
        "ExecStart": [command],
        "Restart": ["always"],
        "RestartPreventExitStatus": ["2"],
        "RestartSec": ["0.2"],
        "KillMode": ["mixed"],
        "TimeoutStopSec": ["29"],
        "LimitNOFILE": ["4096"],
        "MemoryMax": ["2147483648"],
        "CPUQuota": ["200%"],
        "Environment": ["LEVEL=50%%", '"WHERE=a b %i"', "PRICE=$5"],
        "EnvironmentFile": ["/etc/travel-desk.env"],
        "NoNewPrivileges": ["true"],
        "PrivateTmp": ["true"],
    }
    whole = unit(made["travel-desk.target"])
    assert whole["Description"] == ["Forecasts, 100%% sure"]
    assert whole["Wants"][:3] == [
        f"travel-desk-{name}.service" for name in ("registry@1", "weather@1", "weather@2")
    ]
    assert "OPS_TOKEN" in made["travel-desk-registry@.service"]


# ---- Compose


def test_services_say_what_the_file_says_of_their_groups(export: Callable[..., Ran]) -> None:
    ran = export("compose", "desk.yaml", "--image", "desk:1", "--port", "9000")
    made = yaml.safe_load(ran.out)
    services = made["services"]
    assert list(services) == ["registry", "weather-1", "weather-2", "several", "front", "counter"]
    second = services["weather-2"]
    command = "serve /app/desk.yaml --group weather --replica 2 --listen ws://0.0.0.0:9000"
    assert second["entrypoint"] == ["lmos-actors"]
    assert second["command"] == [*command.split(), "--at", "registry=https://registry:7100"]
    assert (second["image"], second["hostname"], second["stop_grace_period"]) == (
        "desk:1",
        "weather-2",
        "29s",
    )
    assert second["environment"] == {
        "LEVEL": "50%",
        "WHERE": "a b 2",
        "PRICE": "$$5",
        "FAR_TOKEN": "${FAR_TOKEN:?is a secret of weather}",
    }
    assert second["depends_on"] == {"registry": {"condition": "service_healthy"}}
    assert second["deploy"] == {"resources": {"limits": {"cpus": "2", "memory": "2147483648"}}}
    assert (second["ulimits"], second["user"], second["read_only"]) == ({"nofile": 4096}, "10001", True)
    several = services["several"]
    assert several["deploy"] == {"replicas": 3}
    assert "hostname" not in several
    front = services["front"]
    assert front["ports"] == ["127.0.0.1:7101:7101"]
    assert front["depends_on"]["counter"] == {"condition": "service_started"}
    assert "http://127.0.0.1:7101/readyz" in front["healthcheck"]["test"][-1]
    registry = services["registry"]
    assert registry["ports"] == ["7100:7100"]
    targets = {each["source"]: each["target"] for each in registry["secrets"]}
    assert targets == {
        name.replace(".", "-"): f"/app/{name}" for name in ("server.pem", "server.key", "web.token")
    }
    assert made["secrets"]["server-key"] == {"file": "./server.key"}
    assert services["counter"]["volumes"] == ["counter-state:/app/state"]
    assert set(made["volumes"]) == {"counter-state", "registry-state"}
    assert not re.search(r"&id|\*id", ran.out)


def test_the_probe_of_a_container_asks_what_listens_there(export: Callable[..., Ran]) -> None:
    services = yaml.safe_load(export("compose", "desk.yaml").out)["services"]
    for service in services.values():
        kind, program, option, text = service["healthcheck"]["test"]
        assert (kind, program, option) == ("CMD", "python3", "-c")
        compile(text, "probe", "exec")
    assert "_create_unverified_context" in services["registry"]["healthcheck"]["test"][-1]


# ---- Kubernetes


def test_manifests_say_what_the_file_says_of_their_groups(export: Callable[..., Ran]) -> None:
    made = documents(export)
    kinds = ("Service", "StatefulSet", "PodDisruptionBudget")
    groups = ("registry", "weather", "several", "front", "counter")
    assert list(made) == [(kind, f"travel-desk-{group}") for group in groups for kind in kinds]
    spec = made["StatefulSet", "travel-desk-weather"]["spec"]
    assert (spec["replicas"], spec["ordinals"]) == (2, {"start": 1})
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 29 + 3
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["command"] == ["lmos-actors"]
    command = "serve /app/desk.yaml --group weather --replica $(REPLICA) --listen ws://0.0.0.0:8080"
    more = "--public-url ws://$(POD).travel-desk-weather:8080 --at registry=https://travel-desk-registry:7100"
    assert container["args"] == f"{command} {more}".split()
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "agents", "scheme": "HTTP"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["startupProbe"]["failureThreshold"] == 30
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"] == {"limits": {"cpu": "2", "memory": "2147483648"}}
    environment = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert environment["WHERE"] == "a b $(REPLICA)"
    assert environment["PRICE"] == "$$5"
    assert environment["FAR_TOKEN"] == {"secretKeyRef": {"name": "travel-desk", "key": "FAR_TOKEN"}}
    (waiting,) = pod["initContainers"]
    assert "https://travel-desk-registry:7100/readyz" in waiting["command"][-1]
    registry = made["StatefulSet", "travel-desk-registry"]["spec"]
    mounts = {each["mountPath"] for each in registry["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts >= {"/app/state", "/app/server.pem", "/app/server.key", "/app/web.token", "/tmp"}
    assert registry["volumeClaimTemplates"][0]["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    probe = registry["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    assert probe["scheme"] == "HTTPS"
    assert made["PodDisruptionBudget", "travel-desk-front"]["spec"]["maxUnavailable"] == 1
    assert made["Service", "travel-desk-front"]["spec"]["ports"][0]["port"] == 7101


# ---- Procfile


def test_a_procfile_has_a_line_for_each_process(export: Callable[..., Ran], folder: Path) -> None:
    assert export("procfile", "desk.yaml", "--out", "below", "--set", "x=a b").code == 2
    assert export("procfile", "desk.yaml", "--out", "below").code == 0
    lines = [line for line in written(folder / "below")["Procfile"].splitlines() if not line.startswith("#")]
    assert lines[:2] == [
        "registry-1: lmos-actors serve ../desk.yaml --group registry --replica 1",
        "weather-1: lmos-actors serve ../desk.yaml --group weather --replica 1",
    ]
    assert [line.partition(":")[0] for line in lines[-3:]] == ["several-3", "front-1", "counter-1"]


@pytest.mark.slow
def test_a_line_of_a_procfile_is_a_process_that_becomes_ready(
    export: Callable[..., Ran], folder: Path
) -> None:
    line = export("procfile", "plain.yaml").out.splitlines()[-1]
    words = [*shlex.split(line)[2:], "--listen", "ws://127.0.0.1:0", "--public-url", "ws://desk.example:81"]
    events: list[dict[str, Any]] = []
    with started(words, folder) as process:
        assert process.stdout is not None
        for text in process.stdout:
            events.append(json.loads(text))
            if events[-1]["event"] == "ready":
                break
        process.terminate()
        process.communicate()
    assert process.returncode == 0
    urls = {event["name"]: event["url"] for event in events if event["event"] == "agent"}
    assert urls["weather"] == "http://desk.example:81/agents/weather"
    (address,) = [event["url"] for event in events if event["event"] == "listening"]
    assert ":7100" not in address


# ---- edges


def test_a_group_without_processes_and_one_that_asks_for_certificates(
    export: Callable[..., Ran], folder: Path
) -> None:
    text = DESK.replace("replicas: 3", "replicas: 0").replace(
        "security: rules.yaml", "client_ca: authority.pem"
    )
    (folder / "desk.yaml").write_text(text)
    services = yaml.safe_load(export("compose", "desk.yaml").out)["services"]
    assert services["several"]["deploy"] == {"replicas": 0}
    assert "socket.create_connection" in services["registry"]["healthcheck"]["test"][-1]
    made = documents(export)
    assert made["StatefulSet", "travel-desk-several"]["spec"]["replicas"] == 0
    (container,) = made["StatefulSet", "travel-desk-registry"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["tcpSocket"] == {"port": "agents"}
    assert (
        "several" not in export("systemd", "desk.yaml").out.partition("[Install]")[0].partition("[Unit]")[2]
    )
    assert "several" not in export("procfile", "desk.yaml").out.partition("registry-1")[2]


# ---- what is lost, what is refused


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        (
            "systemd",
            [
                "13:1: systemd counts the starts of each process alone",
                '44:12: "rest_for_one": the end',
                '20:3: "weather" starts after registry, ready or not',
                '28:5: "update" of "weather"',
                '29:5: "backoff" of "weather"',
            ],
        ),
        ("compose", ["13:1: Compose starts", '44:12: "rest_for_one"', '28:5: "update" of "weather"']),
        (
            "procfile",
            ["13:1: what reads a Procfile", '20:3: "weather" does not wait for registry', '27:5: "drain"'],
        ),
        (
            "k8s",
            [
                "13:1: Kubernetes starts",
                '28:5: "update" of "weather": a StatefulSet stops',
                '25:5: "limits" of "weather": descriptors',
                '34:3: "front" does not wait for the start of counter',
            ],
        ),
    ],
)
def test_what_a_format_does_not_express_is_said_in_both_places(
    export: Callable[..., Ran], kind: str, lost: list[str]
) -> None:
    ran = export(kind, "desk.yaml")
    comments = [line for line in ran.out.splitlines() if line.startswith("#")]
    for text in lost:
        place, _, why = text.partition(": ")
        line = int(place.partition(":")[0])
        assert f"desk.yaml:{place}: note: {why}" in ran.err, ran.err
        assert any(comment.startswith(f"# - line {line}: {why}") for comment in comments)


@pytest.mark.parametrize(
    ("kinds", "old", "new", "said"),
    [
        (
            ("systemd", "procfile"),
            "directory: state/directory.db\n    listen: wss://0.0.0.0:7100",
            "directory: true\n    replicas: 2\n    listen: wss://0.0.0.0:0",
            'desk.yaml:17:13: the processes of the directory "registry" listen at free ports',
        ),
        (
            ("compose", "k8s"),
            "    listen: ws://127.0.0.1:7101\n    insecure: true\n",
            "    listen: ws://127.0.0.1:7101\n",
            'desk.yaml:34:3: in a container "front" listens at all addresses, without access rules',
        ),
        (
            ("compose", "k8s"),
            "sqlite:state/counter.db",
            "sqlite:counter.db",
            'desk.yaml:42:12: in a container the folder of "counter.db" has the program',
        ),
        (
            ("systemd", "k8s"),
            "  several:\n",
            "  Front: {directory: true}\n  several:\n",
            '"front" and "Front" are both "front" there: rename one',
        ),
        (("k8s",), "name: Travel desk", f"name: {'x' * 50}", "is longer than the 52 characters"),
    ],
)
def test_what_cannot_be_exported_is_refused_where_it_stands(
    export: Callable[..., Ran], folder: Path, kinds: tuple[str, ...], old: str, new: str, said: str
) -> None:
    assert old in DESK
    (folder / "desk.yaml").write_text(DESK.replace(old, new))
    for kind in kinds:
        ran = export(kind, "desk.yaml", "--out", "none")
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
        assert not (folder / "none").exists()


def test_a_directory_at_a_free_port_gets_one_that_all_know(export: Callable[..., Ran], folder: Path) -> None:
    (folder / "desk.yaml").write_text(DESK.replace("wss://0.0.0.0:7100", "wss://0.0.0.0:0"))
    for kind in ("systemd", "procfile"):
        ran = export(kind, "desk.yaml", "--port", "7101")  # which "front" has
        assert 'note: "registry" listens at port 7102, as nobody else would know' in ran.err
        lines = [line for line in ran.out.splitlines() if re.search("--group (registry|weather)", line)]
        assert lines
        assert all(line.endswith("--at registry=https://0.0.0.0:7102") for line in lines)
    for kind in ("compose", "k8s"):
        ran = export(kind, "desk.yaml", "--port", "7105")
        assert ":7105\n" in next(line + "\n" for line in ran.out.splitlines() if "registry=https://" in line)


def test_the_deployment_that_ships_can_be_exported_to_all(export: Callable[..., Ran]) -> None:
    for kind in ("systemd", "compose", "procfile", "k8s"):
        assert export(kind, str(ROOT / "scenarios/desk.deployment.yaml")).code == 0


def test_secrets_stay_where_they_are(
    export: Callable[..., Ran], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPS_TOKEN", "FAR_TOKEN"):
        monkeypatch.setenv(name, "very-secret")
    (folder / "web.token").write_text("very-secret")
    for kind in ("systemd", "compose", "procfile", "k8s"):
        assert "very-secret" not in export(kind, "desk.yaml").text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["podman", "desk.yaml"], "podman"),
        (["compose"], "FILE"),
        (["compose", "none.yaml"], "none.yaml"),
        (["compose", "desk.yaml", "--port", "70000"], "--port: must be from 1 to 65535"),
        (["k8s", "desk.yaml", "--storage", "much"], '--storage: "much" is not a size'),
        (["k8s", "desk.yaml", "--user", "desk"], "--user: must be the number of a user"),
        (["systemd", "desk.yaml", "--out", "desk.yaml"], "desk.yaml: cannot be written"),
    ],
)
def test_wrong_words(export: Callable[..., Ran], words: list[str], said: str) -> None:
    ran = export(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
