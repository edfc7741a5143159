"""`doctor FILE`: each look finds what would be in the way of a deployment, and says what to do."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from lmos_actors.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Look = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]

AGENTS = """\
from functools import partial

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action
from lmos_actors.llm import AnthropicModel, OpenAIModel

class Weather(Agent):
    @action
    def forecast(self, city: str) -> str:
        return f"{city}: sun"

class Kept(Agent, durable=True):
    pass

tree = SupervisorSpec(
    "office",
    [
        ChildSpec("own", partial(partial(OpenAIModel, model="m", key="env:NO_SUCH_KEY"), max_tokens=9)),
        ChildSpec("usual", partial(AnthropicModel, model="m")),
    ],
)
"""

FILE = """\
lmos: deployment/v1
name: desk
agents:
  weather: {{from: agent, use: "examined_agents.py:Weather"}}
groups:
  weather:
    agents: [weather]
    {more}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for all tests: of one name only one module is imported."""
    path = list(sys.path)
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text("")
    (folder / "examined_agents.py").write_text(AGENTS)
    yield folder
    sys.path[:] = path
    sys.modules.pop("examined_agents", None)


@pytest.fixture
def look(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Look:
    """Check a file whose group has more keys; return the exit code, and what was found, by name."""
    monkeypatch.chdir(project)

    def look(*more: str, text: str = FILE) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        (project / "desk.yaml").write_text(text.format(more="\n    ".join(more)))
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "desk.yaml", "--json"])
        printed = capfd.readouterr()
        data = json.loads(printed.out)
        assert printed.err == ""
        assert data["exit_code"] == ended.value.code
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in data["findings"]:
            found.setdefault(finding["name"], []).append(finding)
        return data["exit_code"], found

    return look


def test_a_file_that_can_be_brought_up_is_well(look: Look, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = look("store: sqlite:new/weather.db", "limits: {descriptors: 64, memory: 160MiB}")
    assert code == 0
    verdicts = {finding["verdict"] for findings in found.values() for finding in findings}
    assert verdicts == {"ok"}
    assert found["file"][0]["saw"] == "desk.yaml: 1 groups, 1 processes"
    assert found["weather: store"][0]["saw"].endswith("MiB free")
    with pytest.raises(SystemExit):
        main(["doctor", "desk.yaml"])
    assert "ok    imports" in capfd.readouterr().out


def test_a_port_that_is_taken(look: Look) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = look(f"listen: ws://127.0.0.1:{port}")
    (port_found,) = found["weather: port"]
    assert (code, port_found["verdict"]) == (1, "fail")
    assert port_found["saw"].startswith(f"127.0.0.1:{port}: ")
    assert look(f"listen: ws://127.0.0.1:{port}")[1]["weather: port"][0]["verdict"] == "ok"


def test_a_dry_run_says_what_is_in_the_way(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A port that is taken, and, as a note, a secret that others can read."""
    monkeypatch.chdir(project)
    (project / "token").write_text("secret")
    (project / "token").chmod(0o644)
    rules = "schemes: [{scheme: bearer, tokens: {alice: 'file:token'}}]\n"
    (project / "rules.yaml").write_text(rules)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = f"listen: ws://127.0.0.1:{port}\n    security: rules.yaml"
        (project / "desk.yaml").write_text(FILE.format(more=more))
        codes = [_code_of("up", "desk.yaml", "--dry-run")]
    said = capfd.readouterr()
    codes.append(_code_of("up", "desk.yaml", "--dry-run"))
    assert codes == [1, 0]
    assert said.out == "desk: 1 groups, in this order\n  weather: 1 process\n"
    assert f"lmos-actors: weather: port: 127.0.0.1:{port}: " in said.err
    note = f"lmos-actors: note: weather: file: {project}/token can be read by all users; chmod o-r"
    assert note in said.err
    assert capfd.readouterr().err.startswith(note)


