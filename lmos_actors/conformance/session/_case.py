"""The context in which a case for a server of LMOS runs."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lmos_actors.conformance.target import Roles
from lmos_actors.conformance.wire import (
    ConnectionGone,
    Refused,
)

from ._judge import JudgedServer
from ._messages import faults
from ._probe import NoAnswer, Probe
from ._session import AS_WRITTEN, Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from random import Random

    from lmos_actors.conformance.target import Call, Hints, Target
    from lmos_actors.conformance.wire import Headers, Socket

    from ._messages import ReceivedMessage
    from ._probe import Case
    from ._session import Dialect


Run: TypeAlias = "Callable[[CaseContext], Awaitable[None]]"


_WITHOUT_SOCKET: Final = ("handshake", "description", "http")  # groups that need no open WebSocket


@attrs.define(kw_only=True)
class LmosServer(JudgedServer["CaseContext"]):
    """A server of LMOS.

    `dialect`: the dialect that the kit uses unless a case needs another. `triggers`: by event, the call that
    makes it happen, or None if none was found.
    """

    target: Target
    hints: Hints
    dialect: Dialect = AS_WRITTEN
    triggers: dict[str, Call | None] = attrs.field(factory=dict[str, "Call | None"])

    @property
    def spoken(self) -> str:
        """The dialect that the kit uses with the server, in words."""
        return str(self.dialect)

    def context(self, random: Random) -> CaseContext:
        """Return a new context of a case, without any open connection."""
        return CaseContext(self, random)

    async def connect(self, context: CaseContext) -> object:
        """Open a connection in a context, if there is a socket. Raises Unreachable and Refused."""
        return None if self.target.socket is None else await context.socket()

    def places(self) -> Sequence[str]:
        """Return the URLs to which the kit has sent credentials."""
        return [each for each in (self.target.socket, self.target.thing.where) if each is not None]

    def does_without(self, case: Case[CaseContext]) -> bool:
        """Return whether a case needs no WebSocket, so that it is run even if all handshakes are refused."""
        return case.group in _WITHOUT_SOCKET


class CaseContext(Probe):
    """The context of one case, which opens connections, closes them at its end, and records findings."""

    def __init__(self, shared: LmosServer, random: Random) -> None:
        super().__init__(shared.options.access(shared.network), random)
        self.shared = shared
        self.target = shared.target
        self.roles = Roles(
            target=shared.target,
            hints=shared.hints,
            allow_unsafe=shared.options.allow_unsafe,
            seed=str(shared.options.seed),
        )

    # --- verdicts

    def offers(self, word: str) -> None:
        """End the case unless the description offers the extension of lmos_actors named `word`."""
        if word not in self.target.offers:
            self.not_offered(f"lmosx:offers does not name {word}")

    def expect(self, received: ReceivedMessage, *kinds: str) -> ReceivedMessage:
        """Return a message; fail unless it is of one of the given kinds."""
        if received.kind not in kinds:
            self.fail(received)
        return received

    @contextmanager
    def left_to(self, case: str, silence: tuple[type[Exception], ...] = (NoAnswer,)) -> Generator[None]:
        """End the case if the server does not answer in a block, since the case named `case` judges that."""
        try:
            yield
        except silence as why:
            self.not_offered(f"{why} (see {case})")

    def prerequisite(self, received: ReceivedMessage, kind: str, case: str) -> ReceivedMessage:
        """Return a message of the given kind; for any other, end the case, as the case `case` judges that."""
        if received.kind != kind:
            self.not_offered(f"{received} (see {case})")
        return received

    def judge(self, received: ReceivedMessage, *keys: str, members: tuple[str, ...] | None = None) -> None:
        """Compare a message with the specification, and note its faults that have one of the given keys.

        `members` restricts this to faults in these members.
        """
        for fault in faults(received):
            if fault.key in keys and (members is None or fault.member in members):
                self.differs(fault.key, f"{fault.what} in {received.kind or 'a message'}")

    # --- connections

    async def socket(
        self,
        *,
        offered: tuple[str, ...] | None = None,
        headers: Headers = (),
        without: tuple[bytes, ...] = (),
        url: str | None = None,
    ) -> Socket:
        """Open a connection like `open`, to the judged server and in the dialect that it understands.

        Raises Unreachable, and Refused for any answer but 101.
        """
        url = url or self.target.socket
        if url is None:
            self.not_offered("its description leads to no WebSocket")
        if offered is None:
            offered = ("lmosprotocol",) if self.shared.dialect.offered else ()
        return await self.open(url, offered=offered, headers=headers, without=without)

    async def session(self, dialect: Dialect | None = None, *, thing: str | None = None) -> Session:
        """Open a connection in a dialect, by default the one that the server was found to understand.

        Raises Unreachable and Refused.
        """
        dialect = self.shared.dialect if dialect is None else dialect
        socket = await self.socket(offered=("lmosprotocol",) if dialect.offered else ())
        thing = self.target.thing.id if thing is None else thing
        return Session(socket, dialect, thing, self.random, self.patience)

    # --- what cases have in common

    async def flush(self, session: Session, *, but: str | None = None) -> None:
        """Make one more request, and so wait until everything sent on this connection has been processed.

        `but`: a property that must not be read.
        """
        name = self.target.any_property(but=but)
        with suppress(NoAnswer):
            await session.ask("readProperty", name=name)

    async def invoke(self, session: Session, call: Call, **members: Any) -> ReceivedMessage:
        """Invoke an action, and wait for its final answer."""
        return await session.final(await session.begin(call, **members))

    async def trigger(self, event: str) -> Call:
        """Return the call that makes an event happen: the call in the hints, or one found by trying actions.

        Raises NotRun if none is known, or if it may not be invoked.
        """
        known = self.shared.triggers
        if event not in known:
            known[event] = await self._find_trigger(event)
        call = known[event]
        if call is None:
            self.not_run(f"nothing was found that makes {event} happen: name it under triggers, --hints")
        return call

    async def _find_trigger(self, event: str) -> Call | None:
        hinted = self.shared.hints.triggers.get(event)
        if hinted is not None:
            return self.roles.allowed(hinted)
        for call in self.roles.triggers(event):
            try:
                listening, asking = await self.session(), await self.session()
                sent = await listening.send("subscribeEvent", name=event)
                if listening.dialect.is_kotlin:
                    with suppress(NoAnswer):
                        await listening.answer(sent)
                else:
                    await self.flush(listening)
                await self.invoke(asking, call)
                if await listening.event(event) is not None:
                    return call
            except (NoAnswer, ConnectionGone, Refused):
                continue
        return None
