"""`python -m tests.benchmarks.wire_server KIND`: a server in a process; prints its port, or URL, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import trio

from tests.benchmarks import bulk, chat, limits_chat, limits_wire, models, relay, wire

SERVERS = {
    "bulk": bulk.serve,
    "chat-bare": limits_chat.serve,
    "lines": limits_wire.serve_lines,
    "trio-websocket": limits_wire.serve_trio_websocket,
    "lmos": wire.serve,
    "omnia": chat.serve,
    "provider": models.serve,
    "relay": relay.serve,
    "relay-bare": relay.serve_bare,
}


def main(kind: str) -> None:
    """Serve until killed."""
    if kind == "websockets":
        asyncio.run(limits_wire.serve_websockets(_tell))
    else:
        trio.run(SERVERS[kind], _tell)


def _tell(where: object) -> None:
    print(json.dumps(where), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
