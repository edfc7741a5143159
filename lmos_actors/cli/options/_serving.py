"""The options of commands that listen: addresses, security, discovery, monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the application reads the types
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter

from lmos_actors.errors import ConfigError

from .._app import File, JsonLines, Switch, Texts, Variables, settings_of, whole
from ._connection import PresentOptions

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator, Sequence

    from lmos_actors.mcp import McpOptions
    from lmos_actors.security import Credentials, Security

WHERE = Group("Addresses", sort_key=1)
DEPLOYED = Group("Deployments", sort_key=0.9)
FOUND = Group("Discovery", sort_key=1.2)
GUARDED = Group("Security", sort_key=1.2)
TALKED = Group("Chat agents", sort_key=1.1)
MET = Group("Relays", sort_key=1.1)
OFFERED = Group("MCP clients", sort_key=1.1)
WATCHED = Group("Monitoring", sort_key=1.5)

Arguments: TypeAlias = Annotated[
    Texts,
    Parameter(
        metavar="NAME=VALUE",
        help="An argument of an agent, as JSON or as text; a ref by the name of another target, or by a URL. "
        "With several targets as AGENT.NAME=VALUE. May be given several times.",
    ),
]
NodeStore: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="STORE",
        help="Where durable agents and the sessions of chat agents are kept: sqlite:PATH, a database that is "
        "made if there is none, or memory: until the end.",
    ),
]
Targets: TypeAlias = Annotated[
    Texts,
    Parameter(
        name="TARGET",
        help="Agent classes, as path/file.py:Class or package.module:Class. Put NAME= before it to name the "
        "agent.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """The options for the protection of a server."""

    cert: Annotated[File, Parameter(group=GUARDED)] = None
    """A file with the certificate and its chain, for wss."""
    key: Annotated[File, Parameter(group=GUARDED)] = None
    """A file with its key, if not in the same file."""
    client_ca: Annotated[File, Parameter(group=GUARDED)] = None
    """A file with authorities: clients must show a certificate that one of them has signed."""
    security: Annotated[File, Parameter(group=GUARDED)] = None
    """A YAML or TOML file with the access rules. \
Without it anyone who can reach it can use every agent."""
    origin: Annotated[Texts, Parameter(metavar="ORIGIN", group=GUARDED)] = None
    """Origin of web pages that may use it besides its own, such as https://app.example. \
May be given several times."""
    insecure: Annotated[Switch, Parameter(group=GUARDED)] = False
    """Allow unprotected traffic: clients without authentication, and credentials without TLS."""

    allow_operations: Annotated[Switch, Parameter(group=GUARDED)] = False
    """Without --security: let all on this machine look into agents and operate them, on the page and by \
`inspect`, `trace` and the like, and decide what they ask people (`approvals`). With it, the lists inspect, \
operate and approve of the file say who may."""

    no_page: Annotated[Switch, Parameter(group=GUARDED)] = False
    """Serve no page for browsers. With --insecure at an address that other machines reach there is none."""

    def options(self, addresses: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of `open_node`. Blocks on the disk. Raises ConfigError."""
        from lmos_actors.bindings import ArgumentNames, check_exposed
        from lmos_actors.security import Security
        from lmos_actors.transport import endpoint_of

        rules = Security() if self.security is None else Security.load(self.security)
        tls = self._tls(addresses, rules)
        words = ArgumentNames(
            listen="--listen",
            security="--security FILE",
            insecure="--insecure",
            tls="--cert FILE",
            client_ca="--cert FILE and --client-ca FILE",
        )
        by_url = {url: endpoint_of(url) for url in addresses}
        check_exposed(by_url, rules, tls, insecure=self.insecure, words=words)
        origins = tuple(self.origin or ())
        return {
            "tls": tls,
            "security": rules,
            "origins": origins,
            "insecure": self.insecure,
            "allow_operations": self.allow_operations,
            "page": False if self.no_page else None,
        }

    def _tls(self, addresses: Sequence[str], rules: Security) -> ssl.SSLContext | None:
        from lmos_actors.security import ClientCertificates, NoSec, server_tls

        if self.cert is None:
            for name, value in (("--key", self.key), ("--client-ca", self.client_ca)):
                if value is not None:
                    raise ConfigError("goes with --cert", name)
            for url in addresses:
                if url.lower().startswith(("wss:", "https:")):
                    raise ConfigError(f"{url!r} needs a certificate: --cert FILE, and --key FILE", "--listen")
            return None
        others = [each for each in rules.schemes if not isinstance(each, ClientCertificates | NoSec)]
        return server_tls(self.cert, self.key, client_ca=self.client_ca, required=not others)


