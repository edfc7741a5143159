"""The screen of `inspect`: one place in a node's tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from rich.console import Group
from rich.text import Text

from ._screens import instant, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lmos_actors.live import LiveClient

State = dict[str, Any]

LINES: Final = 12
"""Maximum lines of one stack that are shown."""

_HEAD: Final = (
    "kind",
    "name",
    "fields",
    "mailbox",
    "runs",
    "tasks",
    "crashes",
    "contract",
    "statistics",
    "class",
    "status",
    "state",
    "life",
    "held",
)


@attrs.define
class AgentScreen:
    """The screen for one place in a node's tree: an agent or a supervisor."""

    path: str

    def begin(self, client: LiveClient) -> None:
        """See `Screen`."""
        client.look("agent", "agent", path=self.path)

    def is_whole(self, client: LiveClient) -> bool:
        """See `Screen`."""
        return "agent" in client.views

    def missing(self, client: LiveClient) -> str:
        """See `Screen`."""
        return f"there is nothing at {self.path!r}" if client.views["agent"]["kind"] == "gone" else ""

    def picture(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        return self.text(client)

    def text(self, client: LiveClient) -> RenderableType:
        """See `Screen`."""
        view = client.views["agent"]
        if view["kind"] == "gone":
            return plain(self.missing(client), "bold red")
        if view["kind"] == "supervisor":
            return Group(plain(f"{view['name']} (supervisor)", "bold"), *_pairs(view))
        if client.hello is not None and client.hello.kind == "runs":
            return Group(*self._of_run(client, view))
        return Group(*self._agent(client, view))

    def data(self, client: LiveClient) -> list[State]:
        """See `Screen`."""
        return [{"path": self.path, **client.views["agent"]}]

    def _agent(self, client: LiveClient, view: State) -> Iterator[RenderableType]:
        state = view["status"] if view["status"] == view["state"] else f"{view['status']}, {view['state']}"
        held = ", held" if view["held"] else ""
        yield plain(f"{self.path} ({view['class']}) {state} #{view['life']}{held}", "bold")
        counts = (f"{count} {name}" for name, count in view["statistics"].items() if count)
        yield plain("  ".join(counts) or "no messages so far", "dim")
        yield from _pairs(view)
        yield from _section("Fields", _fields(view["fields"]))
        box = view["mailbox"]
        parked = f", {box['parked']} without a seat" if box["parked"] else ""
        title = f"Mailbox {box['depth']}/{box['size']}{parked}"
        yield from _section(title, (_message(each, client.time) for each in box["messages"]))
        yield from _section("Runs", _runs(view["runs"], client.time))
        yield from _section("Tasks", _stacks(view["tasks"]))
        yield from _section("Crashes", (_crash(client, each) for each in view["crashes"]))
        if view["crashes"]:
            yield from (plain(f"    {line}", "dim") for line in view["crashes"][0]["text"].split("\n"))

    def _of_run(self, client: LiveClient, view: State) -> Iterator[RenderableType]:
        """Yield the facts about an agent in a run, taken from the log of the run."""
        yield plain(f"{self.path} ({view['class']}) {view['status']} #{view['life']}", "bold")
        counts = ("handled", "running", "waiting")
        yield plain(
            "  ".join(f"{view[name]} {name}" for name in counts if view[name]) or "no messages so far", "dim"
        )
        yield from _section("Crashes", (_crash(client, each) for each in view["crashes"]))
        yield from _section("Records", map(_record, reversed(view["records"])))


def _record(each: State) -> Text:
    rest = "  ".join(
        f"{name}={value}" for name, value in each.items() if name not in ("n", "t", "kind", "agent")
    )
    return plain(f"  {each['n']}  {each['t']:.6f}  {each['kind']}  {rest}")


def _crash(client: LiveClient, each: State) -> Text:
    return plain(f"  {instant(client, each['time'])}  #{each['life']}  {each['reason']}  {each['where']}")


def _pairs(view: State) -> Iterator[RenderableType]:
    """Yield a line for each member that is shown neither in the head nor in a section."""
    for name, value in view.items():
        if name not in _HEAD:
            yield Text.assemble((f"{name}: ", "bold"), plain(_joined(name, value)))


def _joined(name: str, value: Any) -> str:
    if name == "timers":
        return ", ".join(str(timer["turn"]) for timer in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in cast("State", value).items())
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def _section(title: str, rows: Any) -> Iterator[RenderableType]:
    shown = list(rows)
    if shown:
        yield Text(f"\n{title}", "bold")
        yield from shown


def _fields(fields: State) -> Iterator[RenderableType]:
    if fields:
        shown = table("", "", left=2)
        shown.show_header = False
        shown.columns[1].no_wrap = False
        for name, text in fields.items():
            shown.add_row(plain(f"  {name}", "cyan"), plain(text))
        yield shown


def _message(each: State, now: float) -> Text:
    arguments = ", ".join(f"{name}={text}" for name, text in each.get("arguments", {}).items())
    sender = f" from {each['from']}" if "from" in each else ""
    ends = f", {each['deadline'] - now:.1f} s left" if "deadline" in each else ""
    place = f"{each['place']}: " if "place" in each else ""
    return plain(f"  {place}{each.get('verb', '')} {each.get('affordance', '')}({arguments}){sender}{ends}")


def _runs(runs: list[State], now: float) -> Iterator[RenderableType]:
    for run in runs:
        yield _message(run, now)
        yield from (plain(f"    {line}", "dim") for line in run["stack"][-LINES:])


def _stacks(tasks: list[State]) -> Iterator[RenderableType]:
    for task in tasks:
        yield plain(f"  {task['name']}")
        yield from (plain(f"    {line}", "dim") for line in task["stack"][-LINES:])
