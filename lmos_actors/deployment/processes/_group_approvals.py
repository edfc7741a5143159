"""The approvals of all groups in one list on the launcher's page, and the decisions on them.

Each process keeps its agents' questions, and only that process decides on them. The launcher connects to a
process as a viewer of its live view and as a client of its agent `approvals`, on this machine and without
credentials. So it has the rights that the process's rules give to every program on this machine. If the rules
demand credentials, the launcher gets no questions, and the list shows the reason.

A question is kept with the agent that asks it, even if an agent in another group waits for the answer. So
each question is in the list once.

What this module guarantees:

- **Without viewers, no process is watched.** The processes are watched while there are viewers, and a few
  seconds longer.
- **A process that hangs or sends invalid data does not affect the others.** Each process has a separate task
  and connection. Its data is checked and bounded, and so is the number of watched processes. The questions of
  one process do not displace those of others: the newest questions of each process are in the list.
- **A decision is reported once its process has kept it.** If that is not known, the report says so.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import msgspec
import trio
from msgspec import UNSET, Meta, Struct, UnsetType

from lmos_actors._core import printable
from lmos_actors.assembly import open_node
from lmos_actors.errors import (
    ActionFailed,
    ConfigError,
    ConnectFailed,
    Forbidden,
    InvalidInput,
    LmosActorsError,
    NotAllowed,
    NotFound,
)
from lmos_actors.live import Refused, open_live
from lmos_actors.security import is_loopback
from lmos_actors.transport import ConnectionOptions, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.live import Do, LiveClient
    from lmos_actors.transport import Network

    from ._group import Group, Member

STEP: Final = 0.5
"""Seconds between two checks for new processes."""

AGAIN: Final = 2.0
"""Seconds after which a process that did not answer is tried again."""

ANSWERS: Final = 5.0
"""Seconds for a process to show its agents' questions."""

DECIDES: Final = 10.0
"""Seconds for a process to keep a decision."""

PROCESSES: Final = 64
"""Maximum processes that are watched: each takes a connection, and a viewer there."""

EACH: Final = 50
"""Maximum questions that one process is asked to show."""

MOST_BYTES: Final = 1 << 20
"""Maximum bytes shown by one process."""

ROOM: Final = 768 << 10
"""Maximum bytes of all that is shown at once: a view has a megabyte."""

WORDS: Final = 200
"""Maximum characters of the reason why a process does not answer."""

DEEP: Final = 64
"""Maximum nesting of objects and lists in a form, and in an answer: more is neither shown nor passed on."""

MOST_WAITING: Final = 1_000_000
"""Maximum number of waiting questions that one process can report: a page shows it, and the sum."""

LIMITS: Final = ConnectionOptions(
    max_message_bytes=2 * MOST_BYTES, heartbeat_seconds=2.0, heartbeat_grace=3.0, close_seconds=1.0
)

ASKED: Final = "is being asked"
SILENT: Final = "does not answer"
ODD: Final = "shows what cannot be read"
GUARDED: Final = (
    "has access rules: log in at its own page, or decide by `lmos-actors approvals` with credentials"
)
CLOSED: Final = "lets nobody decide: its group has no `allow_operations`"
ELSEWHERE: Final = "has no page of its own at an address of this machine alone"

UNDECIDED: Final = "decides nothing"
UNKNOWN: Final = "has not said whether it has kept the decision: the list shows it once it answers"

State = dict[str, Any]


class _Row(Struct, kw_only=True):
    """The members of a question that are shown, from the view of its process."""

    id: Annotated[str, Meta(max_length=100)]
    agent: str
    text: str
    state: str
    asked: float
    expires: float
    key: str = ""
    data: str | UnsetType = UNSET
    form: State | UnsetType = UNSET
    form_left_out: bool = False
    awaited: bool = True
    earlier: int = 0
    by: str | UnsetType = UNSET
    decided: float | UnsetType = UNSET
    note: str = ""
    answer: str | UnsetType = UNSET


class _Shown(Struct):
    """The approvals view that one process sends."""

    waiting: Annotated[int, Meta(ge=0, le=MOST_WAITING)]
    order: list[str]
    rows: dict[str, _Row]


