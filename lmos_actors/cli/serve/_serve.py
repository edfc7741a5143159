"""The server process of `serve`: it runs agents and serves them until a signal arrives."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.assembly import open_node
from lmos_actors.bindings import http_of, is_private, public_name, url_of
from lmos_actors.errors import (
    ConfigError,
    StoreFailed,
    SupervisionError,
    TransportError,
    group_of,
    is_permanent,
)
from lmos_actors.supervision import SupervisorSpec, Tree, class_at
from lmos_actors.transport import DoorOptions, raise_descriptor_limit

from .._exit_codes import COULD_NOT_RUN, INTERRUPTED, OK, USAGE
from .._importing import complain
from .._texts import explained, spelling
from ..options._connection import in_shell
from ..options._serving import misfits
from ._announcer import Announcer, busy_in
from ._ending import SIGNALS_ALONE, Ending
from ._targets import planned_of, tree_at
from ._tracing import spans_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence

    from lmos_actors.actors import Agent, PoolLink, Ref, Slot
    from lmos_actors.node import Node

    from ..options._serving import ChatOptions, ListenOptions, ServeOptions
    from ._targets import Planned

DESCRIPTORS: Final = 1 << 20
"""Maximum open connections and files, if the system allows that many."""

RESERVED: Final = 64
"""The part of these that is kept for other uses than incoming connections."""

OPTIONS: Final = {
    "announce": "--announce",
    "bridges": "--relay",
    "client_tls": "--ca",
    "credentials": "--credential",
    "directory": "--database",
    "insecure": "--insecure",
    "listen": "--listen",
    "lookup": "--lookup",
    "mcp": "--mcp",
    "metrics": "--metrics",
    "omnia": "--omnia",
    "origins": "--origin",
    "public_url": "--public-url",
    "register": "--register",
    "security": "--security",
    "store": "--store",
    "tls": "--cert",
    "tracing": "--tracing",
}
"""The options here for arguments of `open_node`."""

PRESENTED: Final = spelling("--credential URL=bearer:env:NAME", "--present-cert")
"""The options that help if a server refuses."""

MOST_DEGRADED: Final = 8
"""Maximum agents that are named as down."""

SAME_SIGNAL: Final = 0.1
"""Seconds within which a second SIGTERM counts as the same one."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def serve_targets(targets: Sequence[str], options: ServeOptions, **more: Any) -> int:
    """Serve until a signal arrives. Returns the exit code. Raises ConfigError.

    `more` are further arguments of `open_node`, which no option sets.
    """
    planned = planned_tree(targets, options, is_optional=bool(more or options.bridges.relay_peers))
    if isinstance(planned, int):
        return planned
    tree, later = planned
    return serve_tree(options, tree, partial(start_later, later), **more)


def serve_tree(
    options: ServeOptions,
    tree: SupervisorSpec,
    start: Callable[[Node], Awaitable[None]],
    ending: Ending = SIGNALS_ALONE,
    limited: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    **more: Any,
) -> int:
    """Serve a tree, and the agents that `start` adds to it, until a signal arrives. Returns the exit code.

    For `more` see `serve_targets`. `limited` returns the arguments of `open_node` with the limits of a file
    added. Raises ConfigError.
    """
    listening = options.listening
    addresses = listening.addresses()
    given = options.node_options(addresses)
    members = options.bridges.members(insecure=listening.security.insecure)
    door = door_options(raise_descriptor_limit(DESCRIPTORS), len(addresses))
    arguments: dict[str, Any] = {
        "listen": addresses,
        "public_url": listening.public_url,
        "door": door,
        "metrics": listening.metrics,
        "store": options.store,
        **given,
        **more,
    }
    opened = partial(open_node, tree, **limited(arguments))
    serving = Serving(
        Announcer(json=listening.json),
        listening.public_url,
        start,
        tuple(given["security"].access),
        options.chat if "omnia" in given else None,
        members,
        ending,
        has_relay=bool(more.get("relay")),
        offers=options.offer.mcp,
    )
    return _ran(serving, opened, listening)


def _ran(serving: Serving, opened: Callable[..., Any], listening: ListenOptions) -> int:
    """Serve until the end. Returns the exit code. Raises ConfigError."""

    def run() -> int:
        with spans_to(listening.tracing) as provider:
            trio.run(serving.run, partial(opened, tracing=provider))
        return serving.signals

    return exit_code_of(run)


def exit_code_of(run: Callable[[], int]) -> int:
    """Run agents until the end, and return the exit code; `run` returns the number of signals.

    If an error ended the run, it is printed. Raises ConfigError for a wrong option.
    """
    try:
        signals = run()
    except ConfigError as error:
        if error.__cause__ is None:
            raise ConfigError(in_shell(error.message), as_option(error.path)) from None
        return complain(error)
    except (SupervisionError, TransportError, StoreFailed) as error:
        print(f"lmos-actors: {why(error)}", file=sys.stderr)
        return USAGE if is_permanent(error) else COULD_NOT_RUN
    except Exception:
        traceback.print_exc()
        return COULD_NOT_RUN
    return INTERRUPTED if signals > 1 else OK


