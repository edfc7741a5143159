"""`directory serve`, as its users see it: the docstring is the help."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import App, Parameter

from .._app import ELSEWHERE, PRINTED, Switch, Time
from ..options._security import CredentialOptions, SecurityOptions
from ._serve import WATCHED, WHERE, app as app

directory = App(
    name="directory",
    help="""Keep the descriptions of agents and things, so that they are found.

    lmos-actors directory serve --database directory.db
    """,
    group=ELSEWHERE,
    sort_key=9,
    help_format="plaintext",
)
app.command(directory)

_OPEN = SecurityOptions()
_NOTHING = CredentialOptions()


@directory.command
def serve(
    *,
    listen: Annotated[list[str] | None, Parameter(negative=(), metavar="URL", group=WHERE)] = None,
    public_url: Annotated[str | None, Parameter(metavar="URL", group=WHERE)] = None,
    database: Annotated[str | None, Parameter(metavar="FILE")] = None,
    max_entries: Annotated[int | None, Parameter(metavar="N")] = None,
    max_ttl: Annotated[Time | None, Parameter(show_default=False)] = None,
    security: SecurityOptions = _OPEN,
    metrics: Annotated[Switch, Parameter(group=WATCHED)] = False,
    tracing: Annotated[str | None, Parameter(metavar="URL", group=WATCHED)] = None,
    json: Annotated[Switch, Parameter(group=PRINTED)] = False,
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
    listen
        Where to listen: ws, or wss with a certificate; ws://127.0.0.1:8080 unless given. \
HTTP is served at the same port. May be given several times.
    public_url
        The address that clients use, if they connect through a proxy.
    database
        The file that keeps the registrations, made if it does not exist. Without it they are kept in memory.
    max_entries
        The most descriptions that may be registered.
    max_ttl
        The longest time after which a registration ends unless it is renewed, as in 90s or 10m; \
also for those that name none.
    metrics
        Serve metrics at /metrics, for Prometheus.
    tracing
        The OpenTelemetry collector that receives a span of each request. Needs the extra otel.
    json
        Print JSON lines on a terminal too (the default elsewhere).
    """
    from lmos_actors.discovery import DirectoryOptions

    from ..serve._serve import ServeRequest, serve_targets

    options = DirectoryOptions(path=database, max_ttl=max_ttl)
    if max_entries is not None:
        options = attrs.evolve(options, max_entries=max_entries)
    return serve_targets(
        ServeRequest(
            targets=(),
            listen=listen or (),
            public_url=public_url,
            security=security,
            credentials=_NOTHING,
            metrics=metrics,
            tracing=tracing,
            directory=options,
            json=json,
        )
    )