@attrs.define(eq=False)
class _Seen:
    """The questions of one run of a process.

    `why` is the reason if the questions are not known, and "" if they are.
    """

    life: tuple[object, str]
    why: str = ASKED
    waiting: int = 0
    rows: list[tuple[State, int]] = attrs.Factory(list[tuple[State, int]])
    """The questions with their bytes: those that wait first, the newest first."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    def take(self, state: State) -> None:
        """Replace the questions with those in a view of the process. Raises MsgspecError, ValueError."""
        if len(msgspec.json.encode(state)) > MOST_BYTES:
            raise ValueError(MOST_BYTES)
        found = msgspec.convert(state, _Shown)
        order = islice((id for id in dict.fromkeys(found.order) if id in found.rows), EACH)
        rows = [found.rows[id] for id in order]
        if any(_is_deep(row.form) for row in rows):
            raise ValueError(DEEP)
        self.rows = [(msgspec.to_builtins(row), len(msgspec.json.encode(row))) for row in rows]
        self.waiting, self.why = found.waiting, ""

    def lose(self, why: str) -> None:
        """Forget the questions of the process, and set the reason why they are not known."""
        self.waiting, self.rows, self.why = 0, [], why


class GroupApprovals:
    """The questions of all processes of `groups` that are reached over `network`.

    `own` returns the address of the page that shows them, which no process may pass off as its own.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        network: Network | None,
        start_soon: Callable[..., object],
        own: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._own = own
        self._network = network
        self._start_soon = start_soon
        self._seen: dict[str, _Seen] = {}
        self._left_out = 0
        self._until = -inf
        self._runs = False

    def content(self, most: int) -> State:
        """Return the questions by `weather/1/ID`: waiting ones before decided ones, the newest first.

        In the result, `waiting` is the number of waiting questions, `apart` gives the reason for each process
        without known questions, and `left_out` is the number of processes that are not watched. Each call
        counts as a look by a viewer, after which processes are watched for five seconds. Never blocks.
        """
        self._until = trio.current_time() + 5.0
        if not self._runs:
            self._runs = True
            self._start_soon(self._run, name="approvals of groups")
        seen, rows = self._seen.items(), self._chosen(most)
        order = sorted(rows, key=lambda key: (rows[key]["state"] != "waiting", -rows[key]["asked"], key))
        return {
            "waiting": sum(each.waiting for _, each in seen),
            "order": order,
            "rows": rows,
            "apart": {name: each.why for name, each in seen if each.why},
            "left_out": self._left_out,
        }

    def _chosen(self, most: int) -> dict[str, State]:
        """Return the rows that fit into the list.

        Rows within the share of their process come first.
        """
        share = ROOM // max(1, sum(bool(each.rows) for each in self._seen.values()))
        found: list[tuple[bool, bool, int, str, State, int]] = []
        for name, each in self._seen.items():
            left = share
            for rank, (row, size) in enumerate(each.rows):
                left -= size
                found.append((left < 0, row["state"] != "waiting", rank, name, row, size))
        found.sort(key=lambda each: each[:3])
        rows, room = dict[str, State](), ROOM
        for *_, name, row, size in found:
            if size <= room and len(rows) < most:
                room -= size
                rows[f"{name}/{row['id']}"] = {**row, "process": name}
        return rows

    # ---- looking at the processes

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                while trio.current_time() < self._until:
                    self._follow(nursery)
                    await trio.sleep(STEP)
                nursery.cancel_scope.cancel("nobody looks any more")
        finally:
            self._runs = False
            self._seen.clear()

    def _follow(self, nursery: trio.Nursery) -> None:
        """Watch processes that have started, and drop processes that have ended."""
        every = [
            (f"{name}/{number}", group.members[number])
            for name, group in self._groups.items()
            for number in sorted(group.members)
        ]
        self._left_out = max(len(every) - PROCESSES, 0)
        before, self._seen = self._seen, {}
        for name, member in islice(every, PROCESSES):
            life, seen = (member.replica, member.page), before.get(name)
            if seen is None or seen.life != life:
                seen = _Seen(life)
                if self._is_near(member.page):
                    nursery.start_soon(self._watch, seen)
            else:
                del before[name]
            if not self._is_near(member.page):
                seen.why = _not_there(member)
            self._seen[name] = seen
        for gone in before.values():
            gone.scope.cancel("its process has ended")

    async def _watch(self, seen: _Seen) -> None:
        """Keep the view of a process up to date, and try again when it does not answer."""
        with seen.scope:
            while True:
                why = SILENT
                try:
                    with trio.CancelScope(deadline=trio.current_time() + ANSWERS) as opening:
                        page, network = seen.life[1], self._network
                        async with open_live(page, network=network, options=LIMITS) as client:
                            why = await _read(client, seen, opening)
                except ConnectFailed as error:
                    why = GUARDED if error.status in (401, 403) else _with_reason(SILENT, error.why)
                except (LmosActorsError, OSError) as error:
                    why = _with_reason(SILENT, str(error))
                except Exception:  # of what it has sent: that is not to end the launcher
                    why = ODD
                seen.lose(why)
                await trio.sleep(inf if why in (GUARDED, CLOSED) else AGAIN)

    def _is_near(self, page: str) -> bool:
        """Return whether a process printed the address of a page here that is not the launcher's."""
        try:
            endpoint = endpoint_of(page)
        except ConfigError:
            return False
        is_page = page.endswith("/") and endpoint.target == "/" and page != self._own()
        return is_page and is_loopback(endpoint.host)

    # ---- decisions

    async def decide(self, do: Do, name: str, member: Member, id: str) -> str:
        """Have the process `name` decide a question; return a text on the outcome. Raises Refused."""
        given: State = {"id": id, "note": do.note}
        if do.answer:
            try:
                given["answer"] = msgspec.json.decode(do.answer)
            except (msgspec.DecodeError, RecursionError) as error:
                raise Refused("ANSWER_INVALID", f"the answer is no JSON: {error}") from None
            if _is_deep(given["answer"]):
                raise Refused("ANSWER_INVALID", f"the answer is nested deeper than {DEEP} levels")
        if not self._is_near(member.page):
            raise Refused("GONE", f"{name} {_not_there(member)}: nothing is decided")
        kept: Any = None
        is_sent, why = False, f"no answer within {DECIDES:g} s"
        with trio.move_on_after(DECIDES):
            try:
                async with open_node(network=self._network, connection=LIMITS) as client:
                    approvals = await client.consume_thing(f"{member.page}agents/approvals")
                    is_sent = True
                    kept = await approvals.invoke(do.what, given)
            except ActionFailed as error:
                code, why = error.code or "FAILED", error.detail or str(error)
                raise Refused(code[:WORDS], printable(why[: 5 * WORDS])) from None
            except (InvalidInput, NotAllowed, NotFound, Forbidden) as error:
                is_sent, why = False, str(error)
            except (LmosActorsError, OSError) as error:
                why = str(error)
            except Exception:  # of what it has sent: that is not to end the launcher
                why = f"it {ODD}"
        if kept is None:
            raise Refused("FAILED", _with_reason(f"{name} {UNKNOWN if is_sent else UNDECIDED}", why))
        return _outcome(kept)


