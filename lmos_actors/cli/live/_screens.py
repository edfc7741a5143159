"""The screens of `top`, `tree` and `deadletters`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lmos_actors._core import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from lmos_actors.live import LiveClient

State = dict[str, Any]

MOST_ROWS: Final = 300

_NONE: Final = {
    "waiting": "no messages wait",
    "handled": "no messages come",
    "restarts": "no agent was restarted",
}
_MOST: Final = {"waiting": "waiting", "handled": "a second", "restarts": "restarts"}


def plain(text: object, style: str = "") -> Text:
    """Return text from a node, without terminal codes."""
    return Text(printable(str(text)), style)


def clock(seconds: float) -> str:
    """Return a Unix time as text: the date and the time of day in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def instant(client: LiveClient, seconds: float) -> str:
    """Return a time as text: date and time of day or, in a run, the seconds since its beginning."""
    is_of_run = client.hello is not None and client.hello.kind == "runs"
    return f"{seconds:.6f} s" if is_of_run else clock(seconds)


def table(*columns: str, left: int = 1) -> Table:
    """Return an empty table; columns after the first `left` ones are for numbers and aligned right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return made


def _status(row: State) -> Text:
    status = str(row["status"])
    if status == "running" and row.get("held"):
        return plain("held", "bold yellow")
    return plain(status, "" if status == "running" else "bold red")


@attrs.define
class TopScreen:
    """The agents with the most waiting messages, handled messages per second, or restarts."""

    by: str = "waiting"
    rows: int = 20

    def begin(self, client: LiveClient) -> None:
        """See `Screen`."""
        client.look("top", "top", by=self.by, rows=self.rows)
        client.look("root", "tree", rows=1)

    def is_whole(self, client: LiveClient) -> bool:
        """See `Screen`; a rate needs two counts."""
        passes = client.views.get("top", {}).get("passes", 0)
        root = client.views.get("root", {}).get("rows", {}).get("", {})
        return bool(root.get("below")) and passes >= (2 if self.by == "handled" else 1)

    def picture(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        return self.text(client)

    def missing(self, client: LiveClient) -> str:
        """See `Screen`."""
        return ""

    def text(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        view, root = client.views["top"], client.views["root"]["rows"][""]
        numbers = ("waiting", "running", "handled", "life")
        shown = table("AGENT", "CLASS", "STATUS", _MOST[self.by].upper(), *map(str.upper, numbers), left=3)
        for path in view["order"]:
            row = view["rows"][path]
            counts = (f"{row['most']:,g}", *(f"{row[name]:,}" for name in numbers))
            shown.add_row(plain(path), plain(row["class"]), _status(row), *counts)
        below: State = root.get("below", {})
        counted = ", ".join(f"{below[name]:,} {name}" for name in below) or "not counted yet"
        node = "" if client.hello is None else client.hello.node
        head = Text.assemble((printable(node), "bold"), f"  {counted}")
        return Group(head, "", shown if view["order"] else Text(_NONE[self.by], "dim"))

    def data(self, client: LiveClient) -> list[State]:
        """See `Screen`."""
        view = client.views["top"]
        return [{"path": path, **view["rows"][path]} for path in view["order"]]


@attrs.define
class TreeScreen:
    """The supervisor tree below a place, some levels deep."""

    path: str = ""
    depth: int = 3
    most: int = MOST_ROWS
    _open: tuple[str, ...] = ()

    def begin(self, client: LiveClient) -> None:
        """See `Screen`."""
        names = self.path.split("/") if self.path else []
        self._open = tuple("/".join(names[:n]) for n in range(1, len(names) + 1))
        self._look(client)

    def _look(self, client: LiveClient) -> None:
        client.look("tree", "tree", open=list(self._open), rows=min(self.most, 300))

    def is_whole(self, client: LiveClient) -> bool:
        """See `Screen`; opens rows as they come, until all levels are open."""
        view = client.views.get("tree")
        if view is None:
            return False
        rows = view["rows"]
        level = self.path.count("/") + 1 if self.path else 0
        closed = [
            path
            for path in self._paths(view)
            if path
            and path not in self._open
            and rows[path].get("children")
            and rows[path]["level"] < level + self.depth
        ]
        if closed and len(self._open) < MOST_ROWS:
            self._open = (*self._open, *closed[: MOST_ROWS - len(self._open)])
            self._look(client)
            return False
        unopened = [path for path in self._open if path in rows and not rows[path].get("open")]
        gone = [path for path in unopened if not rows[path].get("children")]
        return len(unopened) == len(gone)

    def picture(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        return self.text(client)

    def missing(self, client: LiveClient) -> str:
        """See `Screen`."""
        return "" if self._paths(client.views["tree"]) else f"there is nothing at {self.path!r}"

    def text(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        view = client.views["tree"]
        shown = table("NAME", "WHAT", "STATUS", "CHILDREN", "WAITING", "HANDLED", "LIFE", left=3)
        paths = self._paths(view)
        if not paths:
            return plain(self.missing(client), "bold red")
        first = view["rows"][paths[0]]["level"]
        for path in paths:
            row = view["rows"][path]
            what = row.get("class") or row.get("strategy", "")
            what = f"pool of {what}" if "pool" in row else what
            sums = row.get("below") or row
            cells = (row.get("children"), sums.get("waiting"), sums.get("handled"), row["life"])
            name = plain("  " * (row["level"] - first) + row["name"])
            shown.add_row(name, plain(what), _status(row), *("" if n is None else f"{n:,}" for n in cells))
        left = view["total"] - len(view["order"])
        return Group(shown, *((Text(f"... and {left:,} more rows", "dim"),) if left > 0 else ()))

    def _paths(self, view: State) -> Sequence[str]:
        return [
            path
            for path in cast("list[str]", view["order"])
            if not self.path or path == self.path or path.startswith(f"{self.path}/")
        ]

    def data(self, client: LiveClient) -> list[State]:
        """See `Screen`."""
        view = client.views["tree"]
        return [{"path": path, **view["rows"][path]} for path in self._paths(view)]


@attrs.define
class DeadLettersScreen:
    """The last messages that no agent handled."""

    rows: int = 50

    def begin(self, client: LiveClient) -> None:
        """See `Screen`."""
        client.look("lost", "dead letters")

    def is_whole(self, client: LiveClient) -> bool:
        """See `Screen`."""
        return "lost" in client.views

    def missing(self, client: LiveClient) -> str:
        """See `Screen`."""
        return ""

    def picture(self, client: LiveClient) -> RenderableType:
        """See `Screen`; the newest first."""
        return self._shown(client, self._numbers(client))

    def text(self, client: LiveClient) -> RenderableType:
        """See `Screen`; the newest last, as in a log."""
        return self._shown(client, list(reversed(self._numbers(client))))

    def _shown(self, client: LiveClient, numbers: list[str]) -> RenderableType:
        view = client.views["lost"]
        total = view["total"]
        head = f"{total:,} dead letters" if total else "no dead letters"
        return Group(Text(head, "bold"), *(_letter(client, view["rows"][number]) for number in numbers))

    def _numbers(self, client: LiveClient) -> list[str]:
        return cast("list[str]", client.views["lost"]["order"])[: self.rows]

    def data(self, client: LiveClient) -> list[State]:
        """See `Screen`; the oldest first."""
        rows = client.views["lost"]["rows"]
        return [{"number": int(number), **rows[number]} for number in reversed(self._numbers(client))]


def _letter(client: LiveClient, row: State) -> Text:
    sender = f" from {row.get('from', 'user code')}"
    return Text.assemble(
        (instant(client, row["time"]), "dim"),
        "  ",
        plain(f"{row['agent']} {row['affordance']}", "bold"),
        plain(f"{row['message']}{sender}: {row['reason']}"),
    )
