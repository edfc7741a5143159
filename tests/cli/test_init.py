"""`init`: what it writes validates, runs and passes its own tests, as it is."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.cli import main
from lmos_actors.facades import TextChunk, open_chat
from tests.commands import called, started, surroundings
from tests.llm.provider_server import Reply, Tool, open_provider
from tests.matrix import few_or_all
from tests.scenario.project import Ran
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.llm.provider_server import Received

TEMPLATES = sorted(path.name for path in (ROOT / "lmos_actors/cli/templates").iterdir() if path.is_dir())


PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


def ours(folder: Path, *words: str, timeout: float = 50) -> Ran:
    ended = called(words, folder, timeout=timeout)
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def python(folder: Path, *words: str) -> Ran:
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_is_right_as_it_is(tmp_path: Path, call: Callable[..., Ran], template: str) -> None:
    written = call("init", "My Agents", "--template", template)
    assert (written.code, written.out) == (0, "")
    assert f"next: cd 'My Agents' && lmos-actors run scenarios/{template}.yaml" in written.err
    folder = tmp_path / "My Agents"
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "my-agents"
    # without this pip does not know which of the folders is a package
    assert settings["tool"]["setuptools"]["packages"] == ["agents"]
    texts = [file.read_text() for file in folder.rglob("*") if file.is_file()]
    assert [text for text in texts if "@NAME@" in text] == []
    file = f"scenarios/{template}.yaml"
    validated = ours(folder, "validate", file)
    assert (validated.code, validated.err) == (0, "")
    ran = ours(folder, "run", file, "--json")
    assert ran.code == 0, ran.text
    (result,) = json.loads(ran.out)["files"]
    assert all(again["equal"] for again in result["determinism"])
    assert result["passed"] == len(result["runs"]) > 1
    assert all(run["checks_passed"] == run["checks"] > 0 for run in result["runs"])
    rest = few_or_all(("-k", "not a_simulation and not a_story"), ())  # what has just been run
    tested = python(folder, *PYTEST, "-W", "error", *rest)
    assert tested.code == 0, tested.text
    schema = json.loads((folder / ".lmos/schema.json").read_text())
    assert "$schema" in schema


@pytest.mark.parametrize(
    ("template", "file", "old", "new"),
    [
        ("weather", "weather.py", "self.asked.emit(city)", "pass"),
        ("gossip", "gossip.py", "self.text, self.knows = text, True", "self.text = text"),
        ("deploy", "desk.py", "CounterAgent(Agent, durable=True)", "CounterAgent(Agent)"),
        ("assistant", "assistant.py", "tools = (Calendar, duration)", "tools = (duration,)"),
        ("assistant", "assistant.py", "if hour in self.appointments:", "if False:"),
        ("assistant", "assistant.py", "self.booked.emit(title)", "pass"),
    ],
)  # fmt: skip
def test_its_story_notices_when_an_agent_is_broken(
    tmp_path: Path, call: Callable[..., Ran], template: str, file: str, old: str, new: str
) -> None:
    assert call("init", "broken", "--template", template).code == 0
    agents = tmp_path / f"broken/agents/{file}"
    text = agents.read_text()
    assert text.count(old) == 1
    agents.write_text(text.replace(old, new))
    words = ("run", f"scenarios/{template}.yaml", "--check-determinism", "off", "--seed", "1")
    assert ours(tmp_path / "broken", *words).code == 1


ENVIRONMENT = ["python3 -m venv .venv", ". .venv/bin/activate", "pip install -e '.[dev]'"]
"""What the README begins with: what comes after it is installed by it."""


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_readme_begins_with_an_environment_that_has_what_it_uses(
    tmp_path: Path, call: Callable[..., Ran], template: str
) -> None:
    folder = tmp_path / "fresh"
    assert call("init", "fresh", "--template", template).code == 0
    words = {command.split()[0] for command in commands(folder)[len(ENVIRONMENT) :]}
    assert commands(folder)[: len(ENVIRONMENT)] == ENVIRONMENT
    assert words <= {"lmos-actors", "pytest", "curl"}
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["lmos-actors[llm]" if template == "assistant" else "lmos-actors"]
    assert "pytest>=9" in project["optional-dependencies"]["dev"]
    assert ".venv/" in (folder / ".gitignore").read_text().splitlines()


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_commands_of_the_readme_run(tmp_path: Path, call: Callable[..., Ran], template: str) -> None:
    """In the order in which they stand there; `serve` goes on while the others ask it."""
    folder = tmp_path / "fresh"
    assert call("init", "fresh", "--template", template).code == 0
    with ExitStack() as stack:
        url = ""
        if template == "deploy":
            url = at_free_ports(folder / "desk.yaml")
            stack.callback(ours, folder, "down", "desk.yaml")
        for command in commands(folder)[len(ENVIRONMENT) :]:
            name, *words = shlex.split(command.replace("http://127.0.0.1:8080", url or "http://nowhere"))
            if name == "pytest":
                ran = python(folder, *PYTEST)
            elif name == "curl":
                assert words[:2] == ["-X", "POST"]
                request = urllib.request.Request(words[2], data=b"", method="POST")
                with urllib.request.urlopen(request, timeout=30) as answer:
                    ran = Ran(0 if answer.status == 200 else 1, answer.read().decode(), "")
            elif words[0] == "serve":
                url = stack.enter_context(served(folder, words))
                continue
            else:
                ran = ours(folder, *words, timeout=250)
            assert ran.code == 0, f"{command}: {ran.text}"


def at_free_ports(file: Path) -> str:
    """Have the groups of a deployment listen at ports that are free; return the URL of the one at 8080."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = {"7100": first.getsockname()[1], "8080": second.getsockname()[1]}
    text = file.read_text()
    for shown, port in ports.items():
        text = text.replace(f"ws://127.0.0.1:{shown}", f"ws://127.0.0.1:{port}")
    file.write_text(text)
    return f"http://127.0.0.1:{ports['8080']}"


