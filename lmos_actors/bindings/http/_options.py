"""The options of a node over HTTP, for the requests that it answers and those that it makes."""

from __future__ import annotations

import attrs

from lmos_actors._core import check_limits


@attrs.frozen(kw_only=True)
class HttpOptions:
    """Limits of a node over HTTP, in bytes and seconds; limits of connections are in `DoorOptions`.

    As a server: a run that is queried later is kept for `run_seconds` after its end. At most `runs` are kept,
    and at most `runs_each` of one client; the oldest ended run gives way to a new one, and if none has ended
    the client is refused. An output has at most `output_bytes`, all outputs together have at most
    `outputs_bytes`. A listener without an event gets a heartbeat after `heartbeat_seconds`, as proxies close
    silent connections. A line of a stream into an action has at most `line_bytes`.

    As a client, for each server: `requests` are open at a time, and more wait in line; `listening` answers
    are streams or long polls, and more are refused. `idle` connections are kept, each for `idle_seconds`.
    Connecting takes at most `connect_seconds`; the body of an answer takes at most `answer_seconds` and has
    at most `answer_bytes`.

    Raises ConfigError for a number that is not above 0.
    """

    run_seconds: float = 600.0
    runs: int = 1_024
    runs_each: int = 64
    output_bytes: int = 1 << 20
    outputs_bytes: int = 32 << 20
    heartbeat_seconds: float = 15.0
    line_bytes: int = 4 << 20
    requests: int = 128
    listening: int = 256
    idle: int = 16
    idle_seconds: float = 20.0
    connect_seconds: float = 10.0
    answer_seconds: float = 60.0
    answer_bytes: int = 4 << 20

    def __attrs_post_init__(self) -> None:
        check_limits(self)
