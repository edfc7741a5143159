"""The command `conform`. Its docstring is its help text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Group, Parameter

from lmos_actors.errors import ConfigError

from .._app import REACHED, File, Limit, Switch, Texts, Within, whole
from ..options._cards import OutputOptions
from ..options._connection import ServerOptions, options_in, secret_lines

if TYPE_CHECKING:
    from lmos_actors.conformance import JudgingOptions, KitOptions

    from ..conform._conform import Kind

MadeT = TypeVar("MadeT", bound="KitOptions")

JUDGED = Group("Judging", sort_key=0.5)
RELAY = Group("Relays", sort_key=1.5)
CLIENTS = Group("Clients, in place of a server", sort_key=3)

_LEVELS = Literal["spec", "lenient", "kotlin-wot", "reference", "rawk"]
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
kotlin-wot: the server is addressed and judged by the dialect of kotlin-wot. reference, rawk: of relays; \
what AgentRelay's reference relay does, or rawk's, is right."""
    allow_unsafe: Annotated[Switch, Parameter(group=JUDGED)] = False
    """Invoke actions that are not safe, too, and write other values to properties, for a moment; send a \
relay what has ended relays, and more than it allows."""
    hints: Annotated[File, Parameter(group=JUDGED)] = None
    """A YAML, TOML or JSON file with facts that the description lacks: inputs, and triggers of events; \
with --omnia what to say to the agent: say, slow, fails, tool, client_tool; for a relay which agents \
the kit may be, and where their tokens are, as in agents: {kit-1: env:TOKEN_1, kit-2: env:TOKEN_2}."""
    seed: Annotated[int, Parameter(converter=whole, metavar="N", group=JUDGED)] = 0
    """The seed of generated inputs and ids: the same seed gives the same inputs."""
    omnia: Annotated[Switch, Parameter(group=JUDGED)] = False
    """Judge an agent facade of Omnia's chat protocol, instead of an LMOS server."""
    relay: Annotated[Switch, Parameter(group=RELAY)] = False
    """Judge a hub of AgentRelay, or with --serve its clients. ws://HOST/arc is taken for one anyway."""
    register_url: Annotated[str | None, Parameter(metavar="URL", group=RELAY)] = None
    """Where agents are registered, if not at /register beside the relay."""
    invitation: Annotated[str | None, Parameter(metavar="REF", group=RELAY)] = None
    """Where the invitations for registering agents are, one a line: env:NAME or file:PATH. Each is used \
once, the last one for all others."""
    patience: Annotated[Limit, Parameter(group=JUDGED)] = 2.0
    """How long an answer may take."""
    idle: Annotated[Limit, Parameter(group=JUDGED)] = 2.0
    """How long a connection is left alone, to see whether it stays."""
    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the thing, if there are several."""
    description: Annotated[str | None, Parameter(metavar="FILE|URL", group=REACHED)] = None
    """Where the description is, if it is not found from the URL."""
    within: Within = None

    serve: Annotated[
        bool | str, Parameter(negative=(), metavar="[HOST:PORT]", group=CLIENTS, show_default=False)
    ] = False
    """Run a server, by default at 127.0.0.1:8080, and judge the clients that connect to it."""
    once: Annotated[Switch, Parameter(group=CLIENTS)] = False
    """End when the clients have left, not only at Ctrl-C."""

    def kind(self, url: str | None) -> Kind:
        """Return the kind of server to judge at a URL. Raises ConfigError for conflicting options."""
        from ..conform._conform import is_relay

        values = options_in(self)
        if self.omnia and self.relay:
            raise ConfigError("does not go with --omnia: a URL is one or the other", "--relay")
        of_lmos = next((name for name in ("--thing", "--description") if values[name] is not None), None)
        if of_lmos is not None and (self.omnia or self.relay):
            other = "--omnia" if self.omnia else "--relay"
            raise ConfigError(f"is about servers of LMOS, and does not go with {other}", of_lmos)
        if self.relay or not (self.omnia or of_lmos is not None or url is None or not is_relay(url)):
            return "relay"
        of_relays = next((name for name in ("--register-url", "--invitation") if values[name]), None)
        if of_relays is not None:
            raise ConfigError("is about relays: ws://HOST/arc, or another URL with --relay", of_relays)
        return "omnia" if self.omnia else "lmos"

    def options(self, url: str, kind: Kind) -> JudgingOptions:
        """Return the options by which a server is judged. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.conformance import ChatHints, Hints

        from ..conform._conform import OPTIONS_OF, Presented, agents_of, hints_of

        server = self.server
        if kind == "relay" and (server.bearer is not None or server.basic is not None):
            raise ConfigError(
                "the kit is several agents, each with a token of its own: name them in --hints",
                "--basic" if server.bearer is None else "--bearer",
            )
        places = [each for each in (url, self.description) if each]
        headers = Presented.of(server.headers(), server.credentials(url), places)
        tls = server.tls.context()
        own: dict[str, Any]
        if kind == "relay":
            own = {"agents": agents_of(self.hints), "register_url": self.register_url}
            if self.invitation is not None:
                own["invitations"] = secret_lines(self.invitation, "--invitation")
        elif kind == "omnia":
            own = {"hints": hints_of(self.hints, ChatHints)}
        else:
            own = {
                "hints": hints_of(self.hints, Hints),
                "thing": self.thing,
                "description": self.description,
            }
        return self.made(
            OPTIONS_OF[kind],
            idle=self.idle,
            allow_unsafe=self.allow_unsafe,
            cases=tuple(self.case or ()),
            headers=headers,
            tls=tls,
            **own,
        )

    def made(self, options: type[MadeT], **own: Any) -> MadeT:
        """Return the kit's options of a class. Raises ConfigError for a level that the class does not have.

        All other values are already checked.
        """
        from lmos_actors.conformance import Level

        try:
            return options(level=Level(self.level), patience=self.patience, seed=self.seed, **own)
        except ConfigError as error:
            raise ConfigError(error.message, "--level") from None

    def check_serve(self, url: str | None) -> None:
        """Raise ConfigError for options that conflict with `--serve`, or that need it."""
        if self.serve is False:
            if self.once:
                raise ConfigError("goes with --serve", "--once")
            return
        if url is not None:
            raise ConfigError("judges clients: it takes no URL of a server", "--serve")
        names = ("--case", "--allow-unsafe", "--hints", "--omnia", "--thing", "--description",
                 "--register-url", "--invitation")  # fmt: skip
        values = options_in(self)
        given = next((name for name in names if values[name]), self.server.first_given())
        if given is not None:
            raise ConfigError("goes with the URL of a server, not with --serve", given)

    def words(self, *targets: str) -> list[str]:
        """Return the words of a command that repeats this run, with the values of headers masked."""
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


