"""The options of Omnia's chat protocol on a node."""

from __future__ import annotations

import attrs

from lmos_actors._core import check_limits


@attrs.frozen(kw_only=True)
class OmniaOptions:
    """The options of Omnia's chat protocol at a node.

    `only`: LMOS is not served, so `/ws` without an agent is a mistake. `strict_sessions`: the id of an
    unknown session is refused with SESSION_EXPIRED; otherwise a new session begins, and its id is announced.
    `shows_tools`: clients see which tools an agent uses. At most `connections` are open at once; one caller
    with credentials has at most half of them. A frame has at most `max_payload` bytes. A client has
    `pong_seconds` to answer a ping, and is pinged as often. A client that does not take data within
    `write_seconds` is disconnected.

    `calls` is how many users may speak with agents at once; more are refused. A call whose connection has
    ended waits `resume_seconds` for its client.

    `uploads` is a folder for files of clients; without it uploads are off. A file has at most `upload_bytes`,
    all files together `uploads_bytes`, the files of one caller half of that. A file is kept for
    `upload_seconds`, and has to arrive within `ticket_seconds` of its announcement. All callers have at most
    `files` files, one caller `announced` announcements of files that have not come.

    A client sends `texts_per_second` text frames and `media_per_second` bytes of sound on average, and
    `texts_burst` and `media_burst` at once; more are answered with RATE_LIMITED, as each text costs a turn.
    Once `waiting_bytes` wait for a client its agent waits, too; once `flooded_bytes` do, nothing more is read
    from it, and a client that only watches is disconnected. Sound beyond `sound_bytes` that an agent has not
    taken is dropped: an answer to old sound is of no use.

    Raises ConfigError for a number that is not above 0.
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
    files: int = 10_000
    announced: int = 16
    texts_per_second: float = 50.0
    texts_burst: int = 100
    media_per_second: int = 2 << 20
    media_burst: int = 16 << 20
    waiting_bytes: int = 256 << 10
    flooded_bytes: int = 1 << 20
    sound_bytes: int = 1 << 20

    def __attrs_post_init__(self) -> None:
        check_limits(self, endless=("upload_seconds", "ticket_seconds"))