def _code_of(*words: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_an_address_of_another_machine(look: Look) -> None:
    code, found = look("listen: ws://192.0.2.1:7000", "insecure: true")
    assert (code, found["weather: port"][0]["verdict"]) == (1, "fail")


@pytest.mark.parametrize(
    ("more", "name", "verdict", "said"),
    [
        ("cwd: none", "weather: folder", "fail", "no such folder"),
        ("limits: {descriptors: 1048576}", "weather: descriptors", "fail", "1048576 wanted, 4096 at most"),
        ("limits: {processors: 1024}", "weather: processors", "warn", "1024 wanted"),
        ("replicas: 1000", "open files of up", "fail", "5064 wanted, 4096 at most"),
        ("limits: {memory: 900000GiB}", "weather: memory", "fail", "wanted"),
        ("security: none.yaml", "weather: security", "fail", "none.yaml"),
        ("security: broken.yaml", "weather: security", "fail", "broken.yaml:1:1"),
        ("security: rules.yaml", "weather: secret", "fail", "env:NO_SUCH_TOKEN: the variable is not set"),
        ("security: rules.yaml", "weather: file", "warn", "web.token can be read by all users"),
        ("{cert: none.pem, listen: 'wss://127.0.0.1:0'}", "weather: certificate", "fail", "none.pem"),
        ("store: sqlite:file/weather.db", "weather: store", "fail", "cannot be written"),
        ("limits: {memory: 1MiB}", "file", "fail", "expected at least 160MiB, saw 1MiB"),
        ("omnia: {uploads: file/uploads}", "weather: uploads", "fail", "cannot be written"),
        ("directory: file/directory.db", "weather: directory", "fail", "cannot be written"),
    ],
)
def test_what_is_in_the_way(
    look: Look,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    name: str,
    verdict: str,
    said: str,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    (project / "file").write_text("")
    (project / "broken.yaml").write_text("schemas: []\n")
    (project / "web.token").write_text("secret")
    (project / "web.token").chmod(0o644)
    (project / "rules.yaml").write_text(
        "schemes:\n  - scheme: bearer\n    tokens: {ops: 'env:NO_SUCH_TOKEN', web: 'file:web.token'}\n"
    )
    keys = more.strip("{}").split(", ") if more.startswith("{") else [more]
    code, found = look(*keys)
    finding = found[name][-1]
    assert finding["verdict"] == verdict
    assert said in finding["saw"]
    assert finding["remedy"]
    assert code == (1 if any(each["verdict"] == "fail" for many in found.values() for each in many) else 0)


def test_certificates_are_looked_at(look: Look, project: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(project / "server.pem")
    )
    (project / "server.pem").chmod(0o604)
    words = ("listen: wss://127.0.0.1:0", "cert: server.pem")
    code, found = look(*words)
    assert (code, found["weather: certificate"][0]["verdict"]) == (0, "ok")
    (warning,) = found["weather: file"]
    assert (warning["verdict"], warning["remedy"]) == ("warn", f"chmod o-r {project / 'server.pem'}")
    (project / "server.pem").chmod(0o600)
    assert "weather: file" not in look(*words)[1]


def test_keys_of_agents_are_no_files(look: Look) -> None:
    agents = """\
  weather: {{from: agent, use: "examined_agents.py:Kept", key: main}}
  many: {{from: pool, use: "examined_agents.py:Weather", size: 2, by: key, key: city}}
groups:"""
    text = FILE.replace("[weather]", "[weather, many]").partition("  weather:")
    text = f"{text[0]}{agents}{text[2].partition('groups:')[2]}"
    assert look('store: "memory:"', text=text)[0] == 0


def test_keys_of_the_models_of_a_tree(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_SUCH_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    text = """\
lmos: deployment/v1
name: desk
tree: {{use: "examined_agents.py:tree"}}
groups:
  own: {{agents: [own]}}
  usual:
    agents: [usual]
    {more}
"""
    code, found = look(text=text)
    assert code == 1
    for name, variable in (("own", "NO_SUCH_KEY"), ("usual", "ANTHROPIC_API_KEY")):
        (secret,) = found[f"{name}: secret"]
        assert (secret["verdict"], secret["saw"]) == ("fail", f"env:{variable}: the variable is not set")
    monkeypatch.setenv("NO_SUCH_KEY", "k")
    code, found = look("env: {ANTHROPIC_API_KEY: k}", text=text)
    assert code == 0
    assert found["own: secret"][0]["verdict"] == "ok"
    assert "usual: secret" not in found, "the file has it"


def test_a_store_that_is_in_use(look: Look, project: Path) -> None:
    (project / "used").mkdir(exist_ok=True)
    (project / "used/weather.db").write_bytes(b"")
    with (project / "used/weather.db-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, found = look("store: sqlite:used/weather.db")
    assert code == 1
    assert "is in use by" in found["weather: store"][-1]["saw"]
    assert look("store: sqlite:used/weather.db")[0] == 0


@pytest.mark.parametrize(("free", "verdict"), [(1 << 20, "fail"), (100 << 20, "warn"), (1 << 30, "ok")])
def test_a_disk_that_is_full(look: Look, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert look("store: sqlite:weather.db")[1]["weather: store"][0]["verdict"] == verdict


@pytest.mark.parametrize(
    ("days", "verdict", "said"),
    [(0, "ok", ""), (-400, "warn", "400 days behind"), (5 * 365, "warn", "5 years ahead of every file")],
)
def test_a_clock_that_is_wrong(
    look: Look, monkeypatch: pytest.MonkeyPatch, days: int, verdict: str, said: str
) -> None:
    now = time.time() + days * 86_400.0
    monkeypatch.setattr(time, "time", lambda: now)
    finding = look()[1]["clock"][0]
    assert finding["verdict"] == verdict
    assert said in finding["saw"]


@pytest.mark.parametrize(
    ("old", "new", "name", "said"),
    [
        ("agents: [weather]", "agents: [wether]", "file", 'desk.yaml:7:14: no agent "wether"'),
        ("examined_agents.py:Weather", "falling_agents.py:Weather", "imports", "ZeroDivisionError"),
    ],
)
def test_a_file_that_is_wrong_is_a_finding(
    look: Look, project: Path, old: str, new: str, name: str, said: str
) -> None:
    (project / "falling_agents.py").write_text("1 / 0\n")
    code, found = look(text=FILE.replace(old, new))
    assert code == 1
    assert said in found[name][0]["saw"]
    assert found[name][0]["verdict"] == "fail"


def test_nothing_is_changed(look: Look, project: Path) -> None:
    before = sorted(os.listdir(project))
    look("store: sqlite:new/weather.db", "directory: new/directory.db", "listen: ws://127.0.0.1:0")
    assert sorted({*os.listdir(project), "desk.yaml"} - {"__pycache__"}) == sorted(
        {*before, "desk.yaml"} - {"__pycache__"}
    )


def test_many_processes_have_few_lines(look: Look) -> None:
    code, found = look("replicas: 1000", "store: sqlite:weather-$(replica).db", "listen: ws://127.0.0.1:0")
    stores = [finding["saw"] for finding in found["weather: store"]]
    assert code == 0
    assert len(stores) == 4
    assert stores[-1] == "and 997 more like these"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["desk.yaml", "--port", "80"], "--port: goes without a file"),
        (["--set", "a=b"], "--set: goes with a deployment file"),
    ],
)
def test_wrong_words(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *words])
    assert ended.value.code == 2
    assert said in capfd.readouterr().err
