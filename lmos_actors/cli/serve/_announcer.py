"""Output of `serve`: lines for people on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from lmos_actors._core import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.node import Node


class Announcer:
    """The printer of the served agents and of the states of the process that serves them."""

    def __init__(self, *, json: bool) -> None:
        self.json = json or not sys.stdout.isatty()

    def _say(self, text: str, event: str, **members: Any) -> None:
        line = json.dumps({"event": event, **members}) if self.json else printable(text)
        try:
            print(line, flush=True)
        except OSError:  # the reader is gone: that is no reason to stop serving
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - left with the process

    def serving(
        self,
        agents: Mapping[str, str],
        urls: Sequence[str],
        process: int,
        chats: Mapping[str, str],
        relays: Sequence[str] = (),
        peers: Mapping[str, str] | None = None,
        offers: Sequence[str] = (),
        page: str | None = None,
    ) -> None:
        """Print the addresses of agents, chats and relays, and that everything is ready.

        `peers` has the addresses at which the agents of relays are served, by relay; `offers` are the
        addresses for MCP clients; `page` is the address for browsers.
        """
        width = max(map(len, agents), default=0)
        for name, url in agents.items():
            self._say(f"{name:{width}}  {url}", "agent", name=name, url=url)
        for url in urls:
            self._say(f"LMOS at {url}/ws", "listening", url=f"{url}/ws")
        if page is not None:
            self._say(f"page at {page}", "page", url=page)
        for name, url in chats.items():
            self._say(f"chat with {name}: lmos-actors chat {agents[name]}", "chat", name=name, url=url)
        for url in relays:
            self._say(f"AgentRelay at {url}", "relay", url=url)
        for url in offers:
            self._say(f"MCP at {url}", "mcp", url=url)
        for relay, url in (peers or {}).items():
            self._say(f"agents of {relay} at {url}", "peers", relay=relay, url=url)
        count = f"{len(agents)} agent" + ("s" if len(agents) != 1 else "")
        self._say(f"ready: {count}, process {process}, Ctrl-C stops", "ready", process=process)

    def degraded(self, agents: Sequence[str]) -> None:
        """Print which agents are being restarted or wait for that; an empty list means that all run again."""
        text = f"degraded: {', '.join(agents)}" if agents else "all agents run"
        self._say(text, "degraded", agents=list(agents))

    def draining(self, signal: str) -> None:
        """Print that the process is draining, and which signal caused that."""
        self._say(f"{signal}: draining; again ends at once", "draining", signal=signal)

    def waiting(self, agents: Mapping[str, int], connections: int) -> None:
        """Print the open work that delays the end: requests and connections."""
        busy = ", ".join(f"{name} ({count})" for name, count in agents.items())
        parts = [busy and f"requests at {busy}", connections and f"{connections} connections"]
        text = " and ".join(str(part) for part in parts if part)
        self._say(f"waiting for {text}", "waiting", agents=dict(agents), connections=connections)

    def stopped(self) -> None:
        """Print that everything has stopped in order."""
        self._say("stopped", "stopped")

    def cut_short(self) -> None:
        """Print that the end was forced."""
        self._say("ended at once", "ended")


def busy_in(node: Node) -> dict[str, int]:
    """Return, for each busy agent, the number of its waiting messages and runs, by path."""
    found: dict[str, int] = {}
    for ref in node.agents():
        counted = ref.statistics()
        if counted.waiting or counted.running:
            found[ref.path] = counted.waiting + counted.running
    return found
