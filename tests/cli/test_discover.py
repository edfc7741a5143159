"""`lmos-actors discover`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import About, Agent, NodeOptions, action, open_node_in_thread
from lmos_actors.cli import main as command_line

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(words: list[str]) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        command_line(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code


class Weather(Agent, about=About(capabilities=("weather", "forecast"))):
    """Answers questions about the weather."""

    @action
    def where(self) -> str:
        return "here"


class Painter(Agent, about=About(capabilities=("\x1b[2J".replace("\x1b", "é"),))):
    """Paints."""


@pytest.fixture(scope="module")
def rome() -> Iterator[str]:
    """The address of a node with two agents."""
    thread = open_node_in_thread(options=NodeOptions(listen="ws://127.0.0.1:0"))
    try:
        for agent in (Weather, Painter):
            thread.portal.start(agent)
        yield thread.node.urls[0].removeprefix("ws://")
    finally:
        thread.close()


def test_lines_of_json_where_the_output_is_no_terminal(rome: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discover", rome, "--capability", "weather"]) == 0
    out = capsys.readouterr().out
    [found] = [json.loads(line) for line in out.splitlines()]
    assert found == {
        "name": "weather",
        "title": "Weather",
        "id": f"http://{rome}/agents/weather",
        "url": f"http://{rome}/agents/weather",
        "types": ["lmos:Agent"],
        "capabilities": ["weather", "forecast"],
        "properties": [],
        "actions": ["where"],
        "events": [],
    }


def test_a_table_on_a_terminal(
    rome: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["discover", f"http://{rome}"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        f"weather  Weather  weather, forecast  http://{rome}/agents/weather",
        f"painter  Painter  é[2J               http://{rome}/agents/painter",
    ]


class Stranger(BaseHTTPRequestHandler):
    """A thing of others, whose title is one that a terminal would obey."""

    def do_GET(self) -> None:
        description = {
            "@context": "https://www.w3.org/2022/wot/td/v1.1",
            "id": "urn:stranger",
            "title": "\x1b[31mred\x07\n",
            "security": "none",
            "securityDefinitions": {"none": {"scheme": "nosec"}},
        }
        body = json.dumps(description).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/td+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_what_others_have_written_does_not_reach_the_terminal_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert main(["discover", f"http://127.0.0.1:{server.server_port}"]) == 0
        finally:
            server.shutdown()
            thread.join()
    (line,) = capsys.readouterr().out.splitlines()
    assert "\\x1b[31mred" in line
    assert line.isprintable()


def test_each_outcome_has_its_exit_code(rome: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discover", rome, "--title", "Tea"]) == 1
    assert capsys.readouterr() == ("", "lmos-actors: no such agent was found\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    assert main(["discover", nobody]) == 3
    assert f"cannot connect to http://{nobody}" in capsys.readouterr().err
    assert main(["discover", f"ws://{rome}"]) == 2
    assert "http or https URL" in capsys.readouterr().err
    assert main(["discover", rome, "--colour", "red"]) == 2