_USUAL = ConformOptionGroup()
_OUTPUT = OutputOptions()


def conform(
    url: Annotated[str | None, Parameter(name="URL", negative=())] = None,
    /,
    *,
    given: ConformOptionGroup = _USUAL,
    output: OutputOptions = _OUTPUT,
) -> int:
    """Judge any server of LMOS over a WebSocket, any facade of Omnia's chat protocol, any relay, \
case by case.

    lmos-actors conform http://127.0.0.1:8080/agents/weather

    lmos-actors conform http://127.0.0.1:8080/agents/weather --level spec --html card.html

    lmos-actors conform ws://127.0.0.1:9000/lamp --description lamp.td.json --case "properties.*" -v

    lmos-actors conform http://127.0.0.1:8080 --thing urn:lamp --allow-unsafe --hints hints.yaml

    lmos-actors conform "ws://127.0.0.1:8080/ws?agent=support" --omnia

    lmos-actors conform ws://127.0.0.1:8080/arc --level spec --allow-unsafe

    lmos-actors conform ws://127.0.0.1:8080/arc --level reference \
--register-url http://127.0.0.1:8081/register

    lmos-actors conform --serve 127.0.0.1:9000 --once

    lmos-actors conform --serve 127.0.0.1:9000 --relay

    lmos-actors conform --list

    Only the offers of the description are tried. Actions that are not declared safe are not invoked, and no \
property is changed, unless --allow-unsafe is given. On a relay the kit registers agents of its own, whose \
ids begin with "kit-", and everybody there hears them.

    Exit codes: 0 no case failed, 1 a case failed, 2 the usage is wrong, 3 not reached, or without a \
description, 124 time limit, 130 interrupted.

    Parameters
    ----------
    url
        The URL of a description, of a server that has one at its well-known place, or of a WebSocket; \
or a file with a description. With --omnia the URL of a facade, or of an agent of lmos_actors. \
ws://HOST/arc is the URL of a relay.
    """
    given.check_serve(url)
    return _judge(url, given, output) if given.serve is False else _serve(given, output)


def _judge(url: str | None, given: ConformOptionGroup, output: OutputOptions) -> int:
    from ..conform._conform import ConformRequest, cases_of, judge, list_cases
    from ..remote._session import check_place

    if url is None and isinstance(output.json, str) and "://" in output.json:
        raise ConfigError(f"was given {output.json}: write the URL before it", "--json")
    kind = given.kind(url)
    cases = cases_of(given.case or (), kind)
    if output.list_:
        return list_cases(cases, json=output.printed)
    if url is None:
        raise ConfigError("give the URL of a server, or --list")
    check_place(url)
    place = url
    if kind == "relay":
        from lmos_actors.facades.relay import relay_url

        place = relay_url(url)
    inputs = [each for each in (url, given.description, given.hints) if each and "://" not in each]
    return judge(
        ConformRequest(
            url=place,
            options=given.options(place, kind),
            cases=cases,
            within=given.within,
            output=output,
            inputs=inputs,
            command=given.words(url),
        )
    )


def _serve(given: ConformOptionGroup, output: OutputOptions) -> int:
    from lmos_actors.conformance import ClientOptions, RelayClientOptions

    from ..conform._serve import ADDRESS, JudgeClientsRequest, list_client_cases, serve_clients

    if output.list_:
        return list_client_cases(json=output.printed, relay=given.relay)
    address = given.serve if isinstance(given.serve, str) else ADDRESS
    kind = RelayClientOptions if given.relay else ClientOptions
    return serve_clients(
        JudgeClientsRequest(
            options=given.made(kind, once=given.once),
            address=address,
            within=given.within,
            output=output,
            command=given.words("--serve", address, *(["--once"] if given.once else [])),
        )
    )
