"""`serve`, as its users see it: the docstring is the help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from .._app import ELSEWHERE, PRESENTED, PRINTED, Switch
from ..options._discovery import DiscoveryOptions
from ..options._security import CredentialOptions, SecurityOptions
from ._remote import app as app

WHERE = Group("Addresses", sort_key=1)
WATCHED = Group("Monitoring", sort_key=1.5)

_OPEN = SecurityOptions()
_NOTHING = CredentialOptions()
_ALONE = DiscoveryOptions()


@app.command(sort_key=0, group=ELSEWHERE, usage="Usage: lmos-actors serve [OPTIONS] [TARGET...]")
def serve(
    targets: Annotated[list[str] | None, Parameter(name="TARGET", negative=())] = None,
    /,
    *,
    tree: Annotated[str | None, Parameter(metavar="TREE")] = None,
    listen: Annotated[list[str] | None, Parameter(negative=(), metavar="URL", group=WHERE)] = None,
    public_url: Annotated[str | None, Parameter(metavar="URL", group=WHERE)] = None,
    security: SecurityOptions = _OPEN,
    credentials: CredentialOptions = _NOTHING,
    present_cert: Annotated[str | None, Parameter(metavar="FILE", group=PRESENTED)] = None,
    present_key: Annotated[str | None, Parameter(metavar="FILE", group=PRESENTED)] = None,
    arg: Annotated[list[str] | None, Parameter(negative=(), metavar="NAME=VALUE")] = None,
    discovery: DiscoveryOptions = _ALONE,
    metrics: Annotated[Switch, Parameter(group=WATCHED)] = False,
    tracing: Annotated[str | None, Parameter(metavar="URL", group=WATCHED)] = None,
    json: Annotated[Switch, Parameter(group=PRINTED)] = False,
) -> int:
    """Run agents and serve them over LMOS and HTTP.

    lmos-actors serve weather=agents/weather.py:WeatherAgent

    lmos-actors serve weather=agents/weather.py:WeatherAgent concierge=agents/concierge.py:ConciergeAgent

    lmos-actors serve --tree agents/travel.py:tree

    lmos-actors serve agents/concierge.py:ConciergeAgent --arg weather=http://10.0.0.7:8080/agents/weather

    lmos-actors serve agents/weather.py:WeatherAgent --listen wss://0.0.0.0:9000 --cert server.pem \
--key server.key --security rules.yaml

    lmos-actors serve agents/weather.py:WeatherAgent --register http://127.0.0.1:8081

    lmos-actors serve agents/weather.py:WeatherAgent --arg units=fahrenheit --public-url wss://agents.example.org

    Then, elsewhere: lmos-actors read http://127.0.0.1:8080/agents/weather units, or: \
curl http://127.0.0.1:8080/agents/weather/properties/units

    Ctrl-C or SIGTERM stops in order: no more requests are taken, and those taken are answered. \
A second one ends it at once.

    Exit codes: 0 stopped in order; 2 the usage is wrong; 3 an import failed, an address is taken, \
or agents crashed too often; 130 ended at once.

    Parameters
    ----------
    targets
        Agent classes, as path/file.py:Class or package.module:Class. Put NAME= before it to name the agent.
    tree
        A SupervisorSpec, as path/file.py:tree or package.module:tree: all its agents and pools are served. \
Targets are further children of its root.
    listen
        Where to listen: ws, or wss with a certificate; ws://127.0.0.1:8080 unless given. \
Port 0 finds a free one. May be given several times.
    public_url
        The address that descriptions name, if clients connect through a proxy.
    present_cert
        A file with a certificate that refs, registrations and lookups show to servers that ask for one. \
The certificate of the server itself is --cert.
    present_key
        A file with the key of --present-cert, if that is not in the same file.
    arg
        An argument of an agent, as JSON or as text; a ref by the name of another target, or by a URL. \
With several targets as AGENT.NAME=VALUE. May be given several times.
    metrics
        Serve metrics of agents, requests and connections at /metrics, for Prometheus. \
/healthz and /readyz are always served.
    tracing
        The OpenTelemetry collector, such as http://127.0.0.1:4318, that receives a span of each request \
that comes in or goes out. Needs the extra otel.
    json
        Print JSON lines on a terminal too (the default elsewhere).
    """
    from ..serve._serve import ServeRequest, serve_targets

    return serve_targets(
        ServeRequest(
            targets=targets or (), tree=tree, listen=listen or (), public_url=public_url, arguments=arg or (),
            security=security, credentials=credentials, present_cert=present_cert, present_key=present_key,
            discovery=discovery,
            metrics=metrics, tracing=tracing, json=json,
        )
    )  # fmt: skip
