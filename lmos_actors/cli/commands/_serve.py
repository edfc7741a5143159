"""The commands `serve`, `mcp` and `directory serve`. Their docstrings are their help texts."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import App, Parameter

from .._app import File, Texts, Time, whole
from ..options._connection import PresentOptions
from ..options._serving import (
    FOUND,
    Arguments,
    DiscoveryOptions,
    ListenOptions,
    NodeStore,
    OfferedOptions,
    ServeOptions,
    Targets,
)

_USUAL = ServeOptions()
_LISTENING = ListenOptions()
_NOTHING = PresentOptions()
_ALL_OFFERED = OfferedOptions()


def serve(targets: Targets = None, /, *, options: ServeOptions = _USUAL) -> int:
    """Run agents and serve them over LMOS and HTTP.

    lmos-actors serve weather=agents/weather.py:WeatherAgent

    lmos-actors serve weather=agents/weather.py:WeatherAgent concierge=agents/concierge.py:ConciergeAgent

    lmos-actors serve --tree agents/travel.py:tree

    lmos-actors serve agents/concierge.py:ConciergeAgent --arg weather=http://10.0.0.7:8080/agents/weather

    lmos-actors serve agents/weather.py:WeatherAgent --listen wss://0.0.0.0:9000 --cert server.pem \
--key server.key --security rules.yaml

    lmos-actors serve agents/weather.py:WeatherAgent --register http://127.0.0.1:8081

    lmos-actors serve bank=agents/bank.py:AccountAgent --store sqlite:bank.db

    lmos-actors serve agents/weather.py:WeatherAgent --arg units=fahrenheit --public-url wss://agents.example.org

    lmos-actors serve support=agents/support.py:SupportDesk --omnia --store sqlite:support.db

    lmos-actors serve agents/weather.py:WeatherAgent --mcp

    ARC_TOKEN=tok_... lmos-actors serve agents/weather.py:WeatherAgent --relay ws://relay.example:8080/arc

    lmos-actors serve --relay-peers ws://relay.example:8080/arc --relay-peers-bearer file:gateway.token

    lmos-actors serve desk.yaml --group weather

    Then, elsewhere: lmos-actors read http://127.0.0.1:8080/agents/weather units, or: \
curl http://127.0.0.1:8080/agents/weather/properties/units

    Ctrl-C or SIGTERM stops in order: no more requests are accepted, and the accepted ones are answered. \
A second one ends it at once.

    Exit codes: 0 stopped in order; 2 the usage is wrong; 3 an import failed, an address is taken, \
or agents crashed too often; 130 ended at once.
    """
    if options.deployed.group is not None:
        from ..serve._group import serve_group

        return serve_group(targets or (), options)
    from ..serve._serve import serve_targets

    return serve_targets(targets or (), options)


def mcp(
    targets: Targets = None,
    /,
    *,
    tree: Annotated[str | None, Parameter(metavar="TREE")] = None,
    arg: Arguments = None,
    store: NodeStore = None,
    lookup: Annotated[Texts, Parameter(metavar="URL", group=FOUND)] = None,
    presented: PresentOptions = _NOTHING,
    offered: OfferedOptions = _ALL_OFFERED,
) -> int:
    """Run agents and offer them to one MCP client, over standard input and output.

    lmos-actors mcp agents/weather.py:WeatherAgent

    lmos-actors mcp --tree agents/travel.py:tree --store sqlite:travel.db

    The client starts it: a desktop application, an editor. It may do everything. What the agents print goes \
to standard error, as logs do. Needs the extra mcp.

    The end of standard input, Ctrl-C and SIGTERM stop in order; a second signal ends it at once.

    Exit codes: 0 stopped in order; 2 the usage is wrong; 3 an import failed, or agents crashed too often; \
130 ended at once.

    Parameters
    ----------
    tree
        A SupervisorSpec, as path/file.py:tree or package.module:tree: all its agents and pools are offered.
    lookup
        A directory to look for other agents in. May be given several times.
    """
    from ..serve._offer import offer_targets

    options = ServeOptions(
        tree=tree, arg=arg, store=store, presented=presented, discovery=DiscoveryOptions(lookup=lookup)
    )
    return offer_targets(targets or (), options, offered.made())


directory = App(
    name="directory",
    help="""Keep the descriptions of agents and things, so that they are found.

    lmos-actors directory serve --database directory.db
    """,
    help_format="plaintext",
)


@directory.command(name="serve")
def directory_serve(
    *,
    database: File = None,
    max_entries: Annotated[int | None, Parameter(converter=whole, metavar="N")] = None,
    max_ttl: Annotated[Time | None, Parameter(show_default=False)] = None,
    listening: ListenOptions = _LISTENING,
) -> int:
    """Serve a directory of descriptions: a Thing Description Directory of the W3C, over HTTP and over LMOS.

    lmos-actors directory serve --database directory.db

    lmos-actors directory serve --listen wss://0.0.0.0:9000 --cert server.pem --security rules.yaml \
--database directory.db --max-ttl 10m

    Then, elsewhere: lmos-actors serve agents/weather.py:WeatherAgent --listen ws://127.0.0.1:8081 \
--register http://127.0.0.1:8080

    And: lmos-actors discover http://127.0.0.1:8080, or: curl http://127.0.0.1:8080/things

    Ctrl-C or SIGTERM stops in order; a second one ends it at once.

    Exit codes: 0 stopped in order; 2 the usage is wrong; 3 an address is taken, or the database \
cannot be used; 130 ended at once.

    Parameters
    ----------
    database
        The file that keeps the registrations, made if it does not exist. Without it they are kept in memory.
    max_entries
        The maximum number of registered descriptions.
    max_ttl
        The longest time after which a registration ends unless it is renewed, as in 90s or 10m; \
also for registrations that name none.
    """
    from lmos_actors.directory import DirectoryOptions

    from ..serve._serve import serve_targets

    hosted = DirectoryOptions(path=database, max_ttl=max_ttl)
    if max_entries is not None:
        hosted = attrs.evolve(hosted, max_entries=max_entries)
    return serve_targets((), ServeOptions(listening=listening), directory=hosted)
