"""The command `record`. Its docstring is its help text."""

from __future__ import annotations

from ..options._record import RecordOptions  # noqa: TC001 - the application reads the types


def record(*, options: RecordOptions) -> int:
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
    """
    from .._record import record_until_signal

    return record_until_signal(options.request())
