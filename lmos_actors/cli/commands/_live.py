"""The commands that show a node at work, over its live view. Their docstrings are their help texts."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from .._app import at_least, whole
from ..options._live import TraceOptions, WatchOptions

NodeUrl: TypeAlias = Annotated[
    str, Parameter(name="URL", help="A URL of the node, such as http://127.0.0.1:8080.")
]


_ALONE = WatchOptions()
_ALL = TraceOptions()


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
        The order: by waiting messages, by messages handled per second, or by restarts.
    rows
        How many agents, 50 at most.
    """
    from ..live._screens import TopScreen
    from ..live._watch import run_watch

    return run_watch(url, options, TopScreen(by, min(at_least(rows, 1, "--rows") or 1, 50)))


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
    from ..live._watch import run_watch

    return run_watch(url, options, TreeScreen(path.strip("/"), at_least(depth, 0, "--depth") or 0))


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
        The path of the agent in the tree, as tree shows it; instead of a URL of the agent itself.
    """
    from ..live._agent_screen import AgentScreen
    from ..live._places import path_in
    from ..live._watch import run_watch

    return run_watch(url, options, AgentScreen(path_in(url, path)))


def trace(url: NodeUrl, /, *, options: TraceOptions = _ALL) -> int:
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
    """
    from ..live._trace import run_trace

    return run_trace(url, options)


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
    from ..live._watch import run_watch

    return run_watch(url, options, DeadLettersScreen(at_least(rows, 1, "--rows") or 1))
