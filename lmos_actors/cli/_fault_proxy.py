"""The command `fault-proxy`: a bad network between clients and a server, with faults from standard input.

A wrong line from a program ends the command, because the planned test was not carried out. At a terminal the
mistake is explained, and the next line is read.
"""

from __future__ import annotations

import os
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.deployment.faults import FaultProxy, delay_of, links_with, order_of, read_at, share_of
from lmos_actors.errors import ConfigError
from lmos_actors.files import Size
from lmos_actors.links import LinkRules
from lmos_actors.protocol.td import Stream
from lmos_actors.reports import count
from lmos_actors.security import is_loopback
from lmos_actors.transport import raise_descriptor_limit

from ._answers import AnswerPrinter, OutputLine
from ._exit_codes import COULD_NOT_RUN, OK
from ._inputs import address_in
from ._loop import signals_received
from ._signals import signals
from .remote._sources import FileSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.deployment.faults import FaultOrder
    from lmos_actors.errors import ConnectFailed
    from lmos_actors.transport import Endpoint

    from .options._fault_proxy import FaultProxyOptions

MOST_FAULTS: Final = 1_000
"""Maximum faults in force at once."""

_LINES: Final = Stream(content_type="text/plain", schema={"type": "string"})


def _addresses(options: FaultProxyOptions) -> tuple[Endpoint, Endpoint]:
    """Return the address to listen at, and the server. Raises ConfigError."""
    listen, to = _address(options.listen, "--listen"), _address(options.to, "--to")
    if not to.port:
        raise ConfigError("port 0 is of no server", "--to")
    here = is_loopback(listen.host)
    if not here and not options.insecure:
        why = f"other machines would reach {to.authority} through it: --insecure allows it"
        raise ConfigError(why, "--listen")
    if listen.port == to.port and (listen.host == to.host or (here and is_loopback(to.host))):
        raise ConfigError("leads back to the proxy itself", "--to")
    return listen, to


def _rules(options: FaultProxyOptions) -> LinkRules:
    """Return the rules of the links. Blocks on the disk. Raises ConfigError."""
    bandwidth = None if options.bandwidth is None else read_at(Size.parse, options.bandwidth, "--bandwidth")
    if bandwidth == 0:
        raise ConfigError("a line without bandwidth carries nothing", "--bandwidth")
    return LinkRules(
        latency=None if options.latency is None else read_at(delay_of, options.latency, "--latency"),
        jitter=None if options.jitter is None else read_at(delay_of, options.jitter, "--jitter"),
        loss=read_at(share_of, options.loss, "--loss"),
        corrupt=read_at(share_of, options.corrupt, "--corrupt"),
        bandwidth=None if bandwidth is None else float(bandwidth),
    )


def _address(text: str, option: str) -> Endpoint:
    found = address_in(text, option)
    if "/" in text:
        raise ConfigError(f"{text!r} is not HOST:PORT", option)
    return found


def run_fault_proxy(options: FaultProxyOptions) -> int:
    """Forward data, with faults, until a signal comes. Returns the exit code. Raises ConfigError, OSError."""
    running = _Running(options)
    raise_descriptor_limit(8_320)  # both ends of all connections that a proxy may have, and some more
    try:
        with signals.in_order():
            trio.run(running.run)
    except ConfigError as error:
        if error.__cause__ is None:
            raise
        running.answers.wrong(str(error))  # an address that is taken
        return COULD_NOT_RUN
    return OK