def commands(folder: Path) -> list[str]:
    """The commands of a README, each on an indented line."""
    lines = (folder / "README.md").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


@contextmanager
def served(folder: Path, words: list[str]) -> Iterator[str]:
    """Run `serve` at a free port, and give the URL of the server."""
    with started((*words, "--listen", "ws://127.0.0.1:0"), folder) as process:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            said = json.loads(line)
            if said["event"] == "listening":
                url = said["url"].removesuffix("/ws").replace("ws://", "http://")
            if said["event"] == "ready":
                break
        yield url
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_the_recording_of_a_model_is_made_anew_and_a_miss_says_what_differs(
    tmp_path: Path, call: Callable[..., Ran]
) -> None:
    assert call("init", "fresh", "--template", "assistant").code == 0
    folder = tmp_path / "fresh"
    agents = folder / "agents/assistant.py"
    was, now = "Return the hours that are free.", "Return the free hours."
    agents.write_text(agents.read_text().replace(was, now))
    once = ("run", "scenarios/recorded.yaml", "--check-determinism", "off")
    missed = ours(folder, *once)
    assert missed.code == 1
    differs = f'at $.tools[free_hours].description recorded is "{was}", and asked was "{now}"'
    assert differs in missed.out
    assert ours(folder, *once, "--update-recordings").code == 0
    assert ours(folder, *once).code == 0


KEY = "sk-0123456789"


async def asked(folder: Path, *words: str, **environment: str) -> Ran:
    """Call a command of a project that passes, while a provider of this process answers."""
    given = {**surroundings(), **environment}
    ended = await trio.to_thread.run_sync(partial(called, words, folder, timeout=100, environment=given))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def reply(received: Received) -> Reply:
    """Ask for the tool, and say what it returns; of poems there is no end."""
    messages = received.body["messages"]
    if "poem" in str(messages[1]["content"]):
        return Reply(text=("La ",), fault="endless", wait=0.01)
    if messages[-1]["role"] == "tool":
        return Reply(text=("You are free: ", messages[-1]["content"]))
    return Reply(text=(), tools=(Tool("free_hours"),))


@pytest.mark.slow
async def test_a_live_model_of_a_project_is_recorded(tmp_path: Path, call: Callable[..., Ran]) -> None:
    assert call("init", "live", "--template", "assistant").code == 0
    folder = tmp_path / "live"
    file = folder / "scenarios/recorded.yaml"
    file.write_text(file.read_text().replace("agents.assistant:demo", "agents.assistant:tree"))
    run = ("run", "scenarios/recorded.yaml", "--check-determinism", "off")
    async with open_provider(reply) as server:
        agents = folder / "agents/assistant.py"
        live = f'key="env:OPENAI_API_KEY", url="{server.openai_url}"'
        agents.write_text(agents.read_text().replace('key="env:OPENAI_API_KEY"', live))
        await asked(folder, *run, "--update-recordings", OPENAI_API_KEY=KEY)
        assert len(server.requests) == 2
    assert KEY not in (folder / "scenarios/model.jsonl").read_text()
    await asked(folder, *run)


