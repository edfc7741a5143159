"""The commands by name: where each is defined, and its line in the list of commands.

A command's module is imported only when that command is used; the list needs none of the modules. The
parameters and the docstring in the module make up the command's help. The docstring's first sentence is also
the line here; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cyclopts import App

STORIES: Final = "Scenarios"
DEPLOYED: Final = "Deployments"
ELSEWHERE: Final = "Running agents"
MACHINE: Final = "This machine"
PANELS: Final = (STORIES, DEPLOYED, ELSEWHERE, MACHINE)
"""The panels of the list, from top to bottom."""


HELP: Final = """Run and check scenarios of agents; serve agents and talk to agents that are running.

A scenario file lists agents, what happens to them, and what must hold. \
It runs on virtual time: minutes take milliseconds, and the same seed gives the same run.

Begin with: lmos-actors init my-agents

In a project: lmos-actors run scenarios/weather.yaml

With a served agent: lmos-actors read http://127.0.0.1:8080/agents/weather

Help on a command: lmos-actors run --help

Exit codes: 0 all passed, or answered; 1 a check failed, or answered with an error; \
2 a file or the usage is wrong, 3 could not run, or not reached, \
4 not deterministic, 5 flaky, 124 time limit, 130 interrupted."""


class Command(NamedTuple):
    """A command in the list, and the place of its definition."""

    panel: str
    place: str
    """The file in `commands`, and the function there or the group of commands."""
    line: str
    usage: str = ""
    """The words after the name, unless they follow from the parameters."""


COMMANDS: Final = {
    "init": Command(
        STORIES,
        "_project:init",
        "Write a project that runs as it is: agents, a scenario about them, and tests.",
    ),
    "validate": Command(
        STORIES,
        "_run:validate",
        "Check files without running them: keys, names, types, classes, inputs.",
        "[OPTIONS] FILES|FOLDERS...",
    ),
    "run": Command(
        STORIES,
        "_run:run",
        "Run scenario and simulation files: every combination of their matrix with every seed.",
        "[OPTIONS] FILES|FOLDERS...",
    ),
    "sim": Command(
        STORIES,
        "_run:sim",
        "Run simulations: as run does, with options for the virtual time that they take.",
        "[OPTIONS] FILES|FOLDERS...",
    ),
    "explore": Command(
        STORIES,
        "_explore:explore",
        "Search for faults and seeds with which a file fails, and shrink what is found to a file of its own.",
        "[OPTIONS] FILE",
    ),
    "replay": Command(
        STORIES,
        "_logs:replay",
        "Run a recorded run again: compare it with its log, or stop in it and show the state of all agents.",
    ),
    "diff": Command(
        STORIES,
        "_logs:diff",
        "Compare two message logs and show where they part, side by side.",
    ),
    "fmt": Command(
        STORIES,
        "_project:format_",
        "Format files: order of keys, indentation, quotes, blank lines. Comments stay, and so does "
        "the meaning.",
        "[OPTIONS] FILES|FOLDERS...",
    ),
    "schema": Command(STORIES, "_project:schema", "Print the JSON Schema of scenario files, for editors."),
    "up": Command(
        DEPLOYED,
        "_deploy:up",
        "Run the groups of a deployment file as processes, and keep them running.",
    ),
    "status": Command(
        DEPLOYED,
        "_deploy:status",
        "Show the processes of a deployment that runs, or which deployments run.",
    ),
    "logs": Command(DEPLOYED, "_deploy:logs", "Print what the processes of a deployment have printed."),
    "restart": Command(
        DEPLOYED,
        "_deploy:restart",
        "Restart groups of a deployment, all at once or one process after another.",
    ),
    "scale": Command(DEPLOYED, "_deploy:scale", "Run more or fewer processes of a group."),
    "drain": Command(
        DEPLOYED,
        "_deploy:drain",
        "Stop the processes of groups in order; `restart` or `up` starts them again.",
    ),
    "down": Command(DEPLOYED, "_deploy:down", "End a deployment in order: all its groups, and its launcher."),
    "export": Command(
        DEPLOYED,
        "_deploy:export",
        "Write a deployment in the format of another supervisor: systemd, Compose, a Procfile, Kubernetes.",
    ),
    "serve": Command(
        ELSEWHERE,
        "_serve:serve",
        "Run agents and serve them over LMOS and HTTP.",
        "[OPTIONS] [TARGET...]",
    ),
    "mcp": Command(
        ELSEWHERE,
        "_serve:mcp",
        "Run agents and offer them to one MCP client, over standard input and output.",
        "[OPTIONS] [TARGET...]",
    ),
    "call": Command(
        ELSEWHERE,
        "_remote:call",
        "Invoke an action of an agent, and print its answer, or its answers as they come.",
        "[OPTIONS] URL ACTION [INPUT...]",
    ),
    "read": Command(
        ELSEWHERE,
        "_remote:read",
        "Print the values of properties of an agent: the named ones, or all.",
        "[OPTIONS] URL [PROPERTY...]",
    ),
    "write": Command(ELSEWHERE, "_remote:write", "Set a property of an agent."),
    "observe": Command(
        ELSEWHERE,
        "_remote:observe",
        "Print the value of a property of an agent, and each change of it, until Ctrl-C.",
    ),
    "listen": Command(
        ELSEWHERE,
        "_remote:listen",
        "Print the events of an agent, all or those of one name, until Ctrl-C.",
    ),
    "monitor": Command(
        ELSEWHERE,
        "_remote:monitor",
        "Print each end of an incarnation of an agent, with its reason, until Ctrl-C.",
    ),
    "top": Command(ELSEWHERE, "_live:top", "Show the busiest agents of a node, until Ctrl-C."),
    "tree": Command(
        ELSEWHERE,
        "_live:tree",
        "Show the supervisor tree of a node with the state of each agent, until Ctrl-C.",
        "[OPTIONS] URL [PATH]",
    ),
    "inspect": Command(
        ELSEWHERE,
        "_live:inspect",
        "Show an agent from inside: its fields, what waits, where its runs stand, its crashes; until Ctrl-C.",
        "[OPTIONS] URL [PATH]",
    ),
    "trace": Command(ELSEWHERE, "_live:trace", "Print the messages of a node as they pass, until Ctrl-C."),
    "deadletters": Command(
        ELSEWHERE,
        "_live:deadletters",
        "Show the last messages that no agent of a node handled, and why; until Ctrl-C.",
    ),
    "chat": Command(ELSEWHERE, "_remote:chat", "Talk to a chat agent, over Omnia's chat protocol."),
    "approvals": Command(
        ELSEWHERE,
        "_remote:approvals",
        "List what agents ask people, and approve or refuse it.",
        "[OPTIONS] URL [VERB] [ID]",
    ),
    "relay": Command(
        ELSEWHERE,
        "_relay:relay",
        "Be a hub of an AgentRelay, or an agent on one: ours, or anybody's.",
    ),
    "record": Command(
        ELSEWHERE,
        "_record:record",
        "Record what clients and a server say to each other: LMOS, Omnia's chat protocol or an AgentRelay.",
        "--to URL --out FILE [OPTIONS]",
    ),
    "fault-proxy": Command(
        ELSEWHERE,
        "_fault_proxy:fault_proxy",
        "Be a bad network between clients and a server: a TCP proxy with the faults of simulated networks.",
        "--to HOST:PORT [OPTIONS]",
    ),
    "discover": Command(
        ELSEWHERE,
        "_remote:discover",
        "List the agents at an address, in a directory, or on this network.",
    ),
    "directory": Command(
        ELSEWHERE,
        "_serve:directory",
        "Keep the descriptions of agents and things, so that they are found.",
    ),
    "describe": Command(
        ELSEWHERE,
        "_describe:describe",
        "Print the description of an agent class, or check a description in a file or at a URL.",
    ),
    "conform": Command(
        ELSEWHERE,
        "_conform:conform",
        "Judge any server of LMOS over a WebSocket, any facade of Omnia's chat protocol, any relay, "
        "case by case.",
        "[OPTIONS] [URL]",
    ),
    "doctor": Command(
        MACHINE,
        "_machine:doctor",
        "Check this machine for problems: versions, limits, permissions, clock; or for what a deployment "
        "needs.",
    ),
    "state": Command(
        MACHINE,
        "_state:state",
        "Look into the store in which a node keeps state, and copy it.",
    ),
    "completion": Command(
        MACHINE,
        "_machine:completion",
        "Print a script that completes commands and options in a shell, or install it.",
    ),
}
"""The commands, in the order of the list."""


def application(*, lists: bool = False) -> App:
    """Return the application with all commands; with `lists`, the help of each is only its line."""
    from cyclopts import App, Group

    app = App(
        name="lmos-actors",
        help=HELP,
        help_format="plaintext",
        version_flags=["--version"],
        suppress_keyboard_interrupt=False,
    )
    panels = {title: Group(title, sort_key=number) for number, title in enumerate(PANELS, 1)}
    for number, (name, command) in enumerate(COMMANDS.items()):
        usage = {"usage": f"Usage: lmos-actors {name} {command.usage}"} if command.usage else {}
        app.command(
            f"{__package__}.commands.{command.place}",
            name=name,
            group=panels[command.panel],
            sort_key=number,
            help=command.line if lists else None,
            **usage,
        )
    return app