def planned_tree(
    targets: Sequence[str], options: ServeOptions, *, is_optional: bool = False
) -> tuple[SupervisorSpec, list[Planned]] | int:
    """Return the tree to open and the agents with refs, which start later, or the code of a failed import.

    Raises ConfigError if there are no agents, unless `is_optional` is set.
    """
    if options.tree is None and not targets and not is_optional:
        raise ConfigError(
            "nothing to serve: name an agent class, as agents/weather.py:WeatherAgent, or a --tree"
        )
    used = None if options.tree is None else tree_at(options.tree)
    if isinstance(used, int):
        return used
    planned = planned_of(targets, options.arg or (), used)
    if isinstance(planned, int):
        return planned
    root = SupervisorSpec("root") if used is None else used.spec
    more = [each.spec({}) for each in planned if not each.refs]
    tree = attrs.evolve(root, children=(*root.children, *more))
    return tree, [each for each in planned if each.refs]


def as_option(path: str) -> str:
    """Return the command line's option for an argument of `open_node`; any other text is not changed."""
    argument = re.fullmatch(r"open_node\((\w+)=\.\.\.\)", path)
    return path if argument is None else OPTIONS.get(argument[1], path)


def door_options(descriptors: int, doors: int) -> DoorOptions:
    """Return the limits of each of several doors that share a limit of open files.

    Some descriptors stay free, so that a surplus client gets an answer and silent clients can be dropped.
    Without a free descriptor no client could connect.
    """
    usual = DoorOptions()
    places = max(descriptors - RESERVED, descriptors // 2) // doors
    most = max(1, min(usual.max_connections, places * 4 // 5))  # the rest is for refusals
    return DoorOptions(max_connections=most, max_half_open=max(1, min(usual.max_half_open, most // 4)))


def why(error: SupervisionError | TransportError | StoreFailed) -> str:
    """Return the text of an error that ended the node, with the texts of its causes."""
    cause = error.__cause__
    group = None if cause is None else group_of(cause)
    causes = group.exceptions if group is not None else [cause] if cause is not None else []
    first, lines = explained(error, PRESENTED), list[str]()
    for each in causes:
        named = f"{type(each).__name__}: {each}"
        if str(each) and first.endswith(f": {each}"):
            first = first.removesuffix(str(each)) + named
        else:
            lines.append(f"  {named}")
    return "\n".join([first, *dict.fromkeys(lines)])


async def _nothing_more(node: Node) -> None:
    """Start no agents besides the tree."""


async def start_later(later: Sequence[Planned], node: Node) -> None:
    """Start the agents with refs, in the given order.

    The agents that a ref leads to must be running, or be started before.
    """
    for planned in later:
        refs = {name: await _ref(node, *there) for name, there in planned.refs.items()}
        await node.start_child(planned.spec(refs))


class Serving:
    """One run of `serve`, from the start of the agents until signals end it."""

    def __init__(
        self,
        announcer: Announcer,
        public_url: str | None,
        start: Callable[[Node], Awaitable[None]] = _nothing_more,
        access: Sequence[str] = (),
        chat: ChatOptions | None = None,
        members: Sequence[Mapping[str, Any]] = (),
        ending: Ending = SIGNALS_ALONE,
        *,
        has_relay: bool = False,
        offers: bool = False,
    ) -> None:
        self.signals = 0
        self._chat = chat  # None where Omnia's protocol is not served
        self._has_relay = has_relay
        self._offers = offers  # agents to MCP clients
        self._members = members  # the arguments of `join_relay` for each relay whose agents are served
        self._access = access  # the patterns of the access rules
        self._start = start
        self._ending = ending
        self._announcer = announcer
        self._public_url = public_url
        self._asked = trio.Event()
        self._opening = trio.CancelScope()
        self._node: Node | None = None
        self._ready = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._terminated = -inf  # the instant of the last SIGTERM

    async def run(self, opened: Any) -> None:
        """Open the node, and close it on request. Raises the exception that ends the node."""
        self._token = trio.lowlevel.current_trio_token()
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_waiting)
            nursery.start_soon(self._watch_launcher)
            try:
                with handling(self._signalled):
                    await self._open(opened)
            except BaseException as error:  # noqa: ASYNC103 -- raised below, and not as a group of one
                failure = error
            nursery.cancel_scope.cancel("the node has ended")
        if failure is not None:
            raise failure
        if self.signals > 1:
            self._announcer.cut_short()
        else:
            self._announcer.stopped()

    async def _join_relays(self, node: Node) -> None:
        if self._members:
            from lmos_actors.facades import join_relay  # what speaks AgentRelay: few need it

            for member in self._members:
                await join_relay(node, **member, peers=True)

    async def _open(self, opened: Any) -> None:
        with self._opening:
            async with opened() as node:
                self._node = node
                with node.starting():
                    await self._start(node)
                    await self._join_relays(node)
                self._ready = True
                self._announce(node)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._report_degraded, node)
                    nursery.start_soon(self._ending.reap)
                    await self._asked.wait()
                    nursery.cancel_scope.cancel("the end has begun")
                await self._ending.drained(node)

    def _announce(self, node: Node) -> None:
        base = self._public_url or node.urls[0]
        served = [link for link, _ in Tree(node.root).every(None, None) if not is_private(link)]
        agents = {link.path: url_of(base, public_name(link.path)) for link in served}
        chats = self._chats(served, agents)
        speaks_lmos = self._chat is None or not self._chat.omnia_only
        relays = [f"{url}/arc" for url in node.urls] if self._has_relay else []
        urls = node.urls if speaks_lmos else ()
        peers = {member["url"]: url_of(base, f"{member['name']}.ID") for member in self._members}
        offers = [f"{http_of(url)}/mcp" for url in node.urls] if self._offers else []
        self._announcer.serving(agents, urls, os.getpid(), chats, relays, peers, offers, node.page_url)
        everything = [public_name(link.path) for link in Tree(node.root).links()]  # members of pools too
        for text in misfits(self._access, everything):
            print(f"lmos-actors: {text}", file=sys.stderr, flush=True)

    def _chats(self, served: Iterable[Slot | PoolLink], urls: Mapping[str, str]) -> dict[str, str]:
        """Return the addresses at which chat agents are served over Omnia's protocol."""
        if self._chat is None:
            return {}
        from lmos_actors.facades import ChatAgent
        from lmos_actors.facades.omnia import chat_url

        found: dict[str, str] = {}
        for link in served:
            cls = class_at(link)
            if cls is not None and issubclass(cls, ChatAgent):
                found[link.path] = chat_url(urls[link.path])
        if not found:
            print(
                "lmos-actors: --omnia: none of these agents is a ChatAgent, so none can be chatted with",
                file=sys.stderr,
                flush=True,
            )
        return found

    async def _report_waiting(self) -> None:
        await self._asked.wait()
        patience = 1.0
        while True:
            await trio.sleep(patience)
            patience *= 2
            if self._node is not None:
                self._announcer.waiting(busy_in(self._node), self._node.connections)

    async def _report_degraded(self, node: Node) -> None:
        """Print which agents are down, after each change, in a process that a launcher has started."""
        said: list[str] = []
        while self._ending.launched:
            if node.degraded()[:MOST_DEGRADED] == said:
                await node.degraded_change()
            await trio.sleep(1.0)  # what is back by then was hardly down
            now = node.degraded()[:MOST_DEGRADED]
            if now != said:
                self._announcer.degraded(now)
            said = now

    async def _watch_launcher(self) -> None:
        """Drain when the launcher has gone or requests it; after the time limit, stop everything at once."""
        await self._ending.wait_left_alone(partial(self._launcher_says, "the launcher asks"))
        self._launcher_says("the launcher has gone")
        await trio.sleep(self._ending.limit)
        self._force_stop()

    def _launcher_says(self, what: str) -> None:
        if not self._asked.is_set():
            self.signals = max(self.signals, 1)
            self._drain(what)

    # ---- signals: the handler runs between any two steps of any code

    def _signalled(self, number: int, _: object) -> None:
        at, before = monotonic(), self._terminated
        if number == signal.SIGTERM:
            self._terminated = at
            if at - before < SAME_SIGNAL:  # `timeout` sends it to the process, and to its group
                return
        self.signals += 1
        assert self._token is not None
        if self.signals == 1:
            self._token.run_sync_soon(self._drain, signal.Signals(number).name)
        elif self.signals == 2 and self._asked.is_set():
            self._token.run_sync_soon(self._force_stop)
        else:  # an agent's turn does not end, so nothing else would happen
            os._exit(INTERRUPTED)

    def _drain(self, name: str) -> None:
        self._asked.set()  # first: a reader of the line about draining may send the second signal at once
        self._announcer.draining(name)
        if not self._ready:  # its agents are still starting
            self._opening.cancel("a signal to stop")

    def _force_stop(self) -> None:
        if self._node is not None:
            self._node.force_stop()


async def _ref(node: Node, cls: type[Agent], where: str) -> Ref[Any]:
    return await node.consume(cls, where) if "://" in where else node.find(cls, where)


@contextmanager
def handling(handler: Callable[[int, object], None]) -> Generator[None]:
    """In a block, call a handler for the signals that stop a process. Only the main thread gets signals."""
    theirs: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        theirs = {each: signal.signal(each, handler) for each in SIGNALS}
    try:
        yield
    finally:
        for each, before in theirs.items():
            signal.signal(each, before)
