"""The options of offering a node's agents to MCP clients."""

from __future__ import annotations

from typing import Any

import attrs

from lmos_actors._core import check_limits
from lmos_actors.errors import ConfigError


@attrs.frozen(kw_only=True)
class McpOptions:
    """The options of offering a node's agents to MCP clients.

    `name` is the server's name in the handshake, `instructions` a text for the model of a client.

    `sessions` bounds the sessions of all clients, half of them for one caller with credentials; a session
    without requests ends after `idle_seconds`. `calls` bounds the calls in progress of all clients, half of
    them for one caller. A list has `page` entries a page. A result has at most `result_bytes`; a longer
    result is a failure. Unread results have at most `waiting_bytes` together, half of them for one caller
    with credentials; a result beyond that is a failure, too. A session may subscribe to `subscriptions`
    resources.

    With `agent`, a public name, only that agent is offered, and its tools are not prefixed with its name.
    With `logs` a client gets the lines that an agent logs during the client's request; they may contain texts
    that were not meant for the client. A client that is asked something during its request has
    `answer_seconds` to answer.

    A request has at most `body_bytes`. A request that begins a session must arrive and be answered within
    `opening_seconds`; until then it cannot be cancelled. An answer that is a stream has at most `items`
    items, as it is held until its end. Of the log lines that wait for a client the last `log_lines` are kept.

    Raises ConfigError for a number that is out of range, and for an invalid name.
    """

    name: str = "lmos_actors"
    instructions: str = ""
    sessions: int = 1_000
    idle_seconds: float = 1_800.0
    calls: int = 1_000
    page: int = 500
    result_bytes: int = 4 << 20
    waiting_bytes: int = 32 << 20
    subscriptions: int = 100
    agent: str = ""
    logs: bool = False
    answer_seconds: float = 600.0
    body_bytes: int = 4 << 20
    opening_seconds: float = 30.0
    items: int = 10_000
    log_lines: int = 1_000

    def __attrs_post_init__(self) -> None:
        agent: Any = self.agent
        if not isinstance(agent, str) or not agent.isprintable():
            raise ConfigError(f"must be the public name of an agent, not {agent!r}", "McpOptions.agent")
        if type(self.logs) is not bool:
            raise ConfigError(f"must be True or False, not {self.logs!r}", "McpOptions.logs")
        check_limits(self)
