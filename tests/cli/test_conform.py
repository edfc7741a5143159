"""The command `conform`: what it judges with, what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import re
import signal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from junitparser import JUnitXml

from lmos_actors.cli import main
from lmos_actors.cli.conform import _conform, _serve as _conform_serve
from lmos_actors.conformance import (
    CLIENT_CASES,
    RELAY_CLIENT_CASES,
    ClientOptions,
    Level,
    RelayClientOptions,
    Unreachable,
    Verdict,
    all_cases,
    card_text,
)
from lmos_actors.errors import ConfigError
from lmos_actors.transport import TcpNetwork
from tests.conformance.cards import HOSTILE, card, result
from tests.conformance.served_in_thread import near
from tests.scenario.project import Ran
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lmos_actors.conformance import Card, ConformOptions, Result
    from lmos_actors.transport import Endpoint

URL = "http://127.0.0.1:8080/things/lamp"
CASES = [case.id for case in all_cases()]
FAILED = result("read.value", Verdict.FAILED, f"no answer within 2 s {HOSTILE}")
RESULTS = (
    result("handshake.accept"),
    FAILED,
    result("read.timestamp", Verdict.TOLERATED, "a number"),
    result("write.value", Verdict.NOT_OFFERED, "no property is writable"),
)
KNOWN = tuple(
    attrs.evolve(all_cases()[0], id=id) for id in (*(each.id for each in RESULTS), "write.all", "streams.one")
)
"""The cases that there are, as the command has it: all those that results are made of, and more."""


class Server:
    """A server as the command sees it: how it was judged, and what comes of it."""

    def __init__(self) -> None:
        self.url = ""
        self.options: Any = None
        self.results: tuple[Result, ...] = RESULTS
        self.then: Callable[[], Any] | None = None

    async def conform(
        self, network: object, url: str, options: ConformOptions, *, on_result: Callable[[Result], None]
    ) -> Card:
        assert isinstance(network, TcpNetwork)
        self.url, self.options = url, options
        for each in self.results:
            on_result(each)
        if self.then is not None:
            self.then()
            await trio.sleep_forever()
        return card(*self.results, command="", subject=url)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made, real = Server(), _conform.chosen
    monkeypatch.setattr(_conform, "conform", made.conform)
    monkeypatch.setattr(
        _conform, "chosen", lambda patterns, kind: real(patterns, kind) if patterns else KNOWN
    )
    return made


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Call `conform` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(("conform", *words))
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


def test_a_card_is_printed_with_the_command_that_does_it_again(
    server: Server, call: Callable[..., Ran]
) -> None:
    words = ("--level", "spec", "--seed", "9", "--allow-unsafe", "--patience", "1500ms", "--thing", "urn:a b")
    ran = call(URL, *words, "--header", "X-Key: secret")
    assert (ran.code, ran.err) == (1, "")
    again = (
        f"lmos-actors conform {URL} --header 'X-Key:***'"
        " --level spec --allow-unsafe --seed 9 --patience 1500ms --thing 'urn:a b'"
    )
    *shown, alone = ran.out.splitlines(keepends=True)
    assert "".join(shown) == card_text(card(*RESULTS, command=again, subject=URL))
    assert alone == f"those that failed, alone: {again} --case read.value\n"
    assert "secret" not in ran.text
    assert server.url == URL
    assert server.options.level is Level.SPEC
    assert (server.options.seed, server.options.patience, server.options.allow_unsafe) == (9, 1.5, True)
    assert server.options.thing == "urn:a b"
    assert server.options.headers("ws://127.0.0.1:9/other") == ((b"X-Key", b"secret"),)
    assert server.options.headers("ws://elsewhere") == ()


def test_those_that_failed_are_tried_alone_whatever_was_chosen_before(
    server: Server, call: Callable[..., Ran]
) -> None:
    out = call(URL, "--case", "handshake.*", "--seed", "1").out
    assert f"again:     lmos-actors conform {URL} --case 'handshake.*' --seed 1\n" in out
    assert out.endswith(f"alone: lmos-actors conform {URL} --seed 1 --case read.value\n")


def test_nothing_failed(server: Server, call: Callable[..., Ran]) -> None:
    server.results = (RESULTS[0], RESULTS[2], RESULTS[3])
    ran = call(URL, "-v")
    assert ran.code == 0
    assert "   ok           handshake.accept" in ran.out
    assert "alone" not in ran.out


def test_credentials_go_to_their_place_alone(
    server: Server, call: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    ran = call(URL, "--bearer", "env:TOKEN")

    async def presented(url: str) -> Any:
        return server.options.headers(url)

    assert trio.run(presented, "ws://127.0.0.1:8080/lamp") == ((b"authorization", b"Bearer t0ken"),)
    assert trio.run(presented, "ws://127.0.0.1:8081/lamp") == ()
    assert f"conform {URL} --bearer env:TOKEN\n" in ran.out
    assert "t0ken" not in ran.text


def test_json_is_all_of_the_output(server: Server, call: Callable[..., Ran]) -> None:
    ran = call(URL, "--json")
    assert (ran.code, ran.err) == (1, "")
    data = json.loads(ran.out)
    assert data["exit_code"] == 1
    assert data["command"] == f"lmos-actors conform {URL}"
    assert [each["id"] for each in data["results"]] == [each.id for each in RESULTS]
    assert data["results"][1]["seen"] == FAILED.seen
    assert call("--json", "--", URL).code == 1


OLD = '{"schema": "lmos-actors/conformance/v1"}'
"""An older card, which may be written over."""


def test_files_are_written_beside_the_text(server: Server, call: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "card.html").write_text(OLD + "old " * 50_000)
    ran = call(URL, "--json", "out/card.json", "--junit", "out/card.xml", "--html", "card.html")
    assert ran.code == 1
    assert ran.out.startswith(" handshake")
    assert json.loads((tmp_path / "out/card.json").read_text())["exit_code"] == 1
    assert JUnitXml.fromfile(str(tmp_path / "out/card.xml")).failures == 1
    page = (tmp_path / "card.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "give the URL of a server, or --list"),
    (("--json", URL), f"--json: was given {URL}: write the URL before it"),
    ((URL, "--case", "handshake.acept"), "--case: no case is called 'handshake.acept'"),
    ((URL, "--patience", "0s"), "--patience: must be more than 0s"),
    ((URL, "--within", "0s"), "--within: must be more than 0s"),
    ((URL, "--level", "strict"), "strict"),
    ((URL, "--hints", "none.yaml"), "none.yaml: no such file"),
    ((URL, "--junit", "card", "--html", "card"), "card: cannot be written by both --junit and --html"),
    ((URL, "--junit", "."), ".: cannot be written: Is a directory"),
    (("lamp.json", "--json", "lamp.json"), "lamp.json: is read: --json would write over it"),
    (("127.0.0.1:8080",), 'did you mean "http://127.0.0.1:8080"?'),
    ((URL, "--header", "oops"), '--header: "oops" is not NAME:VALUE'),
]


@pytest.mark.parametrize(
    ("words", "said"), WRONG, ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_a_wrong_usage_says_what_to_do(
    words: tuple[str, ...], said: str, server: Server, call: Callable[..., Ran], tmp_path: Path
) -> None:
    (tmp_path / "lamp.json").write_text("{}")
    ran = call(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert server.url == ""
    assert (tmp_path / "lamp.json").read_text() == "{}"


def test_what_is_not_reached(
    call: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def conform(*_: object, **__: object) -> None:
        raise Unreachable(URL, "nothing \x1b[2J is there")

    monkeypatch.setattr(_conform, "conform", conform)
    (tmp_path / "card.json").write_text(OLD)
    ran = call(URL, "--json", "card.json")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"lmos-actors: {URL}: nothing \\x1b[2J is there\n"
    assert (tmp_path / "card.json").read_text() == OLD
    ran = call(URL, "--json")
    assert ran.code == 3
    assert json.loads(ran.out)["error"] == {"url": URL, "message": "nothing \x1b[2J is there"}


def test_what_a_server_calls_its_things_is_not_obeyed(
    call: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def conform(*_: object, **__: object) -> None:
        raise ConfigError("there are: urn:a\x1b[2J", URL)

    monkeypatch.setattr(_conform, "conform", conform)
    ran = call(URL)
    assert ran.code == 2
    assert ran.err.startswith(f"lmos-actors: {URL}: there are: urn:a\\x1b[2J\n")


def test_a_time_limit_leaves_what_has_been_tried(
    server: Server, call: Callable[..., Ran], tmp_path: Path
) -> None:
    server.then = lambda: None
    ran = call(URL, "--within", "10ms", "--junit", "card.xml")
    assert ran.code == 124
    assert ran.out.startswith(" handshake  1 passed\n read       1 tolerated, 1 FAILED\n")
    assert "\n write      1 not offered\n" in ran.out
    said = "lmos-actors: time limit: 0.01s have passed; 2 of 6 cases were not tried\n"
    assert ran.err == f"{said}wrote card.xml\n"
    card = JUnitXml.fromfile(str(tmp_path / "card.xml"))
    assert (card.tests, card.errors) == (6 + 1, 1)
    assert "\ntime limit, 4 of 6 cases tried, exit code 124\n" in ran.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_what_has_been_tried(
    number: signal.Signals, server: Server, call: Callable[..., Ran], tmp_path: Path
) -> None:
    server.then = lambda: signal.raise_signal(number)
    ran = call(URL, "--json", "--html", "card.html", "--junit", "card.xml")
    assert ran.code == (130 if number is signal.SIGINT else 143)
    data = json.loads(ran.out)
    assert data["exit_code"] == ran.code
    assert data["cut"] == f"interrupted ({number.name}), 4 of 6 cases tried, exit code {ran.code}"
    assert len(data["results"]) == 6
    assert data["counts"]["not run"] == 2
    assert data["results"][-1]["seen"] == f"not tried: interrupted ({number.name})"
    said = ["lmos-actors: interrupted; 2 of 6 cases were not tried", "wrote card.xml", "wrote card.html"]
    assert sorted(ran.err.splitlines()) == sorted(said)
    assert data["cut"] in (tmp_path / "card.html").read_text()
    card = JUnitXml.fromfile(str(tmp_path / "card.xml"))
    assert (card.tests, card.errors, card.skipped) == (7, 1, 3)


def test_a_mistake_of_the_kit_is_no_verdict(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("of the kit")

    server.then = fail
    with pytest.raises(SystemExit) as ended:
        main(("conform", URL))
    assert ended.value.code == 3
    assert "ZeroDivisionError: of the kit" in capfd.readouterr().err


def test_cases_are_listed_without_a_server(call: Callable[..., Ran]) -> None:
    ran = call("--list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == CASES
    listed = json.loads(call("--list", "--case", "handshake.*", "--json").out)["cases"]
    assert [each["id"] for each in listed] == [each for each in CASES if each.startswith("handshake.")]
    assert set(listed[0]) == {"id", "group", "title", "section", "expected", "needs", "unsafe"}


def test_the_cases_of_examples_are_there(call: Callable[..., Ran]) -> None:
    pages = [*sorted((ROOT / "docs").rglob("*conform*.md")), ROOT / "docs/reference/command-line.md"]
    texts = [call("--help").out, *(page.read_text(encoding="utf-8") for page in pages)]
    named = [
        each
        for text in texts
        for each in re.findall(r"(?:--case |lmos::|such as \W*)\"?([a-z]+\.[a-z*-]+)", text)
    ]
    assert len(named) >= 8
    for pattern in named:
        assert [id for id in CASES if fnmatchcase(id, pattern)], pattern


def test_a_real_server_is_judged(call: Callable[..., Ran]) -> None:
    with near() as url:
        ran = call(url, "--case", "handshake.*", "--level", "spec")
    assert ran.code == 0, ran.text
    assert f"judged:    server {url}, Conformance thing\n" in ran.out


# --- clients


class Clients:
    """What comes of clients, as the command sees it."""

    def __init__(self) -> None:
        self.url = ""
        self.options: Any = None
        self.verdicts = [Verdict.PASSED, Verdict.NOT_RUN]
        self.then: Callable[[], Any] = lambda: None
        self.leave = True

    async def judge(
        self, network: object, endpoint: Endpoint, options: Any, *, stop: trio.Event, announce: Any
    ) -> Card:
        assert isinstance(network, TcpNetwork)
        self.url, self.options = endpoint.url.rstrip("/"), options
        announce("http://127.0.0.1:8080/agents/conformance")
        self.then()
        if not self.leave:
            await stop.wait()
        results = [result(f"client.{n}", verdict, "so") for n, verdict in enumerate(self.verdicts)]
        return card(*results, role="client", subject="clients", command="")


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    made = Clients()
    monkeypatch.setattr(_conform_serve, "judge_clients", made.judge)
    return made


def test_clients_are_judged(clients: Clients, call: Callable[..., Ran], tmp_path: Path) -> None:
    words = ("--level", "spec", "--seed", "3", "--patience", "1s", "--junit", "card.xml")
    ran = call("--serve", "--once", *words)
    assert (ran.code, ran.err) == (0, "wrote card.xml\n")
    said = "judging clients of http://127.0.0.1:8080/agents/conformance; ends when the clients that came"
    said += " have left"
    again = "lmos-actors conform --serve 127.0.0.1:8080 --once --level spec --seed 3 --patience 1s"
    assert ran.out.startswith(f"{said}\n client  1 passed, 1 not run\n   not run      client.1: so\n")
    assert ran.out.endswith(
        f"\njudged:    clients, Lamp\nspoken to: as written\nlevel:     lenient, seed 7\nagain:     {again}\n"
    )
    assert clients.url == "ws://127.0.0.1:8080"
    assert clients.options == ClientOptions(level=Level.SPEC, patience=1.0, seed=3, once=True)
    assert JUnitXml.fromfile(str(tmp_path / "card.xml")).tests == 2


def test_clients_of_relays_are_judged(clients: Clients, call: Callable[..., Ran]) -> None:
    ran = call("--serve", "9000", "--relay", "--level", "rawk")
    assert ran.code == 0
    assert ran.out.endswith("again:     lmos-actors conform --serve 9000 --level rawk --relay\n")
    assert clients.options == RelayClientOptions(level=Level.RAWK)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("9000", "ws://127.0.0.1:9000"),
        ("0.0.0.0:9000", "ws://0.0.0.0:9000"),
        ("ws://[::1]:9000", "ws://[::1]:9000"),
    ],
)
def test_where_clients_come(given: str, url: str, clients: Clients, call: Callable[..., Ran]) -> None:
    assert call("--serve", given).code == 0
    assert clients.url == url


def test_how_clients_end(clients: Clients, call: Callable[..., Ran]) -> None:
    clients.verdicts = [Verdict.FAILED]
    assert call("--serve").code == 1
    clients.leave = False
    assert call("--serve", "--within", "10ms").code == 1, "that is how long it is served"
    ran = call("--serve", "--once", "--within", "10ms", "--json")
    assert (ran.code, json.loads(ran.out)["exit_code"]) == (124, 124)
    assert "time limit: the clients that came have not left" in ran.err
    for number in (signal.SIGINT, signal.SIGTERM):
        clients.then = lambda number=number: signal.raise_signal(number)
        assert call("--serve").code == 1, "that is how it is meant to end"
        assert call("--serve", "--once").code == (130 if number is signal.SIGINT else 143)
    clients.verdicts = [Verdict.NOT_RUN]
    ran = call("--serve")
    assert (ran.code, ran.err) == (3, "lmos-actors: no client has come\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((URL, "--serve"), "--serve: judges clients: it takes no URL of a server"),
        ((URL, "--once"), "--once: goes with --serve"),
        (("--serve", "--case", "client.read"), "--case: goes with the URL of a server, not with --serve"),
        (("--serve", "--bearer", "env:X"), "--bearer: goes with the URL of a server, not with --serve"),
        (("--serve", "--patience", "0s"), "--patience: must be more than 0s"),
        (("--serve", "wss://127.0.0.1:9000"), "--serve: clients are judged without TLS"),
        (("--serve", "127.0.0.1:x"), "--serve: '127.0.0.1:x' is not HOST:PORT"),
        (
            ("--serve", "--level", "rawk"),
            '--level: "rawk" is a level for relays; clients of LMOS are judged by',
        ),
        (
            ("--serve", "--relay", "--level", "kotlin-wot"),
            '--level: "kotlin-wot" is a level for LMOS; clients',
        ),
        (
            ("--serve", "--relay", "--register-url", "http://h/r"),
            "--register-url: goes with the URL of a server",
        ),
        (("--serve", "--omnia"), "--omnia: goes with the URL of a server, not with --serve"),
    ],
    ids=lambda value: " ".join(value) if type(value) is tuple else "",
)
def test_a_wrong_usage_of_serve(
    words: tuple[str, ...], said: str, clients: Clients, call: Callable[..., Ran]
) -> None:
    ran = call(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert clients.options is None


def test_an_address_that_is_taken(call: Callable[..., Ran]) -> None:
    with near() as url:
        ran = call("--serve", url.removeprefix("http://"))
    assert (ran.code, ran.out) == (3, "")
    assert "cannot listen at" in ran.err


def test_cases_of_clients_are_listed(call: Callable[..., Ran]) -> None:
    for cases, words in ((CLIENT_CASES, ()), (RELAY_CLIENT_CASES, ("--relay",))):
        ids = [case.id for case in cases]
        assert [line.split()[0] for line in call("--list", "--serve", *words).out.splitlines()] == ids
        listed = json.loads(call("--list", "--json", "--serve", *words).out)["cases"]
        assert [each["id"] for each in listed] == ids
