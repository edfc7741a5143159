"""Operations on a running node: restart, stop, hold and release an agent; drain the node.

A task of the node carries out each operation, so that the operation continues even if its viewer leaves. The
answer is sent once the operation has ended. An id names one operation of one viewer: if a viewer that got no
answer sends the same message again, it gets the answer to the first one, and nothing is done twice.

A hold by an operator counts once, and an operator undoes it; holds by a scenario or a program are counted
separately. A hold belongs to the place in the tree and outlasts restarts.

The node of a launcher has other operations in place of these, as its tree shows processes.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import msgspec
import trio

from lmos_actors._core import printable
from lmos_actors.actors import Ref, Slot, hold, release
from lmos_actors.errors import LmosActorsError, NotFound, StopFailed, WrongState
from lmos_actors.supervision import Supervisor, place_at, supervisor_of

from ._messages import Done, Progress, Refused, Wrong, unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lmos_actors.security import Verb

    from ._audit import Audit, AuditEntry
    from ._messages import Do
    from ._survey import StartSoon

    Answer = Done | Wrong
    Reply = Callable[[Answer | Progress], None]

Operation: TypeAlias = "Callable[[str, Callable[[str], None]], Awaitable[str]]"
"""Carries an operation out at a path: returns the outcome in words, and reports progress before that.

