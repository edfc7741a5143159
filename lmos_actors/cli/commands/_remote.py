"""The commands that talk to agents which run, as their users see them: the docstrings are the help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import ELSEWHERE, PRINTED, REACHED, Switch, Time
from ..options._server import ServerOptions
from ._logs import app as app

if TYPE_CHECKING:
    from .._answers import AnswerPrinter
    from ..remote._session import RemoteAgent, Work

Word: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
Url: TypeAlias = Annotated[str, Parameter(name="URL")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RemoteOptions(ServerOptions):
    """The options that all of them have in common."""

    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the agent, if the URL is that of a WebSocket and not of an agent."""
    habits: Annotated[Literal["auto", "spec", "kotlin-wot"], Parameter(group=REACHED)] = "auto"
    """The dialect of LMOS that the agent speaks, if its handshake does not show it."""
    within: Annotated[Time | None, Parameter(group=REACHED, show_default=False)] = None
    """Time limit for the whole command, such as 10s or 2m; exit code 124 when it has passed."""
    json: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print JSON lines on a terminal too (the default elsewhere)."""
    raw: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print values alone: texts as they are, anything else as JSON."""
    quiet: Annotated[Switch, Parameter(name=["-q", "--quiet"], group=PRINTED)] = False
    """Print only answers and errors, no progress and no remarks."""

    def run_session(self, url: str, work: Work) -> int:
        """Reach the agent and do the work. Raises ConfigError."""
        from ..remote._session import run_session

        return run_session(self._target(url), self._answers(), work)

    def _target(self, url: str) -> RemoteAgent:
        from ..remote._session import RemoteAgent

        if self.within is not None and self.within <= 0:
            raise ConfigError("must be more than 0s", "--within")
        return RemoteAgent(
            url=url,
            thing=self.thing,
            headers=self.headers(),
            habits=self.habits,
            within=self.within,
            credentials=self.credentials(url),
            tls=self.tls(),
        )

    def _answers(self) -> AnswerPrinter:
        from .._answers import AnswerPrinter

        if self.json and self.raw:
            raise ConfigError("give --json or --raw, not both", "--raw")
        return AnswerPrinter(json=self.json, raw=self.raw, quiet=self.quiet)


_ALONE = RemoteOptions()
_OPTIONS = tuple(f"--{field.name}" for field in fields(RemoteOptions))

Count: TypeAlias = Annotated[int | None, Parameter(metavar="N", group=PRINTED)]


def _checked(count: int | None) -> int | None:
    if count is not None and count < 1:
        raise ConfigError("must be at least 1", "--count")
    return count


@app.command(sort_key=1, group=ELSEWHERE, usage="Usage: lmos-actors call [OPTIONS] URL ACTION [INPUT...]")
def call(
    url: Url,
    action: str,
    /,
    *input_: Annotated[str, Parameter(name="INPUT", allow_leading_hyphen=True)],
    stream: Annotated[Switch, Parameter(group=REACHED)] = False,
    options: RemoteOptions = _ALONE,
) -> int:
    """Invoke an action of an agent, and print its answer, or its answers as they come.

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather question="Weather in Bonn?" \
interactionMode=text

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather '{"question": "Weather in Bonn?", \
"interactionMode": "text"}' --within 30s

    lmos-actors call ws://127.0.0.1:8080/agents/weather getWeather @question.json --raw

    cat question.json | lmos-actors call http://127.0.0.1:8080/agents/weather getWeather -

    Progress is shown on standard error. Ctrl-C cancels the action.

    Exit codes: 0 answered, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    action
        The name of the action.
    input_
        JSON as one word; or NAME=VALUE for each parameter; - reads the standard input, @FILE a file.
    stream
        Expect many answers although no description says so.
    """
    from .._inputs import input_of
    from ..remote._requests import ActionCall

    given = input_of(input_, ("--stream", *_OPTIONS))
    return options.run_session(url, ActionCall(action, given, stream))


@app.command(sort_key=2, group=ELSEWHERE, usage="Usage: lmos-actors read [OPTIONS] URL [PROPERTY...]")
def read(
    url: Url,
    /,
    *property_: Annotated[str, Parameter(name="PROPERTY")],
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the values of properties of an agent: the named ones, or all.

    lmos-actors read http://127.0.0.1:8080/agents/weather

    lmos-actors read http://127.0.0.1:8080/agents/weather units --raw

    Exit codes: 0 read, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    property_
        The names of properties.
    """
    from ..remote._requests import PropertyRead

    return options.run_session(url, PropertyRead(property_))


@app.command(sort_key=3, group=ELSEWHERE)
def write(
    url: Url,
    property_: Annotated[str, Parameter(name="PROPERTY")],
    value: Annotated[str, Parameter(name="VALUE", allow_leading_hyphen=True)],
    /,
    *,
    options: RemoteOptions = _ALONE,
) -> int:
    """Set a property of an agent.

    lmos-actors write http://127.0.0.1:8080/agents/weather units fahrenheit

    lmos-actors write ws://127.0.0.1:8080/agents/weather units '"fahrenheit"'

    Exit codes: 0 written, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    property_
        The name of the property.
    value
        JSON; where the description wants a text, that text; - reads the standard input, @FILE a file.
    """
    from .._inputs import written_in
    from ..remote._requests import PropertyWrite

    return options.run_session(url, PropertyWrite(property_, written_in(value, "VALUE", _OPTIONS)))


@app.command(sort_key=4, group=ELSEWHERE)
def observe(
    url: Url,
    property_: Annotated[str, Parameter(name="PROPERTY")],
    /,
    *,
    count: Count = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the value of a property of an agent, and each change of it, until Ctrl-C.

    lmos-actors observe http://127.0.0.1:8080/agents/weather units

    lmos-actors observe http://127.0.0.1:8080/agents/weather units --count 1 --within 10s

    It continues when the agent is restarted or the connection is lost, and says so on standard error.

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    property_
        The name of the property.
    count
        Stop after this many values.
    """
    from ..remote._subscriptions import PropertyObservation

    return options.run_session(url, PropertyObservation(name=property_, count=_checked(count)))


@app.command(sort_key=5, group=ELSEWHERE)
def listen(
    url: Url,
    event: str | None = None,
    /,
    *,
    count: Count = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the events of an agent, all or those of one name, until Ctrl-C.

    lmos-actors listen http://127.0.0.1:8080/agents/weather

    lmos-actors listen http://127.0.0.1:8080/agents/weather asked --count 3

    It continues when the agent is restarted or the connection is lost, and says so on standard error.

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    event
        The name of the event.
    count
        Stop after this many events.
    """
    from ..remote._subscriptions import EventSubscription

    return options.run_session(url, EventSubscription(event=event, count=_checked(count)))


@app.command(sort_key=6, group=ELSEWHERE)
def monitor(url: Url, /, *, count: Count = None, options: RemoteOptions = _ALONE) -> int:
    """Print each end of an incarnation of an agent, with its reason, until Ctrl-C.

    lmos-actors monitor http://127.0.0.1:8080/agents/weather

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    count
        Stop after this many ends.
    """
    from ..remote._subscriptions import LifecycleMonitor

    return options.run_session(url, LifecycleMonitor(count=_checked(count)))
