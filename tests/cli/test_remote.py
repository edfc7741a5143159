"""The commands that talk to agents which run: what they print, and their exit codes."""

from __future__ import annotations

import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from lmos_actors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    LmosActorsError,
    MailboxFull,
    OutcomeUnknown,
)
from lmos_actors.cli import main
from lmos_actors.cli._answers import AnswerPrinter
from lmos_actors.cli.remote._requests import ActionCall
from lmos_actors.cli.remote._session import GRACE, RemoteSession, code_of, open_thing as OPENED
from lmos_actors.errors import ConnectFailed
from tests.cli import served_agent
from tests.cli.served_agent import Weather, open_far
from tests.networks import default_network

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://127.0.0.1:8080/agents/weather"


@attrs.frozen
class Ran:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.out.splitlines()]
        return [{k: v for k, v in line.items() if k != "at"} for line in found]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Call the command in this process, with an agent that is near; `background` runs beside it."""
    run = trio.run
    monkeypatch.setattr(
        trio, "run", lambda *args, **kw: run(*args, clock=MockClock(autojump_threshold=0), **kw)
    )
    served_agent.SAID.clear()

    def call(verb: str, *words: str, background: Any = None, url: str = URL) -> Ran:
        opened = partial(open_far, opened=OPENED, background=background)
        monkeypatch.setattr("lmos_actors.cli.remote._session.open_thing", opened)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([verb, url, *words])
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


Call = "Callable[..., Ran]"


def test_a_call(call: Call) -> None:
    ran = call("call", "forecast", '{"city": "Bonn"}')
    assert (ran.code, ran.lines) == (0, [{"action": "forecast", "output": "Bonn is sunny for 1"}])
    assert ran.err.splitlines()[0] == "forecast: 0.1"


def test_pairs_are_read_as_the_description_says(call: Call) -> None:
    assert call("call", "forecast", "city=7", "days=3", "--raw", "-q") == Ran(0, "7 is sunny for 3\n", "")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["speak", "hello"], "HELLO"),
        (["speak", '"hello"'], "HELLO"),
        (["echo", "value=[1, null]"], "[1, null]"),
        (["echo", "value=ü\n"], "ü\n"),
        (["change", "kelvin"], None),
        (["echo", "value=null"], "null"),
    ],
)
def test_raw_values(call: Call, words: list[str], out: str | None) -> None:
    if out is None:
        ran = call("call", *words, "--raw")
        assert ran.code == 2
        assert "not JSON" in ran.err
    else:
        assert call("call", *words, "--raw") == Ran(0, f"{out}\n", "")


def test_a_stream_is_printed_item_by_item(call: Call) -> None:
    ran = call("call", "hours", "count=3")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [{"action": "hours", "output": {"hour": hour}} for hour in range(3)]


def test_an_action_that_fails(call: Call) -> None:
    ran = call("call", "refuse")
    error = {"type": "ActionFailed", "message": '{"until": 7, "why": "closed"}',
             "output": {"why": "closed", "until": 7}}  # fmt: skip
    assert (ran.code, ran.lines) == (1, [{"action": "refuse", "error": error}])
    assert ran.err == 'lmos-actors: the action failed: {"why": "closed", "until": 7}\n'
    assert call("call", "refuse", "--raw") == Ran(1, "", ran.err)


def test_an_agent_that_dies(call: Call) -> None:
    ran = call("call", "crash", "--raw")
    assert ran.code == 1
    assert "died (KeyError: 'a bug'), request had begun" in ran.err


def test_a_time_limit_cancels_the_action(call: Call) -> None:
    ran = call("call", "forecast", "city=Bonn", "--within", "3.5s", "-q")
    assert ran.code == 124
    assert served_agent.SAID == ["asked for Bonn", "cancelled"]


def test_the_agent_gets_the_remaining_time(call: Call) -> None:
    assert call("call", "left", "--raw").out == "null\n"
    assert float(call("call", "left", "--within", "30s", "--raw").out) == 30 + GRACE


def interrupting(*seconds: float) -> Any:
    async def interrupt(weather: Any, node: Any) -> None:
        for each in seconds:
            await trio.sleep(each)
            signal.raise_signal(signal.SIGINT)

    return interrupt


def test_an_interrupt_cancels_the_action(call: Call) -> None:
    ran = call("call", "forecast", "city=Bonn", background=interrupting(2.5))
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[-1] == "interrupted: forecast: cancelled"
    assert served_agent.SAID == ["asked for Bonn", "cancelled"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_agent_that_takes_long_to_stop_is_not_waited_for(call: Call) -> None:
    ran = call("call", "stubborn", background=interrupting(2.5))
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted: stubborn: cancelled\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ActionFailed(), 1),
        (AgentDied("KeyError", started=True), 1),
        (MailboxFull("weather", 8), 1),
        (AgentUnavailable("weather"), 3),
        (OutcomeUnknown("weather"), 3),
        (ConnectFailed("ws://x", "refused"), 3),
        (DeadlineExceeded("weather", 1.0), 124),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_error_has_a_code(error: LmosActorsError, code: int) -> None:
    assert code_of(error) == code


class Deaf:
    """A call whose agent does not answer a cancel."""

    async def cancel(self, reason: str) -> None:
        await trio.sleep_forever()


async def test_who_does_not_answer_a_cancel_is_not_waited_for_long(
    autojump_clock: MockClock, capfd: pytest.CaptureFixture[str]
) -> None:
    with trio.CancelScope() as ended:
        ended.cancel()
        session = RemoteSession(AnswerPrinter())
        session.interrupt.number = signal.SIGINT
        await ActionCall("ask", None)._cancel(session, Deaf())
    assert trio.current_time() == pytest.approx(2.0)
    assert capfd.readouterr().err == "interrupted: ask: its outcome is unknown\n"


def test_a_stream_is_interrupted(call: Call) -> None:
    ran = call("call", "hours", "count=30", background=interrupting(2.5))
    assert (ran.code, len(ran.lines)) == (130, 2)


def test_read_prints_the_properties_that_are_named_or_all(call: Call) -> None:
    place = {"lat": 50.7, "lon": 7.1}
    assert call("read", "units").lines == [{"property": "units", "value": "celsius"}]
    assert call("read", "units", "--raw") == Ran(0, "celsius\n", "")
    both = call("read", "place", "level")
    assert both.lines == [{"property": "place", "value": place}, {"property": "level", "value": 3}]
    assert [line["property"] for line in call("read").lines] == ["units", "level", "place"]


@pytest.mark.parametrize("names", [["units", "secret"], ["secret", "units"]], ids=" ".join)
def test_one_of_several_that_cannot_be_read(call: Call, names: list[str]) -> None:
    ran = call("read", *names)
    assert (ran.code, [line["property"] for line in ran.lines]) == (1, names)
    assert [line["error"]["type"] for line in ran.lines if "error" in line] == ["NotAllowed"]


def test_write_sets_the_properties_that_are_named(call: Call) -> None:
    assert call("write", "units", "kelvin") == Ran(0, '{"property": "units", "value": "kelvin"}\n', "")
    assert call("write", "level", "-3").lines == [{"property": "level", "value": -3}]
    refused = call("write", "place", '{"lat": 1.5, "lon": 2.5}')
    assert refused.code == 1
    assert refused.lines[0]["error"]["type"] == "NotAllowed"
    invalid = call("write", "level", "1.5")
    assert (invalid.code, invalid.lines[0]["error"]["type"]) == (1, "InvalidInput")
    assert call("write", "level", "high").err.startswith("lmos-actors: VALUE: not JSON, column 1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "forcast"], "no action 'forcast' on Weather, did you mean 'forecast'?"),
        (["read", "unit"], "no property 'unit' on Weather, did you mean 'units'?"),
        (["read", "units", "x"], "no property 'x' on Weather; there is units, level, place, secret"),
        (["write", "unit", "x"], "no property 'unit' on Weather, did you mean 'units'?"),
        (["observe", "levels"], "no property 'levels' on Weather, did you mean 'level'?"),
        (["listen", "aksed"], "no event 'aksed' on Weather, did you mean 'asked'?"),
        (["call", "forecast", "--wihtin", "3s"], 'no option "--wihtin", did you mean "--within"?'),
        (["call", "forecast", "--within", "0s"], "--within: must be more than 0s"),
        (["listen", "--count", "0"], "--count: must be at least 1"),
        (["read", "--header", "a b: c"], '--header: "a b: c" is not NAME:VALUE'),
        (["read", "--header", "a: c\r\nd: e"], "--header: the value of a must be printable ASCII"),
        (["read", "--header", "a:b", "--header", "A: c"], "--header: A is given twice"),
        (
            ["call", "forecast", "--request-key", "a b"],
            "--request-key: a key has visible ASCII characters alone, and no blanks, not 'a b'",
        ),
        (
            ["call", "forecast", "--request-key", "a", "--many"],
            "--request-key: streams cannot be repeated from a kept answer: leave out --many",
        ),
        (
            ["call", "hours", "--request-key", "a"],
            "--request-key: hours has streams, which cannot be repeated from a kept answer",
        ),
        (["read", "--raw", "--json"], "--raw: give --json or --raw, not both"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_refused_with_the_way_out(call: Call, words: list[str], said: str) -> None:
    ran = call(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"lmos-actors: {said}\nlmos-actors {words[0]} --help explains the command\n"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("weather.td.json", "weather.td.json: there is no such file"),
        ("localhost:8080/agents/weather", 'did you mean "http://localhost:8080/agents/weather"?'),
        ("weather", '"weather" is no URL, such as http://127.0.0.1:8080/agents/weather, and no file\n'),
    ],
)
def test_no_url(call: Call, url: str, said: str) -> None:
    ran = call("read", url=url)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


async def changing(weather: Any, node: Any) -> None:
    await trio.sleep(1)
    await weather.write(Weather.units, "kelvin")
    await trio.sleep(1)
    with pytest.raises(Exception, match="died"):
        await weather.invoke(Weather.crash)


def test_observing_goes_on_over_a_crash(call: Call) -> None:
    ran = call("observe", "units", "--count", "3", background=changing)
    assert ran.code == 0
    assert ran.lines == [
        {"property": "units", "value": "celsius"},
        {"property": "units", "value": "kelvin"},
        {"property": "units", "gap": "KeyError: 'a bug'", "missed": None},
        {"property": "units", "value": "celsius"},
    ]
    assert ran.err == "gap: KeyError: 'a bug', some may be missing\n"


async def warning(weather: Any, node: Any) -> None:
    await trio.sleep(1)
    await weather.tell(Weather.warn, 5)


def test_of_several_that_come_at_once_no_more_are_printed_than_were_asked_for(call: Call) -> None:
    ran = call("listen", "warned", "--count", "3", background=warning)
    assert (ran.code, [line["data"]["level"] for line in ran.lines]) == (0, [0, 1, 2])


async def breaking(weather: Any, node: Any) -> None:
    await trio.sleep(1)
    host, _, port = node.urls[0].partition("://")[2].partition(":")
    network: Any = default_network()
    network.sever(host, int(port))
    await weather.write(Weather.units, "kelvin")
    await trio.sleep(60)
    await weather.tell(Weather.forecast, "Bonn")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["observe", "units", "--count", "2"],
            [
                {"property": "units", "value": "celsius"},
                {"property": "units", "gap": "connection lost", "missed": None},
                {"property": "units", "value": "kelvin"},
            ],
        ),
        (
            ["listen", "asked", "--count", "1"],
            [
                {"event": "asked", "gap": "connection lost", "missed": None},
                {"event": "asked", "data": "Bonn"},
            ],
        ),
        (
            ["listen", "--count", "1"],
            [{"event": None, "gap": "connection lost", "missed": None}, {"event": "asked", "data": "Bonn"}],
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value[0], str) else "",
)
def test_listening_goes_on_over_a_break_of_the_connection(
    call: Call, words: list[str], lines: list[dict[str, Any]]
) -> None:
    ran = call(*words, background=breaking)
    assert (ran.code, ran.lines) == (0, lines)
    assert ran.err == "gap: connection lost, some may be missing\n"


async def breaking_then_crashing(weather: Any, node: Any) -> None:
    await breaking(weather, node)
    with pytest.raises(AgentDied):
        await weather.invoke(Weather.crash)


def test_monitoring_goes_on_over_a_break_of_the_connection(call: Call) -> None:
    ran = call("monitor", "--count", "2", background=breaking_then_crashing)
    assert (ran.code, ran.err) == (0, "")
    lost, down = ran.lines
    assert (lost["agent"], lost["reason"]["text"]) == ("weather", "shutdown: connection lost")
    assert (down["agent"], down["reason"]["text"]) == ("weather", "KeyError: 'a bug'")


def test_a_call_whose_connection_breaks(call: Call) -> None:
    ran = call("call", "forecast", "city=Bonn", "-q", background=breaking)
    assert (ran.code, ran.lines[0]["error"]["type"]) == (3, "OutcomeUnknown")
    assert ran.err.endswith("look before asking again\n")


async def telling(weather: Any, node: Any) -> None:
    await trio.sleep(1)
    await weather.tell(Weather.forecast, "Bonn")
    await trio.sleep(1)
    await weather.tell(Weather.forecast, "Rome")


def test_listen_prints_events_up_to_a_count(call: Call) -> None:
    expected = [{"event": "asked", "data": "Bonn"}, {"event": "asked", "data": "Rome"}]
    assert call("listen", "asked", "--count", "2", background=telling).lines == expected
    ran = call("listen", "--count", "1", background=telling)
    assert (ran.code, ran.lines) == (0, expected[:1])


def test_listening_is_interrupted(call: Call) -> None:
    ran = call("listen", background=interrupting(2.5))
    assert (ran.code, ran.out) == (130, "")


def test_what_does_not_come_in_time(call: Call) -> None:
    assert call("listen", "--count", "1", "--within", "5s") == Ran(
        124, "", "lmos-actors: time limit: 5s have passed\n"
    )


def test_monitor_prints_how_an_agent_ends(call: Call) -> None:
    ran = call("monitor", "--count", "1", background=changing)
    reason = {"kind": "error", "text": "KeyError: 'a bug'"}
    assert ran.lines == [{"agent": "weather", "incarnation": 1, "reason": reason}]
    assert (ran.code, ran.err) == (0, "")
