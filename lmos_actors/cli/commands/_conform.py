"""`conform`. The docstring is the help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from lmos_actors.errors import ConfigError

from .._app import ELSEWHERE, REACHED, File, Limit, Switch, Texts, Within, app
from ..options._connection import ServerOptions, options_in

JUDGED = Group("Judging", sort_key=0.5)
OUTPUT = Group("Output", sort_key=2)
CLIENTS = Group("Clients, in place of a server", sort_key=3)

_LEVELS = Literal["spec", "lenient", "kotlin-wot"]
_TIMES = ("--patience", "--idle", "--within")

_NO_SERVER = ServerOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConformOptionGroup:
    """The options of `conform`, except those for output."""

    server: ServerOptions = _NO_SERVER
    case: Annotated[Texts, Parameter(metavar="PATTERN", group=JUDGED)] = None
    """Only cases with this id, such as letter.reading, or "letter.*". May be given several times."""
    level: Annotated[_LEVELS, Parameter(group=JUDGED)] = "lenient"
    """spec: everything as the specification has it. lenient: harmless deviations are tolerated. \
kotlin-wot: the server is addressed and judged by the dialect of kotlin-wot."""
    allow_unsafe: Annotated[Switch, Parameter(group=JUDGED)] = False
    """Invoke actions that are not safe, too, and write other values to properties, for a moment."""
    hints: Annotated[File, Parameter(group=JUDGED)] = None
    """A YAML, TOML or JSON file with facts that the description lacks: inputs, and triggers of events; \
with --omnia what to say to the agent: say, slow, fails, tool, client_tool."""
    seed: Annotated[int, Parameter(metavar="N", group=JUDGED)] = 0
    """The seed of invented inputs and ids: the same seed, the same inputs."""
    omnia: Annotated[Switch, Parameter(group=JUDGED)] = False
    """Judge an agent facade of Omnia's chat protocol, in place of a server of LMOS."""
    patience: Annotated[Limit, Parameter(group=JUDGED)] = 2.0
    """How long an answer may take."""
    idle: Annotated[Limit, Parameter(group=JUDGED)] = 2.0
    """How long a connection is left alone, to see whether it stays."""
    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the thing, where there are several."""
    description: Annotated[str | None, Parameter(metavar="FILE|URL", group=REACHED)] = None
    """Where the description is, if it is not found from the URL."""
    within: Within = None

    serve: Annotated[
        bool | str, Parameter(negative=(), metavar="[HOST:PORT]", group=CLIENTS, show_default=False)
    ] = False
    """Run a server, at 127.0.0.1:8080 or there, and judge the clients that connect to it."""
    once: Annotated[Switch, Parameter(group=CLIENTS)] = False
    """End when the clients have left again, not only at Ctrl-C."""

    def options(self, url: str) -> Any:
        """Return how a server is judged. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.conformance import ConformOptions, Level

        from ..conform._conform import Presented, hints_of

        server = self.server
        if self.omnia:
            return self._chat_options(url)
        return ConformOptions(
            level=Level(self.level),
            patience=self.patience,
            idle=self.idle,
            seed=self.seed,
            allow_unsafe=self.allow_unsafe,
            hints=hints_of(self.hints),
            cases=tuple(self.case or ()),
            thing=self.thing,
            description=self.description,
            headers=Presented.of(
                server.headers(), server.credentials(url), [each for each in (url, self.description) if each]
            ),
            tls=server.tls.context(),
        )

    def _chat_options(self, url: str) -> Any:
        from lmos_actors.conformance import ChatOptions, Level

        from ..conform._conform import Presented, chat_hints_of

        values = options_in(self)
        given = next((name for name in ("--thing", "--description") if values[name] is not None), None)
        if given is not None:
            raise ConfigError("is about servers of LMOS, and does not go with --omnia", given)
        if self.level == "kotlin-wot":
            raise ConfigError('"kotlin-wot" is a level for servers of LMOS: spec or lenient', "--level")
        server = self.server
        return ChatOptions(
            level=Level(self.level),
            patience=self.patience,
            idle=self.idle,
            seed=self.seed,
            allow_unsafe=self.allow_unsafe,
            hints=chat_hints_of(self.hints),
            cases=tuple(self.case or ()),
            headers=Presented.of(server.headers(), server.credentials(url), [url]),
            tls=server.tls.context(),
        )

    def check_serve(self, url: str | None) -> None:
        """Raise ConfigError for what does not go with `--serve`, or goes with it alone."""
        if self.serve is False:
            if self.once:
                raise ConfigError("goes with --serve", "--once")
            return
        if url is not None:
            raise ConfigError("judges clients: it takes no URL of a server", "--serve")
        names = ("--case", "--allow-unsafe", "--hints", "--omnia", "--thing", "--description")
        values = options_in(self)
        given = next((name for name in names if values[name]), self.server.first_given())
        if given is not None:
            raise ConfigError("goes with the URL of a server, not with --serve", given)

    def words(self, *targets: str) -> list[str]:
        """Return the command that does it again, as words; of headers only the names."""
        from lmos_actors.files import Duration, is_list

        words = ["lmos-actors", "conform", *targets]
        usual = options_in(_USUAL)
        for option, value in options_in(self).items():
            if value == usual[option] or option in ("--serve", "--once"):
                continue
            values = value if is_list(value) else [value]
            if option == "--header":
                values = [f"{header.partition(':')[0]}:***" for header in values]
            elif option in _TIMES:
                values = [Duration(values[0])]
            for each in values:
                words += [option] if each is True else [option, str(each)]
        return words


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options for output."""

    json: Annotated[
        bool | str, Parameter(negative=(), metavar="[FILE]", group=OUTPUT, show_default=False)
    ] = False
    """Print the report card as JSON, and nothing else; or write it to a file."""
    junit: Annotated[File, Parameter(group=OUTPUT)] = None
    """Write JUnit XML."""
    html: Annotated[File, Parameter(group=OUTPUT)] = None
    """Write one HTML file that needs no network."""
    verbose: Annotated[Switch, Parameter(name=["-v", "--verbose"], group=OUTPUT)] = False
    """Print a line for every case, and the traffic of those that did not pass."""
    list_: Annotated[Switch, Parameter(name="--list", group=OUTPUT)] = False
    """Print the cases, and try none."""

    @property
    def printed(self) -> bool:
        """Whether JSON is all that is printed."""
        return self.json is True

    @property
    def card_files(self) -> dict[str, str | None]:
        """The files to write, by option."""
        file = self.json if isinstance(self.json, str) else None
        return {"--json": file, "--junit": self.junit, "--html": self.html}


_USUAL = ConformOptionGroup()
_OUTPUT = OutputOptions()


@app.command(sort_key=41, group=ELSEWHERE, usage="Usage: lmos-actors conform [OPTIONS] [URL]")
def conform(
    url: Annotated[str | None, Parameter(name="URL", negative=())] = None,
    /,
    *,
    given: ConformOptionGroup = _USUAL,
    output: OutputOptions = _OUTPUT,
) -> int:
    """Judge any server that speaks LMOS over a WebSocket, case by case, or a facade of Omnia's chat protocol.

    lmos-actors conform http://127.0.0.1:8080/agents/weather

    lmos-actors conform http://127.0.0.1:8080/agents/weather --level spec --html card.html

    lmos-actors conform ws://127.0.0.1:9000/lamp --description lamp.td.json --case "properties.*" -v

    lmos-actors conform http://127.0.0.1:8080 --thing urn:lamp --allow-unsafe --hints hints.yaml

    lmos-actors conform "ws://127.0.0.1:8080/ws?agent=support" --omnia

    lmos-actors conform --serve 127.0.0.1:9000 --once

    lmos-actors conform --list

    Only the offers of the description are tried. Actions that are not declared safe are not invoked, and no \
