"""`record`. The docstring is the help."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from .._app import REACHED, WRITTEN, Switch, Texts
from ..options._connection import ClientTlsOptions

_NO_TLS = ClientTlsOptions()


def record(
    *,
    to: Annotated[str, Parameter(metavar="URL", group=REACHED)],
    out: Annotated[str, Parameter(metavar="FILE", group=WRITTEN)],
    listen: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)] = "127.0.0.1:0",
    speaks: Annotated[Literal["lmos", "omnia", "relay"] | None, Parameter(group=REACHED)] = None,
    description: Annotated[Texts, Parameter(metavar="FILE", group=REACHED)] = None,
    once: Annotated[Switch, Parameter(group=REACHED)] = False,
    tls: Annotated[ClientTlsOptions, Parameter(group=REACHED)] = _NO_TLS,
) -> int:
    """Record what clients and a server say to each other: LMOS, Omnia's chat protocol or an AgentRelay.

    lmos-actors record --to ws://127.0.0.1:8080/agents/weather --out weather.jsonl

    lmos-actors record --to wss://agents.example.org --out shop.jsonl --ca authorities.pem

    lmos-actors record --to ws://127.0.0.1:8080/arc --out relay.jsonl --listen 127.0.0.1:9000

    The first line that it prints names the address for clients, on this machine. Everything that they say \
is passed on to the server as it is, over WebSockets and over HTTP, and so are its answers; addresses in \
descriptions are made to lead back here.

    Then: lmos-actors replay weather.jsonl --as-scenario weather.yaml, and: lmos-actors run weather.yaml

    Or, in a scenario file of your own: weather: {from: replay, log: weather.jsonl}

    Credentials are passed on, and never written: headers, cookies, tokens in addresses. Nor is what the \
description of an agent marks as secret. The file is readable by you alone, and is never written over.

    Ctrl-C or SIGTERM ends it.

    Exit codes: 0 ended in order; 1 the server has refused all WebSockets; 2 the usage is wrong, or the file \
is there already; 3 the server was not reached, or has cut a connection, or the file cannot be written.

    Parameters
    ----------
    to
        The server, or a place there: a ws, wss, http or https URL.
    out
        The message log to write. There must be no such file.
    listen
        Where clients connect, on this machine; port 0 finds a free one.
    speaks
        The protocol of the WebSockets. Unless given, it is found from their addresses, subprotocols and \
messages.
    description
        A file or a URL with the description of a thing, if the server does not serve it: it says which \
values are secret. Without one all values are written as ***. May be given several times.
    once
        End when the clients that came have left.
    """
    from lmos_actors.recording import RecordRequest

    from .._inputs import address_in
    from .._record import record_until_signal

    return record_until_signal(
        RecordRequest(
            to=to,
            out=out,
            listen=address_in(listen, "--listen"),
            speaks=speaks,
            descriptions=description or (),
            once=once,
            tls=tls.context(),
            insecure=tls.insecure,
        )
    )
