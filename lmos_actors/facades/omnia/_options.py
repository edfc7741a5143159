"""The options of Omnia's chat protocol at a node."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class OmniaOptions:
    """The options of Omnia's chat protocol at a node.

    `only`: LMOS is not served, so `/ws` without an agent is a mistake. `strict_sessions`: the id of an
    unknown session is refused with SESSION_EXPIRED; else a new session begins, and its id is announced.
    `shows_tools`: clients see which tools an agent uses. At most `connections` are open at once; one caller
    with credentials has at most half of them. A frame has at most `max_payload` bytes. A client has
    `pong_seconds` to answer a ping, and is pinged as often. A client that does not take data within
    `write_seconds` is disconnected.

    `calls` is how many users may speak with agents at once; more are refused. A call whose connection has
    ended waits `resume_seconds` for its client.

    `uploads` is a folder for files of clients; without it uploads are off. A file has at most `upload_bytes`,
    all files `uploads_bytes`, those of one caller half of that. A file is kept for `upload_seconds`, and has
    to come within `ticket_seconds` of its announcement.
    """

    only: bool = False
    strict_sessions: bool = False
    shows_tools: bool = True
    connections: int = 500
    max_payload: int = 16 << 20
    pong_seconds: float = 30.0
    write_seconds: float = 10.0
    calls: int = 8
    resume_seconds: float = 15.0
    uploads: str | None = None
    upload_bytes: int = 100 << 20
    uploads_bytes: int = 1 << 30
    upload_seconds: float = 24 * 3600.0
    ticket_seconds: float = 15 * 60.0