property is changed, unless --allow-unsafe is given.

    Exit codes: 0 no case failed, 1 a case failed, 2 the usage is wrong, 3 not reached, or without a \
description, 124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of a description, of a server that has one at its well-known place, or of a WebSocket; \
or a file with a description. With --omnia the URL of a facade, or of an agent of lmos_actors.
    """
    from ..conform._conform import ConformRequest, cases_of, judge, list_cases
    from ..remote._session import check_place

    given.check_serve(url)
    if given.serve is not False:
        return _serve(given, output)
    if url is None and isinstance(output.json, str) and "://" in output.json:
        raise ConfigError(f"was given {output.json}: write the URL before it", "--json")
    cases = cases_of(given.case or (), omnia=given.omnia)
    if output.list_:
        return list_cases(cases, json=output.printed)
    if url is None:
        raise ConfigError("give the URL of a server, or --list")
    check_place(url)
    inputs = [each for each in (url, given.description, given.hints) if each and "://" not in each]
    return judge(
        ConformRequest(
            url=url,
            options=given.options(url),
            cases=cases,
            within=given.within,
            json=output.printed,
            verbose=output.verbose,
            card_files=output.card_files,
            inputs=inputs,
            command=given.words(url),
        )
    )


def _serve(given: ConformOptionGroup, output: OutputOptions) -> int:
    from lmos_actors.conformance import Level

    from ..conform._serve import ADDRESS, JudgeClientsRequest, list_client_cases, serve_clients

    if output.list_:
        return list_client_cases(json=output.printed)
    address = given.serve if isinstance(given.serve, str) else ADDRESS
    return serve_clients(
        JudgeClientsRequest(
            address=address,
            once=given.once,
            level=Level(given.level),
            patience=given.patience,
            seed=given.seed,
            within=given.within,
            json=output.printed,
            verbose=output.verbose,
            card_files=output.card_files,
            command=given.words("--serve", address, *(["--once"] if given.once else [])),
        )
    )
