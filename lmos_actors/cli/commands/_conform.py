"""`conform`, as its users see it: the docstring is the help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from lmos_actors.errors import ConfigError

from .._app import ELSEWHERE, REACHED, Switch, Time
from ..options._server import ServerOptions
from ._discover import app as app

JUDGED = Group("Judging", sort_key=0.5)
OUTPUT = Group("Output", sort_key=2)
CLIENTS = Group("Clients, in place of a server", sort_key=3)

_LEVELS = Literal["spec", "lenient", "kotlin-wot"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConformOptionGroup(ServerOptions):
    """The options of `conform`, except those for output."""

    case: Annotated[list[str] | None, Parameter(negative=(), metavar="PATTERN", group=JUDGED)] = None
    """Only cases with this id, such as letter.reading, or "letter.*". May be given several times."""
    level: Annotated[_LEVELS, Parameter(group=JUDGED)] = "lenient"
    """spec: everything as written. lenient: what works all the same is tolerated. \
kotlin-wot: spoken to, and judged, as kotlin-wot has it."""
    allow_unsafe: Annotated[Switch, Parameter(group=JUDGED)] = False
    """Invoke actions that are not safe, too, and write other values to properties, for a moment."""
    hints: Annotated[str | None, Parameter(metavar="FILE", group=JUDGED)] = None
    """A YAML, TOML or JSON file with what the description does not say: inputs, and what triggers events."""
    seed: Annotated[int, Parameter(metavar="N", group=JUDGED)] = 0
    """What invented inputs and ids are drawn with: the same seed, the same inputs."""
    patience: Annotated[Time, Parameter(group=JUDGED)] = 2.0
    """How long an answer may take."""
    idle: Annotated[Time, Parameter(group=JUDGED)] = 2.0
    """How long a connection is left alone, to see whether it stays."""
    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the thing, where there are several."""
    description: Annotated[str | None, Parameter(metavar="FILE|URL", group=REACHED)] = None
    """Where the description is, if it is not found from the URL."""
    within: Annotated[Time | None, Parameter(group=REACHED, show_default=False)] = None
    """How long everything may take, such as 1m; exit code 124 when it has passed."""

    serve: Annotated[
        bool | str, Parameter(negative=(), metavar="[HOST:PORT]", group=CLIENTS, show_default=False)
    ] = False
    """Be a server, at 127.0.0.1:8080 or there, and judge the clients that connect to it."""
    once: Annotated[Switch, Parameter(group=CLIENTS)] = False
    """End when the clients that came have left, and not at Ctrl-C alone."""

    def options(self, url: str) -> Any:
        """Return how a server is judged. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.conformance import ConformOptions, Level

        from ..conform._conform import Presented, hints_of

        self.check()
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
                self.headers(), self.credentials(url), [each for each in (url, self.description) if each]
            ),
            tls=self.tls(),
        )

    def check(self) -> None:
        """Raise ConfigError for a time that is none."""
        for name in ("patience", "idle", "within"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError("must be more than 0s", f"--{name}")

    def check_serve(self, url: str | None) -> None:
        """Raise ConfigError for what does not go with `--serve`, or goes with it alone."""
        if self.serve is False:
            if self.once:
                raise ConfigError("goes with --serve", "--once")
            return
        self.check()
        if url is not None:
            raise ConfigError("judges clients: it takes no URL of a server", "--serve")
        names = ("case", "allow_unsafe", "hints", "thing", "description")
        given = next(
            (f"--{name.replace('_', '-')}" for name in names if getattr(self, name)), self.first_given()
        )
        if given is not None:
            raise ConfigError("goes with the URL of a server, not with --serve", given)

    def words(self, *targets: str) -> list[str]:
        """Return the words of the command that does it again; of headers not what they say."""
        from lmos_actors.files import Duration

        words = ["lmos-actors", "conform", *targets]
        for header in self.header or ():
            words += ["--header", f"{header.partition(':')[0]}:***"]
        for pattern in self.case or ():
            words += ["--case", pattern]
        for name in ("allow_unsafe", "insecure"):
            words += [f"--{name.replace('_', '-')}"] if getattr(self, name) else []
        usual = {"level": "lenient", "seed": 0}
        for name in (
            "bearer",
            "basic",
            "ca",
            "cert",
            "key",
            "level",
            "hints",
            "seed",
            "thing",
            "description",
        ):
            value = getattr(self, name)
            words += [f"--{name}", str(value)] if value not in (None, usual.get(name)) else []
        for name, default in (("patience", 2.0), ("idle", 2.0), ("within", None)):
            value = getattr(self, name)
            words += [f"--{name}", str(Duration(value))] if value != default else []
        return words


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options for output."""

    json: Annotated[
        bool | str, Parameter(negative=(), metavar="[FILE]", group=OUTPUT, show_default=False)
    ] = False
    """Print the report card as JSON, and nothing else; or write it to a file."""
    junit: Annotated[str | None, Parameter(metavar="FILE", group=OUTPUT)] = None
    """Write JUnit XML."""
    html: Annotated[str | None, Parameter(metavar="FILE", group=OUTPUT)] = None
    """Write one HTML file that needs no network."""
    verbose: Annotated[Switch, Parameter(name=["-v", "--verbose"], group=OUTPUT)] = False
    """A line for every case, and all that went by of those that did not pass."""
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
    """Judge any server that speaks LMOS over a WebSocket, case by case.

    lmos-actors conform http://127.0.0.1:8080/agents/weather

    lmos-actors conform http://127.0.0.1:8080/agents/weather --level spec --html card.html

    lmos-actors conform ws://127.0.0.1:9000/lamp --description lamp.td.json --case "properties.*" -v

    lmos-actors conform http://127.0.0.1:8080 --thing urn:lamp --allow-unsafe --hints hints.yaml

    lmos-actors conform --serve 127.0.0.1:9000 --once

    lmos-actors conform --list

    Only what the description offers is tried. Actions that are not declared safe are not invoked, and no \
property is changed, unless --allow-unsafe is given.

    Exit codes: 0 no case failed, 1 a case failed, 2 the usage is wrong, 3 not reached, or without a \
description, 124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of a description, of a server that has one at its well-known place, or of a WebSocket; \
or a file with a description.
    """
    from ..conform._conform import ConformRequest, cases_of, judge, list_cases
    from ..remote._session import check_place

    given.check_serve(url)
    if given.serve is not False:
        return _serve(given, output)
    if url is None and isinstance(output.json, str) and "://" in output.json:
        raise ConfigError(f"was given {output.json}: write the URL before it", "--json")
    cases = cases_of(given.case or ())
    if output.list_:
        return list_cases(cases, json=output.printed)
    if url is None:
        raise ConfigError("give the URL of what is to be judged, or --list")
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
