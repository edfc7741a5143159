"""The commands that talk to agents which run, as their users see them: the docstrings are the help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import ELSEWHERE, PRINTED, REACHED, Switch, Time
from ..options._knocking import Knocking
from ._logs import app as app

if TYPE_CHECKING:
    from .._answers import Answers
    from ..remote._remote import Reach, Work

Word: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
Url: TypeAlias = Annotated[str, Parameter(name="URL")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reaching(Knocking):
    """The options that all of them have in common."""

    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the agent, where the URL is that of a WebSocket and not of an agent."""
    habits: Annotated[Literal["auto", "spec", "kotlin-wot"], Parameter(group=REACHED)] = "auto"
    """How the agent speaks LMOS, where it cannot be told from its handshake."""
    within: Annotated[Time | None, Parameter(group=REACHED, show_default=False)] = None
    """How long everything may take, such as 10s or 2m; exit code 124 when it has passed."""
    json: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print JSON lines on a terminal too, as is done where the output is none."""
    raw: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print values alone: texts as they are, anything else as JSON."""
    quiet: Annotated[Switch, Parameter(name=["-q", "--quiet"], group=PRINTED)] = False
    """Print no progress and no remarks, only answers and errors."""

    def converse(self, url: str, work: Work) -> int:
        """Reach the agent and do the work. Raises ConfigError."""
        from ..remote._remote import converse

        return converse(self._reach(url), self._answers(), work)

    def _reach(self, url: str) -> Reach:
        from ..remote._remote import Reach

        if self.within is not None and self.within <= 0:
            raise ConfigError("must be more than 0s", "--within")
        return Reach(
            url=url,
            thing=self.thing,
            headers=self.headers(),
            habits=self.habits,
            within=self.within,
            credentials=self.credentials(url),
            tls=self.tls(),
        )

    def _answers(self) -> Answers:
        from .._answers import Answers

        if self.json and self.raw:
            raise ConfigError("give --json or --raw, not both", "--raw")
        return Answers(json=self.json, raw=self.raw, quiet=self.quiet)


_ALONE = Reaching()
_OPTIONS = tuple(f"--{field.name}" for field in fields(Reaching))

Count: TypeAlias = Annotated[int | None, Parameter(metavar="N", group=PRINTED)]


def _checked(count: int | None) -> int | None:
    if count is not None and count < 1:
        raise ConfigError("must be at least 1", "--count")
    return count


@app.command(sort_key=1, group=ELSEWHERE)
def call(
    url: Url,
    action: str,
    /,
    *input_: Annotated[str, Parameter(name="INPUT", allow_leading_hyphen=True)],
    stream: Annotated[Switch, Parameter(group=REACHED)] = False,
    reaching: Reaching = _ALONE,
) -> int:
    """Have an agent carry out an action, and print its answer, or its answers as they come.

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather question="Weather in Bonn?" \
interactionMode=text

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather '{"question": "Weather in Bonn?", \
"interactionMode": "text"}' --within 30s

    lmos-actors call ws://127.0.0.1:8080/agents/weather getWeather @question.json --raw

    cat question.json | lmos-actors call http://127.0.0.1:8080/agents/weather getWeather -

    Progress is shown on the error output. Ctrl-C cancels the action.

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
        The action has many answers, which no description says.
    """
    from .._inputs import input_of
    from ..remote._asking import Calling

    given = input_of(input_, ("--stream", *_OPTIONS))
    return reaching.converse(url, Calling(action, given, stream))


@app.command(sort_key=2, group=ELSEWHERE)
def read(
    url: Url,
    /,
    *property_: Annotated[str, Parameter(name="PROPERTY")],
    reaching: Reaching = _ALONE,
) -> int:
    """Print the values of properties of an agent: of those that are named, or of all.

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
    from ..remote._asking import Reading

    return reaching.converse(url, Reading(property_))


@app.command(sort_key=3, group=ELSEWHERE)
def write(
    url: Url,
    property_: Annotated[str, Parameter(name="PROPERTY")],
    value: Annotated[str, Parameter(name="VALUE", allow_leading_hyphen=True)],
    /,
    *,
    reaching: Reaching = _ALONE,
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
    from ..remote._asking import Writing

    return reaching.converse(url, Writing(property_, written_in(value, "VALUE", _OPTIONS)))


@app.command(sort_key=4, group=ELSEWHERE)
def observe(
    url: Url,
    property_: Annotated[str, Parameter(name="PROPERTY")],
    /,
    *,
    count: Count = None,
    reaching: Reaching = _ALONE,
) -> int:
    """Print the value of a property of an agent, and each change of it, until Ctrl-C.

    lmos-actors observe http://127.0.0.1:8080/agents/weather units

    lmos-actors observe http://127.0.0.1:8080/agents/weather units --count 1 --within 10s

    It goes on when the agent is restarted, and when the connection is lost: the error output says so.

    Exit codes: 0 so many were printed, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    property_
        The name of the property.
    count
        End after so many values.
    """
    from ..remote._listening import Observing

    return reaching.converse(url, Observing(name=property_, count=_checked(count)))


@app.command(sort_key=5, group=ELSEWHERE)
def listen(
    url: Url,
    event: str | None = None,
    /,
    *,
    count: Count = None,
    reaching: Reaching = _ALONE,
) -> int:
    """Print the events of an agent, all or those of one name, until Ctrl-C.

    lmos-actors listen http://127.0.0.1:8080/agents/weather

    lmos-actors listen http://127.0.0.1:8080/agents/weather asked --count 3

    It goes on when the agent is restarted, and when the connection is lost: the error output says so.

    Exit codes: 0 so many were printed, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    event
        The name of the event.
    count
        End after so many events.
    """
    from ..remote._listening import Hearing

    return reaching.converse(url, Hearing(event=event, count=_checked(count)))


@app.command(sort_key=6, group=ELSEWHERE)
def monitor(url: Url, /, *, count: Count = None, reaching: Reaching = _ALONE) -> int:
    """Print each end of an incarnation of an agent, and why it came, until Ctrl-C.

    lmos-actors monitor http://127.0.0.1:8080/agents/weather

    Exit codes: 0 so many were printed, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of an agent or of its description, a file with the description, or a ws:// or wss:// URL.
    count
        End after so many ends.
    """
    from ..remote._listening import Monitoring

    return reaching.converse(url, Monitoring(count=_checked(count)))