def test_the_key_of_a_deployed_model_is_looked_for(tmp_path: Path, call: Callable[..., Ran]) -> None:
    assert call("init", "office", "--template", "assistant").code == 0
    folder = tmp_path / "office"
    at_free_ports(folder / "office.yaml")

    def looked(*words: str, **key: str) -> str:
        environment = {name: value for name, value in surroundings().items() if name != "OPENAI_API_KEY"}
        return called((*words, "office.yaml"), folder, timeout=50, environment={**environment, **key}).stdout

    text = (folder / "office.yaml").read_text()
    for written in (text, text.replace(", key: env:OPENAI_API_KEY", "")):  # it is the default, too
        (folder / "office.yaml").write_text(written)
        assert "fail  models: secret" in (missing := looked("doctor"))
        assert "env:OPENAI_API_KEY: the variable is not set" in missing
    assert "ok    models: secret" in looked("doctor", OPENAI_API_KEY=KEY)
    exported = looked("export", "systemd", OPENAI_API_KEY=KEY)
    assert '"models" needs OPENAI_API_KEY' in exported
    assert KEY not in exported


@pytest.mark.slow
async def test_a_model_in_a_process_of_its_own(tmp_path: Path, call: Callable[..., Ran]) -> None:
    """The office asks it over the network, and a caller that leaves ends the request at the provider."""
    assert call("init", "office", "--template", "assistant").code == 0
    folder, file = tmp_path / "office", tmp_path / "office/office.yaml"
    url = at_free_ports(file)
    async with open_provider(reply) as server:
        text = file.read_text()
        file.write_text(text.replace("gpt-5-mini,", f'gpt-5-mini, url: "{server.openai_url}",'))
        try:
            await asked(folder, "up", "office.yaml", "--detach", OPENAI_API_KEY=KEY)
            async with open_chat(f"{url}/agents/assistant") as chat:
                assert "16" in (await chat.say("When am I free?")).text
            async with (
                open_chat(f"{url}/agents/assistant") as chat,
                chat.stream("A poem, please.") as items,
            ):
                async for item in items:
                    if isinstance(item, TextChunk):
                        break
            with trio.fail_after(30):
                await server.client_left()
        finally:
            with trio.CancelScope(shield=True):
                await asked(folder, "down", "office.yaml")
    assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {KEY}"}


def test_the_code_of_templates_is_in_order(tmp_path: Path, call: Callable[..., Ran]) -> None:
    for template in TEMPLATES:
        assert call("init", template, "--template", template).code == 0
    rules = ["--select", "E,F,I,B,UP,SIM,RUF", "--config", "line-length=110"]
    known = ["--config", "lint.isort.known-first-party=['agents', 'lmos_actors']"]
    ruff = python(tmp_path, "-m", "ruff", "check", "--isolated", *rules, *known, ".")
    assert ruff.code == 0, ruff.text


def test_nothing_is_written_over(tmp_path: Path, call: Callable[..., Ran]) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    refused = call("init")
    assert (refused.code, refused.out) == (2, "")
    assert ".: has README.md already; init overwrites nothing" in refused.err
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
    (tmp_path / "README.md").unlink()
    (tmp_path / "notes.txt").write_text("mine\n")
    assert call("init").code == 0
    again = call("init")
    assert again.code == 2
    assert "more already" in again.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--template", "wether"],
            'no template "wether", did you mean "weather"?',
        ),
        (["--template", "bridge"], '"bridge" is not available yet'),
        (["a", "b"], "b"),
        (["file"], "file: is not a folder"),
        (["file/below"], "cannot be written"),
    ],
)
def test_wrong_words(tmp_path: Path, call: Callable[..., Ran], words: list[str], said: str) -> None:
    (tmp_path / "file").write_text("")
    ran = call("init", *words)
    assert ran.code == 2
    assert said in ran.err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_wheel_has_the_templates() -> None:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["lmos_actors"]
    for template in TEMPLATES:
        files = [
            file for file in (ROOT / f"lmos_actors/cli/templates/{template}").rglob("*") if file.is_file()
        ]
        assert len(files) > 5
        assert all(file.suffix == ".txt" for file in files)