_OPEN = SecurityOptions()
_PRESENTS_NOTHING = PresentOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """The options of commands that listen: where, how protected, how watched, and their output."""

    listen: Annotated[Texts, Parameter(metavar="URL", group=WHERE)] = None
    """Where to listen: ws, or wss with a certificate; ws://127.0.0.1:8080 unless given. \
HTTP is served at the same port; port 0 finds a free one. May be given several times."""
    public_url: Annotated[str | None, Parameter(metavar="URL", group=WHERE)] = None
    """The address that clients use and descriptions name, if clients connect through a proxy."""
    security: SecurityOptions = _OPEN
    metrics: Annotated[Switch, Parameter(group=WATCHED)] = False
    """Serve metrics of agents, requests and connections at /metrics, for Prometheus. \
/healthz and /readyz are always served."""
    tracing: Annotated[str | None, Parameter(metavar="URL", group=WATCHED)] = None
    """The OpenTelemetry collector, such as http://127.0.0.1:4318, that receives a span of each request \
that comes in or goes out. Needs the extra otel."""
    json: JsonLines = False

    def addresses(self) -> tuple[str, ...]:
        """Return where to listen: by default on this machine, over TLS if there is a certificate."""
        return tuple(self.listen or ()) or (f"{'wss' if self.security.cert else 'ws'}://127.0.0.1:8080",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DiscoveryOptions:
    """The options for discovery: registering, looking up, announcing."""

    register: Annotated[Texts, Parameter(metavar="URL", group=FOUND)] = None
    """A directory to register its agents in while they run, such as http://HOST:PORT. \
They look for others there too. May be given several times."""
    lookup: Annotated[Texts, Parameter(metavar="URL", group=FOUND)] = None
    """A directory to look for others in, without registering. May be given several times."""
    announce: Annotated[Switch, Parameter(group=FOUND)] = False
    """Announce it on this network by DNS-SD. Needs the extra mdns."""

    def options(self) -> dict[str, Any]:
        """Return the arguments of `open_node`."""
        return {"register": self.register, "lookup": self.lookup, "announce": self.announce}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """The options for one process of a group of a deployment file."""

    group: Annotated[str | None, Parameter(metavar="GROUP", group=DEPLOYED)] = None
    """Run one process of this group of a deployment file, as `up` does; all else is in the file."""
    replica: Annotated[int, Parameter(converter=whole, metavar="N", group=DEPLOYED)] = 1
    """The number of the process, from 1 on: $(replica) in the file."""
    at: Annotated[Texts, Parameter(metavar="GROUP=URL", group=DEPLOYED)] = None
    """The URL of another group of the file that hosts a directory, if it listens at a free port. \
May be given several times."""
    set_: Annotated[Variables, Parameter(group=DEPLOYED)] = None
    launched: Annotated[Switch, Parameter(group=DEPLOYED)] = False
    """End with standard input: a launcher has the other end."""
    files: Annotated[Switch, Parameter(group=DEPLOYED)] = False
    """Print which files of the project it has imported, for `up --reload`."""
    snapshot: Annotated[Path | None, Parameter(metavar="FILE", group=DEPLOYED)] = None
    """A copy of the file, which is read in its place: the file as it was when the launcher began."""
    store_id: Annotated[str | None, Parameter(metavar="ID", group=DEPLOYED)] = None
    """The required identifier of its store in a server: another store, or an emptied one, is refused."""
    keep: Annotated[Path | None, Parameter(metavar="FOLDER", group=DEPLOYED)] = None
    """A folder for stores and directories, instead of their places in the file: for runs of scenarios."""
    gateway: Annotated[str | None, Parameter(metavar="URL", group=DEPLOYED)] = None
    """A proxy (HTTP CONNECT) by which it reaches all others: for runs of scenarios."""

    host: Annotated[str | None, Parameter(metavar="HOST", group=DEPLOYED)] = None
    """The address of this machine, at which it listens where the file has 0.0.0.0: for `up --on`."""

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.group or ""

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of groups that host directories, by group. Raises ConfigError."""
        return settings_of(self.at, "--at")

    @property
    def settings(self) -> dict[str, str]:
        """The variables of the file, by name. Raises ConfigError."""
        return settings_of(self.set_)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """The options for chat agents."""

    omnia: Annotated[Switch, Parameter(group=TALKED)] = False
    """Serve its chat agents to clients of Omnia's chat protocol too, at the same addresses."""
    omnia_only: Annotated[Switch, Parameter(group=TALKED)] = False
    """Serve them only by Omnia's protocol, as its own facades do: /ws needs an agent in its query."""
    strict_sessions: Annotated[Switch, Parameter(group=TALKED)] = False
    """Refuse messages for sessions that do not exist or have expired, instead of beginning new ones."""
    uploads: Annotated[str | None, Parameter(metavar="FOLDER", group=TALKED)] = None
    """Let clients upload files, which are kept in this folder for a day."""

    def options(self) -> dict[str, Any]:
        """Return the arguments of `open_node`. Raises ConfigError."""
        if not self.omnia and not self.omnia_only:
            for option, value in (("--strict-sessions", self.strict_sessions), ("--uploads", self.uploads)):
                if value:
                    raise ConfigError("goes with --omnia", option)
            return {}
        from lmos_actors.facades import OmniaOptions

        strict = self.strict_sessions
        return {"omnia": OmniaOptions(only=self.omnia_only, strict_sessions=strict, uploads=self.uploads)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OfferedOptions:
    """The options for what is offered to MCP clients."""

    mcp_agent: Annotated[str | None, Parameter(metavar="NAME", group=OFFERED)] = None
    """Offer only this agent to them, its tools, prompts and resources under names without its own."""
    mcp_logs: Annotated[Switch, Parameter(group=OFFERED)] = False
    """Send a client the lines that agents log while they carry out its requests."""

    def made(self) -> McpOptions:
        """Return the options as `McpOptions`."""
        from lmos_actors.mcp import McpOptions

        return McpOptions(agent=self.mcp_agent or "", logs=self.mcp_logs)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OfferOptions:
    """The options for offering agents to MCP clients, including the switch `--mcp`."""

    mcp: Annotated[Switch, Parameter(group=OFFERED)] = False
    """Offer its agents to MCP clients too, at /mcp of the same addresses. Needs the extra mcp."""
    offered: OfferedOptions = OfferedOptions()

    def options(self) -> dict[str, Any]:
        """Return the arguments of `open_node`. Raises ConfigError."""
        if not self.mcp:
            for option, value in (
                ("--mcp-agent", self.offered.mcp_agent),
                ("--mcp-logs", self.offered.mcp_logs),
            ):
                if value:
                    raise ConfigError("goes with --mcp", option)
            return {}
        return {"mcp": self.offered.made()}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BridgeOptions:
    """The options for connecting our agents to relays, and for serving the agents of relays here."""

    relay: Annotated[Texts, Parameter(metavar="[NAME=]URL", group=MET)] = None
    """Be on an AgentRelay too, such as ws://HOST/arc: agents there ask it. With several agents NAME says \
which; may be given several times."""
    relay_bearer: Annotated[Texts, Parameter(metavar="[NAME=]REF", group=MET)] = None
    """Where the token for the relay is: env:NAME or file:PATH; env:ARC_TOKEN unless given."""
    relay_peers: Annotated[Texts, Parameter(metavar="[NAME=]URL", group=MET)] = None
    """Serve the agents of an AgentRelay: each that introduces itself there is an agent here, below one of \
this NAME, or `member`. That needs a token of its own; may be given several times."""
    relay_peers_bearer: Annotated[Texts, Parameter(metavar="[NAME=]REF", group=MET)] = None
    """Where the token of --relay-peers is: env:NAME or file:PATH; env:ARC_TOKEN unless given."""
    relay_from: Annotated[Literal["always", "never"], Parameter(group=MET)] = "always"
    """Whether messages to relays have the sender's id as `from`, which the oldest demand and all take."""

    @property
    def names_itself(self) -> bool:
        """Whether messages to relays include the sender's id."""
        return self.relay_from == "always"

    def options(self, *, insecure: bool) -> dict[str, Any]:
        """Return the arguments of `open_node`. Blocks on the disk. Raises ConfigError."""
        relays = list(_on_relays("--relay", self.relay, self.relay_bearer, insecure))
        if not relays:
            return {}
        from lmos_actors.facades import RelayBridge

        found = [
            RelayBridge(url=url, agent=name, credentials=credentials, names_itself=self.names_itself)
            for name, url, credentials in relays
        ]
        return {"bridges": found}

    def members(self, *, insecure: bool) -> list[dict[str, Any]]:
        """Return the arguments of `join_relay` for each relay. Blocks on the disk. Raises ConfigError."""
        option, bearers = "--relay-peers", self.relay_peers_bearer
        return [
            {
                "url": url,
                "name": name or "member",
                "credentials": credentials,
                "names_itself": self.names_itself,
            }
            for name, url, credentials in _on_relays(option, self.relay_peers, bearers, insecure)
        ]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `serve`."""

    tree: Annotated[str | None, Parameter(metavar="TREE")] = None
    """A SupervisorSpec, as path/file.py:tree or package.module:tree: all its agents and pools are served. \
Targets are further children of its root."""
    arg: Arguments = None
    deployed: GroupOptions = GroupOptions()
    store: NodeStore = None
    listening: ListenOptions = ListenOptions()
    presented: PresentOptions = _PRESENTS_NOTHING
    discovery: DiscoveryOptions = DiscoveryOptions()
    chat: ChatOptions = ChatOptions()
    offer: OfferOptions = OfferOptions()
    bridges: BridgeOptions = BridgeOptions()

    def node_options(self, addresses: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of `open_node` for the groups of options. Raises ConfigError."""
        guarded = self.listening.security
        return {
            **guarded.options(addresses),
            **self.presented.options(insecure=guarded.insecure),
            **self.discovery.options(),
            **self.bridges.options(insecure=guarded.insecure),
            **self.chat.options(),
            **self.offer.options(),
        }


def _on_relays(
    option: str, urls: Sequence[str] | None, bearers: Sequence[str] | None, insecure: bool
) -> Iterator[tuple[str | None, str, Credentials]]:
    """Yield name, address and credentials of each connection to a relay. Raises ConfigError."""
    tokens = dict(map(_named, bearers or ()))
    if not urls:
        if tokens:
            raise ConfigError(f"goes with {option}", f"{option}-bearer")
        return
    from lmos_actors.facades.relay import relay_url
    from lmos_actors.security import BearerToken, Credentials, Reference, place_of, url_of

    for name, url in map(_named, urls):
        reference = tokens.pop(name, None) or "env:ARC_TOKEN"
        place = url_of(place_of(relay_url(url)))
        try:
            known = {place: BearerToken(Reference.parse(reference))}
            credentials = Credentials(known, allow_insecure=insecure)
        except ConfigError as error:
            text = str(error).replace("allow_insecure=True", "--insecure")
            raise ConfigError(text, f"{option}-bearer") from None
        yield name, url, credentials
    for name in tokens:
        raise ConfigError(f"there is no {option} for {name or 'it'}", f"{option}-bearer")


def _named(text: str) -> tuple[str | None, str]:
    """Split `NAME=VALUE` into the name and the value; for a value alone, the name is None."""
    name, equals, value = text.partition("=")
    return (name, value) if equals and name.replace("-", "").replace(".", "").isalnum() else (None, text)


def misfits(patterns: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each pattern of an access list that matches nothing served."""
    from lmos_actors.security import idle_patterns

    for pattern, hint in idle_patterns(patterns, names):
        yield f"--security: access: {pattern!r} fits no agent that is served{hint}"