async def _read(client: LiveClient, seen: _Seen, opening: trio.CancelScope) -> str:
    """Read the views of a process until that fails, and return the reason.

    `opening` limits the wait for the first view.
    """
    if client.hello is None or "approve" not in client.hello.rights:
        return CLOSED
    client.look("asked", "approvals", rows=EACH)
    while True:
        await client.wait()
        if client.errors or client.done or client.progress:
            return _with_reason(ODD, *(each.message for each in client.errors[:1]))
        state = client.views.get("asked")
        if state is None:
            continue
        opening.deadline = inf
        try:
            seen.take(state)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return ODD


def _is_deep(value: Any, room: int = DEEP) -> bool:
    """Return whether objects and lists are nested too deeply."""
    inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return any(not room or _is_deep(each, room - 1) for each in inner)


def _not_there(member: Member) -> str:
    if member.state == "ready":
        return ELSEWHERE
    return "has failed" if member.state == "failed" else f"is {member.state}"


def _with_reason(text: str, *why: str) -> str:
    return ": ".join((text, *(printable(each[:WORDS]) for each in why)))


def _outcome(kept: Any) -> str:
    """Return a text on the decision that a process has kept. Raises Refused if the decision is unreadable."""
    try:
        found = msgspec.convert(kept, _Kept)
    except msgspec.ValidationError:
        raise Refused(
            "FAILED", "what its process answers cannot be read: the list shows whether it is decided"
        ) from None
    idle = "" if found.awaited or found.once else "; no call waits for it: it is kept for the next one"
    return printable(f"{found.state}: {found.agent} asks: {found.text[:WORDS]}{idle}")


class _Kept(Struct):
    """A decided question, as the agent `approvals` returns it."""

    state: str
    agent: str
    text: str
    awaited: bool = True
    once: bool = False