Raises Refused, NotFound and other LmosActorsErrors."""

Decision: TypeAlias = "Callable[[Do], Awaitable[str]]"
"""Carries out a decision that was asked for; returns the outcome in words. Raises as an Operation does."""


@attrs.frozen
class OwnOperations:
    """A node's own operations, by name, in place of those on agents.

    `fitting` returns the operations that apply to a path. `decisions` answer the questions that agents ask
    people; they require the right `approve` in place of `operate`.
    """

    kinds: Mapping[str, Operation]
    fitting: Callable[[str], list[str]]
    decisions: Mapping[str, Decision] = attrs.Factory(dict[str, "Decision"])


REMEMBERED: Final = 512
"""Operations whose answers are kept for viewers that ask again."""

AT_ONCE: Final = 32
"""Operations that are carried out at once."""

CHARACTERS: Final = 1_000
"""Characters of the reason of a failure."""

NODE_WIDE: Final = ("drain",)
"""Operations on the node as a whole; they take no path."""


@attrs.define
class _Asked:
    """A requested operation: its answer, or the viewers that wait for the answer."""

    do: Do
    answer: Answer | None = None
    waiting: dict[Reply, None] = attrs.field(factory=dict["Reply", None])
    """The viewers that wait, each once, however often it asks."""


def _remembered(do: Do) -> Do:
    """Return a request in the form that is kept: a digest replaces its long texts.

    Many requests are kept, and whole texts would take too much memory.
    """
    said = blake2s(msgspec.json.encode((do.note, do.answer))).hexdigest()
    return msgspec.structs.replace(do, note="", answer=said)


class Operations:
    """The operations of one node. `drain` starts to drain the node, and never blocks.

    If given, `own` are the operations of this node in place of the usual ones.
    """

    def __init__(
        self,
        root: Supervisor,
        audit: Audit,
        start_soon: StartSoon,
        drain: Callable[[], None],
        own: OwnOperations | None = None,
    ) -> None:
        self._root = root
        self._audit = audit
        self._start_soon = start_soon
        self._drain = drain
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()
        self._under_way = 0
        self._held: dict[Slot, None] = {}
        usual: dict[str, Operation] = {
            "restart": self._restart,
            "stop": self._stop,
            "hold": self._hold,
            "release": self._release,
        }
        self._own = own
        self._kinds = usual if own is None else dict(own.kinds)
        self._decisions = {} if own is None else dict(own.decisions)
        self._node_wide = NODE_WIDE if own is None else ()

    @property
    def names(self) -> list[str]:
        """The names of all operations."""
        return sorted((*self._kinds, *self._decisions, *self._node_wide))

    def right_for(self, what: str) -> Verb:
        """Return the right that an operation requires."""
        return "approve" if what in self._decisions else "operate"

    def fitting(self, path: str) -> list[str]:
        """Return the operations that apply to a path now, in the order in which they are offered."""
        if self._own is not None:
            return self._own.fitting(path)
        place = place_at(self._root, path)
        if place is None:
            return []
        if isinstance(place, Supervisor) and place.is_root:
            return list(NODE_WIDE)
        is_stopped = place.status == "stopped"
        if not isinstance(place, Slot):
            return ["restart"] if is_stopped else ["restart", "stop"]
        temporary = cast("str", place.spec.restart) == "temporary"
        again = [] if temporary else ["restart"]
        return [*again, *([] if is_stopped else ["stop"]), "release" if place in self._held else "hold"]

    def ask(self, do: Do, who: str, why_not: str, reply: Reply) -> None:
        """Carry out an operation, and reply once it has ended. Never blocks.

        `who` is the name of the viewer. `why_not` is the reason why the viewer may not do this, or "" if it
        is permitted.
        """
        if do.what not in self.names:
            refused = unknown("operation", do.what, self.names)
            reply(Wrong(refused.code, refused.message, do.id))
            return
        if why_not:
            self._audit.refuse(who, do.what, do.path, why_not)
            reply(Wrong("FORBIDDEN", why_not, do.id))
            return
        known = self._asked.get((who, do.id))
        if known is not None:
            self._again(known, do, reply)
            return
        if self._under_way >= AT_ONCE:
            reply(Wrong("TOO_MANY", f"{AT_ONCE} operations are under way: wait for one of them", do.id))
            return
        asked = self._asked[who, do.id] = _Asked(do, waiting={reply: None})
        self._forget()
        self._under_way += 1
        entry = self._audit.begin(who, do.what, do.path)
        self._start_soon(partial(self._run, asked, entry), name=f"{do.what} {do.path}")

    def _again(self, known: _Asked, do: Do, reply: Reply) -> None:
        if known.do not in (do, _remembered(do)):
            text = f"this id is that of another operation: {known.do.what} {known.do.path}"
            reply(Wrong("ID_TAKEN", text, do.id))
        elif known.answer is None:
            known.waiting[reply] = None
        else:
            reply(known.answer)

    def _forget(self) -> None:
        for key, asked in tuple(self._asked.items()):
            if len(self._asked) <= REMEMBERED:
                return
            if asked.answer is not None:
                del self._asked[key]

    async def _run(self, asked: _Asked, entry: AuditEntry) -> None:
        do = asked.do
        answer: Answer = Wrong("ENDED", "the node has ended meanwhile", do.id)
        try:
            answer = await self._outcome(do, partial(self._has_come, asked))
        finally:
            self._under_way -= 1
            asked.answer, asked.do = answer, _remembered(do)
            is_done = isinstance(answer, Done)
            outcome = answer.outcome if isinstance(answer, Done) else f"{answer.code}: {answer.message}"
            self._audit.end(entry, "done" if is_done else "failed", outcome)
            waiting, asked.waiting = asked.waiting, {}
            for reply in waiting:
                reply(answer)
            if is_done and do.what == "drain":
                self._drain()

    @staticmethod
    def _has_come(asked: _Asked, text: str) -> None:
        """Report the progress of an operation to the viewers that wait for its answer."""
        do = asked.do
        for reply in asked.waiting:
            reply(Progress(do.id, do.what, do.path, text))

    async def _outcome(self, do: Do, say: Callable[[str], None]) -> Answer:
        await trio.lowlevel.checkpoint()
        try:
            if do.what in self._node_wide:
                return Done(do.id, do.what, do.path, "draining")
            if do.what in self._decisions:
                return Done(do.id, do.what, do.path, await self._decisions[do.what](do))
            return Done(do.id, do.what, do.path, await self._kinds[do.what](do.path, say))
        except Refused as refused:
            return Wrong(refused.code, refused.message, do.id)
        except NotFound as error:
            return Wrong("GONE", str(error), do.id)
        except LmosActorsError as error:
            return Wrong("FAILED", printable(str(error)[:CHARACTERS], keep="\n"), do.id)

    # ---- the operations; each returns its outcome in words

    async def _restart(self, path: str, _say: Callable[[str], None]) -> str:
        above, place = self._child(path)
        spec: Any = place.spec
        if isinstance(place, Slot) and spec.restart == "temporary":
            raise Refused(
                "TEMPORARY",
                f"{path} is temporary: once it has ended its supervisor knows it no more; "
                "stop ends it, and who has started it may start it again",
            )
        raised, outcome = "", "started"
        if place.status != "stopped":
            outcome = "restarted"
            try:
                await above.terminate_child(place.label)
            except StopFailed as error:
                raised = self._raised(error)
        try:
            await above.restart_child(place.label)
        except WrongState:
            if place.status not in ("running", "starting"):
                raise
            return "restarted, by another operation meanwhile"
        return f"{outcome}{raised}"

    async def _stop(self, path: str, _say: Callable[[str], None]) -> str:
        above, place = self._child(path)
        if place.status == "stopped":
            return "stopped already"
        try:
            await above.terminate_child(place.label)
        except StopFailed as error:
            return f"stopped{self._raised(error)}"
        return "stopped"

    async def _hold(self, path: str, _say: Callable[[str], None]) -> str:
        slot = self._slot(path)
        self._held = {each: None for each in self._held if not each.gone}
        if slot in self._held:
            return "held already"
        hold(Ref[Any](slot))
        self._held[slot] = None
        return "held"

    async def _release(self, path: str, _say: Callable[[str], None]) -> str:
        slot = self._slot(path)
        if slot not in self._held:
            if slot.held:
                raise Refused("NOT_OURS", f"no operator holds {path}, the program itself does")
            return "not held"
        del self._held[slot]
        release(Ref[Any](slot))
        return "released; the program itself holds it still" if slot.held else "released"

    def _raised(self, error: StopFailed) -> str:
        """Return a phrase about the error that an agent raised while it ended.

        The error is described as in its crash report, without the secrets of the agent.
        """
        cause = error.__cause__
        reports = reversed(self._root.rt.crashes.reports)
        report = next((each for each in reports if each.error is cause), None)
        text = type(cause).__name__ if report is None or cause is None else report.short(cause)
        return f", and raised while it ended: {text}"

    def _child(self, path: str) -> tuple[Supervisor, Slot | Supervisor]:
        """Return the supervisor of the child at a path, and the child itself. Raise Refused, NotFound."""
        place = place_at(self._root, path)
        if place is None:
            raise NotFound("agent", path)
        if isinstance(place, Slot):
            return supervisor_of(place), place
        parent = place.loop.parent
        if parent is None:
            raise Refused("INVALID", "the root supervisor ends with the node: give the path of a child")
        return Supervisor(parent), place

    def _slot(self, path: str) -> Slot:
        place = place_at(self._root, path)
        if place is None:
            raise NotFound("agent", path)
        if not isinstance(place, Slot):
            raise Refused("INVALID", f"{path or 'the root'} is a supervisor: only an agent can be held")
        return place