class _Running:
    """One run of `fault-proxy`."""

    def __init__(self, options: FaultProxyOptions) -> None:
        self.answers = AnswerPrinter(json=options.json)
        self._seed = options.seed
        self._listen, self._to = _addresses(options)
        self._server = _shown(self._to.host, self._to.port)
        self._links = links_with(_rules(options), options.seed)
        self._source = _faults_from()
        self._in_force: dict[int, str] = {}
        self._unreachable: tuple[str, int] = ("", 0)  # why, and how often since it was printed
        self._news = trio.Event()
        self._failure: ConfigError | OSError | None = None

    async def run(self) -> None:
        """Listen, read faults and carry them out. Raises ConfigError, OSError."""
        proxy = FaultProxy(self._listen, self._to, self._links, on_unreachable=self._note_unreachable)
        async with proxy, trio.open_nursery() as nursery:
            with signals_received() as received:  # before anybody learns that it runs
                nursery.start_soon(self._guarded, self._announce, nursery, proxy)
                await anext(received)
            nursery.cancel_scope.cancel("a signal to stop")
        sums = proxy.statistics()
        text = f"{sums.connections} connections, {sums.bytes_in:,} bytes in, {sums.bytes_out:,} bytes out"
        members = attrs.asdict(sums)
        del members["open"]
        await self._say(text, "stopped", **members)
        if self._failure is not None:
            raise self._failure

    async def _guarded(self, work: Callable[..., Awaitable[None]], nursery: trio.Nursery, *args: Any) -> None:
        """Run `work`; an error in it ends the command, and `run` raises it without an exception group."""
        try:
            await work(nursery, *args)
        except (ConfigError, OSError) as error:
            self._failure = error
            nursery.cancel_scope.cancel("an error")

    # ---- faults

    async def _read_faults(self, nursery: trio.Nursery, source: FileSource, proxy: FaultProxy) -> None:
        number = 0
        async with aclosing(source.items(_LINES)) as lines:
            async for line in lines:
                try:
                    order = order_of(line, source.place_of(number))
                except ConfigError as error:
                    if not source.is_terminal:
                        raise
                    self.answers.wrong(error.message)
                else:
                    await self._carry_out(order, nursery, proxy)
                number += 1

    async def _carry_out(self, order: FaultOrder, nursery: trio.Nursery, proxy: FaultProxy) -> None:
        if order.kind == "reset":
            closed = proxy.reset()
            await self._say(f"reset {count(closed, 'connection')}", "reset", connections=closed)
        elif order.kind == "heal":
            if not self._in_force:
                self.answers.note("there is nothing to heal")
            for number in tuple(self._in_force):
                await self._heal(proxy, number)
        elif len(self._in_force) >= MOST_FAULTS:
            raise ConfigError(f"{MOST_FAULTS:,} faults are in force: heal ends them")
        else:
            number = proxy.cut(order.way) if order.fault is None else proxy.begin(order.fault)
            self._in_force[number] = order.kind
            if order.duration is not None:
                nursery.start_soon(self._guarded, self._heal_after, nursery, proxy, number, order.duration)
            members = {"id": number, "fault": order.kind, "words": order.words}
            text = order.words if order.duration is not None else f"{order.words}, until heal"
            await self._say(text, "fault", **members, way=order.way, duration=order.duration)

    async def _heal_after(self, _: trio.Nursery, proxy: FaultProxy, number: int, seconds: float) -> None:
        await trio.sleep(seconds)
        if number in self._in_force:
            await self._heal(proxy, number)

    async def _heal(self, proxy: FaultProxy, number: int) -> None:
        kind = self._in_force.pop(number)
        proxy.heal(number)
        await self._say(f"healed: {kind}", "healed", id=number, fault=kind)

    # ---- output

    async def _say(self, text: str, event: str, **members: Any) -> None:
        await self.answers.print(OutputLine({"event": event, **members}, text))

    async def _announce(self, nursery: trio.Nursery, proxy: FaultProxy) -> None:
        """Print the address to which clients connect, and then begin to read faults."""
        for host, port in proxy.addresses:
            members = {"host": host, "port": port, "to": self._server, "seed": self._seed}
            text = f"{_shown(host, port)} leads to {self._server}, Ctrl-C ends"
            await self._say(text, "listening", **members)
        nursery.start_soon(self._guarded, self._report_unreachable, nursery)
        if self._source is not None:
            await self._read_faults(nursery, self._source, proxy)

    def _note_unreachable(self, failure: ConnectFailed) -> None:
        self._unreachable = failure.why, self._unreachable[1] + 1
        self._news.set()

    async def _report_unreachable(self, _: trio.Nursery) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            (why, times), self._unreachable = self._unreachable, ("", 0)
            text = f"cannot connect to {self._server}: {why}" + (f" ({times} times)" if times > 1 else "")
            await self._say(text, "unreachable", why=why, times=times)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _faults_from() -> FileSource | None:
    """Return the standard input; None if it is closed, or a terminal that another process reads from."""
    try:
        source = FileSource("-")
    except ConfigError:
        return None
    if not source.is_terminal:
        return source
    try:  # reading from the terminal would stop the process, as after a shell's `command &`
        is_in_background = os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except (AttributeError, OSError):  # there is no job control, on this system or at this terminal
        is_in_background = False
    return None if is_in_background else source
