"""The names of agents on the hub of a file, and checks of which agents can be on the hub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.errors import nearest
from lmos_actors.files import did_you_mean, listed, mapped

from ._remote_access import entry_mistakes
from .model import COMMANDS, HUB, USER, WORLDS, Bridge, Mock, Relay, Replay, is_real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmos_actors.files import DataPath

    from .model import CellData
    from .values import Schema

    Report = Callable[..., object]

HUB_PLACE: Final[DataPath] = (HUB,)
"""The place of the hub in a file."""

URLS: Final = ("ws://", "wss://", "http://", "https://")

TYPES: Final = ("question", "answer", "data", "discovery", "proposal", "vote", *COMMANDS)
"""The message types that hubs and bridges understand."""

VOTE: Final[Schema] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean"}},
    "required": ["approve"],
    "additionalProperties": False,
}
"""The payload of a vote."""

NO_VOTING: Final = 'the type "{}" needs the extension "voting" of the hub: "relay: {{extensions: [voting]}}"'

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,62}[a-z0-9]")
_IDS: Final = "3 to 64 of a-z, 0-9 and hyphens, none of them at an end"
_ACCESS: Final = ("bearer", "basic", "ca", "cert", "key", "insecure")


class HubNames:
    """The names on the hub of one cell.

    `report` is called for mistakes, `warn` for possible mistakes, and `refuse` for keys that are not allowed.
    """

    def __init__(self, cell: CellData, hub: Any, report: Report, warn: Report, refuse: Report) -> None:
        self._cell = cell
        self._refuse = refuse
        self._report = report
        self._warn = warn
        self.hub: Relay | None = hub if isinstance(hub, Relay) else None
        """The hub; None if the file has none, or its entry has mistakes."""
        self.names: dict[str, DataPath] = {}
        """The agents of the file on the hub, with their places."""

    @property
    def is_there(self) -> bool:
        """Whether the file has a hub, even one with mistakes."""
        return HUB in self._cell.data

    @property
    def has_user(self) -> bool:
        """Whether `user` is on the hub."""
        return any(
            map(_is_said_or_heard, all_steps(self._cell.data.get("steps"), self._cell.data.get("timeline")))
        )

    def has(self, extension: str) -> bool:
        """Return whether the hub has an extension; True also if the hub is not known."""
        return self.hub is None or extension in self.hub.extensions

    def note_type(self, kind: str | None, path: DataPath) -> None:
        """Warn about a message type that resembles a known one; any other type is accepted."""
        near = None if kind is None or kind in TYPES else nearest(kind, TYPES)
        if near is not None:
            self._warn(path, f'messages of the type "{kind}" are of your own: did you mean "{near}"?')

    def needs(self, path: DataPath, what: str) -> bool:
        """Return whether the file has a hub; if not, report that `what` needs one."""
        if not self.is_there:
            self._report(
                path, f'{what} needs a hub, which the file has not: "relay: {{}}" makes its node one'
            )
        return self.is_there

    def check_name(self, name: str, path: DataPath, *others: str) -> bool:
        """Check that an agent is on the hub; the names in `others` are allowed, too."""
        if name in self.names or name in others:
            return True
        self._report(path, f'"{name}" is not on the hub{did_you_mean(name, [*self.names, *others])}')
        return False

    def add(self, name: str, entry: Bridge | Mock | Replay, path: DataPath) -> None:
        """Register an agent that uses `relay`, and check that its name is allowed on the hub."""
        if isinstance(entry, Bridge) and entry.url is not None:
            return
        self.names[name] = path
        if self.needs((*path, "speaks"), '"speaks: relay"') and not _ID.fullmatch(name) and name != HUB:
            self._report(path, f'"{name}" cannot be a name on a hub: it has {_IDS}', "shape", key=True)

    def check(self) -> None:
        """Check the hub itself, once all names are known."""
        if not self.is_there:
            return
        if not self.names and not self.has_user:
            why = '"relay" does nothing: no agent of the file speaks relay, and no step says anything'
            self._report(HUB_PLACE, why, key=True)
        hub = self.hub
        if hub is None:
            return
        for index, extension in enumerate(hub.extensions):
            if extension in hub.extensions[:index]:
                self._report((HUB, "extensions", index), f'"{extension}" is named twice', "shape")
        if hub.weights and not self.has("voting"):
            why = '"weights" are those of votes: the hub needs the extension "voting"'
            self._report((HUB, "weights"), why, "shape", key=True)
        for name in hub.weights:
            if name not in self.names and name != USER:
                near = did_you_mean(name, [*self.names, USER])
                self._report((HUB, "weights", name), f'"{name}" is not on the hub{near}', key=True)
        if hub.max_message is not UNSET and not hub.max_message:
            self._report((HUB, "max_message"), "a message has some bytes", "shape")

    def check_bridge(self, entry: Bridge, path: DataPath) -> None:
        """Check that the keys of a bridge fit its protocol and its target."""
        world = self._cell.data.get("world", "memory")
        if entry.speaks == "omnia":
            if (entry.to is None) == (entry.url is None):
                why = 'a bridge leads to an agent of the file, "to", or elsewhere, "url": give one of them'
                self._report(path, why, "shape", key=True)
            self._refuse(entry, path, 'goes with "speaks: relay"', "access", "follows")
        elif entry.to is None:
            self._refuse(entry, path, 'goes with "to", the agent that is asked', "access")
        else:
            self._refuse(entry, path, 'is for a bridge without "to", which hears what is said', "follows")
        if entry.url is None:
            what = "relay" if entry.speaks == "relay" else "server"
            self._refuse(entry, path, f'goes with "url", a {what} elsewhere', *_ACCESS)
        for key, message in entry_mistakes(entry) if entry.url is not None else ():
            self._report((*path, key), message, "shape")
        if entry.url is not None and not entry.url.startswith(URLS):
            self._report((*path, "url"), f'"{entry.url}" begins with none of {", ".join(URLS)}', "shape")
        elif entry.url is not None and world in WORLDS and not is_real(world):
            message = f"a bridge leads elsewhere in world: websocket, not in world: {world}"
            self._report((*path, "url"), message)


def all_steps(*parts: Any) -> Iterator[dict[str, Any]]:
    """Yield all steps and entries in the data of a file, including nested ones."""
    for raw in (raw for part in parts for raw in listed(part)):
        step = mapped(raw)
        yield step
        yield from all_steps(step.get("steps"), *listed(step.get("branches")))


def _is_said_or_heard(step: dict[str, Any]) -> bool:
    return step.get("do") == "say" or (step.get("do") == "expect" and step.get("that") == "heard")
