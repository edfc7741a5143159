"""The commands that look at a node while it works: over its live view. The docstrings are the help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from .._app import PRINTED, JsonLines, Switch, Within, at_least, whole
from ..options._connection import ServerOptions

if TYPE_CHECKING:
    from ..live._watch import Screen, WatchRequest

_NO_SERVER = ServerOptions()

NodeUrl: TypeAlias = Annotated[
    str, Parameter(name="URL", help="A URL of the node, such as http://127.0.0.1:8080.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of all commands that look at a node."""

    server: ServerOptions = _NO_SERVER
    within: Within = None
    once: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print one snapshot on a terminal too (the default elsewhere), instead of a picture that moves."""
    json: JsonLines = False

    def run(self, url: str, screen: Screen) -> int:
        """Look at the node; return the exit code. Raises ConfigError."""
        from .._answers import AnswerPrinter
        from ..live._watch import run_watch

        return run_watch(self.request(url), screen, AnswerPrinter(json=self.json))

    def request(self, url: str) -> WatchRequest:
        """Return the node to look at, and how to connect to it. Raises ConfigError."""
        from ..live._watch import WatchRequest

        return WatchRequest(
            url=url,
            headers=self.server.headers(),
            credentials=self.server.credentials(url),
            tls=self.server.tls.context(),
            within=self.within,
            once=self.once,
        )


_ALONE = WatchOptions()


def top(
    url: NodeUrl,
    /,
    *,
    by: Literal["waiting", "handled", "restarts"] = "waiting",
    rows: Annotated[int, Parameter(converter=whole, metavar="N")] = 20,
    options: WatchOptions = _ALONE,
) -> int:
    """Show the busiest agents of a node, until Ctrl-C.

    lmos-actors top http://127.0.0.1:8080

    lmos-actors top http://127.0.0.1:8080 --by handled

    lmos-actors top https://agents.example --bearer env:TOKEN --by restarts --once --json

    With security the node asks for the right inspect, in its access lists.

    Exit codes: 0 shown, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the connection \
was lost, 124 time limit, 130 interrupted.

    Parameters
    ----------
    by
        What they have most of: messages that wait, messages handled a second, or restarts.
    rows
        How many agents, 50 at most.
    """
    from ..live._screens import TopScreen

    return options.run(url, TopScreen(by, min(at_least(rows, 1, "--rows") or 1, 50)))


def tree(
    url: NodeUrl,
    path: Annotated[str, Parameter(name="PATH")] = "",
    /,
    *,
    depth: Annotated[int, Parameter(converter=whole, metavar="N")] = 3,
    options: WatchOptions = _ALONE,
) -> int:
    """Show the supervisor tree of a node with the state of each agent, until Ctrl-C.

    lmos-actors tree http://127.0.0.1:8080

    lmos-actors tree http://127.0.0.1:8080 shop/tills --depth 1 --once

    With security the node asks for the right inspect, in its access lists.

    Exit codes: 0 shown, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the connection \
was lost, 124 time limit, 130 interrupted.

    Parameters
    ----------
    path
        The path of a supervisor or an agent: only what is below it.
    depth
        How many levels below that; 300 rows are shown at most.
    """
    from ..live._screens import TreeScreen

    return options.run(url, TreeScreen(path.strip("/"), at_least(depth, 0, "--depth") or 0))


def inspect(
    url: Annotated[str, Parameter(name="URL", help="The URL of an agent, or of its node, with a PATH.")],
    path: Annotated[str | None, Parameter(name="PATH")] = None,
    /,
    *,
    options: WatchOptions = _ALONE,
) -> int:
    """Show an agent from inside: its fields, what waits, where its runs stand, its crashes; until Ctrl-C.

    lmos-actors inspect http://127.0.0.1:8080/agents/weather

    lmos-actors inspect http://127.0.0.1:8080 shop/tills/3 --once

    lmos-actors inspect http://127.0.0.1:8080/agents/weather --json

    What is marked Secret is not shown. With security the node asks for the right inspect over the agent; \
without it, for --allow-operations where serve has started the node, on its own machine.

    Exit codes: 0 shown, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the connection \
was lost, 124 time limit, 130 interrupted.

    Parameters
    ----------
    path
        The path of the agent in the tree, as tree has it; instead of a URL of the agent itself.
    """
    from ..live._agent_screen import AgentScreen
    from ..live._places import path_in

    return options.run(url, AgentScreen(path_in(url, path)))


def trace(
    url: NodeUrl,
    /,
    *,
    agent: Annotated[list[str] | None, Parameter(metavar="PATH", negative=())] = None,
    number: Annotated[int | None, Parameter(converter=whole, name="--trace", metavar="N")] = None,
    action: Annotated[str | None, Parameter(metavar="NAME")] = None,
    log: Annotated[str | None, Parameter(metavar="FILE")] = None,
    options: WatchOptions = _ALONE,
) -> int:
    """Print the messages of a node as they pass, until Ctrl-C.

    lmos-actors trace http://127.0.0.1:8080

    lmos-actors trace http://127.0.0.1:8080 --agent shop/till --action pay

    lmos-actors trace http://127.0.0.1:8080 --log minute.jsonl --within 60s

    Then: lmos-actors replay minute.jsonl --as-scenario minute.yaml, or --html minute.html

    Messages are recorded from then on, and only while somebody looks. Under load not all of them are. What \
is marked Secret is not shown. With security the node asks for the right inspect; without it, for \
--allow-operations where serve has started the node, on its own machine.

    With --once it ends once something has been asked and all of it is answered.

    Exit codes: 0 with --once, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the \
connection was lost, 124 time limit, 130 interrupted.

    Parameters
    ----------
    agent
        Messages to the agent at this path, and to those below it. May be given several times.
    number
        Messages of one trace: all that came of one request, by its number (#).
    action
        Messages about the action, property or event of this name.
    log
        A message log that they are written to, for replay and diff; it must not be there.
    """
    from .._answers import AnswerPrinter
    from ..live._trace import TraceRequest, run_trace

    paths = tuple(path.strip("/") for path in agent or ("",))
    request = TraceRequest(watch=options.request(url), paths=paths, trace=number, action=action, log=log)
    return run_trace(request, AnswerPrinter(json=options.json))


def deadletters(
    url: NodeUrl,
    /,
    *,
    rows: Annotated[int, Parameter(converter=whole, metavar="N")] = 50,
    options: WatchOptions = _ALONE,
) -> int:
    """Show the last messages that no agent of a node handled, and why; until Ctrl-C.

    lmos-actors deadletters http://127.0.0.1:8080

    lmos-actors deadletters http://127.0.0.1:8080 --rows 200 --json

    With security the node asks for the right inspect, in its access lists; without it, for \
--allow-operations where serve has started the node, on its own machine.

    Exit codes: 0 shown, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the connection \
was lost, 124 time limit, 130 interrupted.

    Parameters
    ----------
    rows
        How many, 200 at most.
    """
    from ..live._screens import DeadLettersScreen

    return options.run(url, DeadLettersScreen(at_least(rows, 1, "--rows") or 1))
