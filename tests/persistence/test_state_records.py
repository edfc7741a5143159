"""Whether an incarnation began with state from the store: wherever its start or its end is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Ref, action, open_node

if TYPE_CHECKING:
    from lmos_actors import Down
    from lmos_actors.types import CrashReport


class Counter(Agent, durable=True):
    n: int = 0

    @action
    def add(self) -> int:
        self.n += 1
        return self.n

    @action
    def crash(self) -> None:
        raise KeyError(self.n)


class Plain(Agent):
    @action
    def crash(self) -> None:
        raise KeyError(1)


class Watcher(Agent):
    """Has the end of an agent reported by `self.monitor`."""

    seen: list[bool | None] = attrs.field(factory=list)

    @action
    def watch(self) -> None:
        self.monitor(self.find(Counter), self.take)

    def take(self, down: Down) -> None:
        self.seen.append(down.restored)

    @action
    def look(self) -> list[bool | None]:
        return self.seen


@attrs.define
class Records:
    """An instrument."""

    found: list[tuple[str, object]] = attrs.field(factory=list)

    def record(self, kind: Any, agent: str, fields: dict[str, object]) -> None:
        if agent == "counter" and kind in ("started", "crashed", "stopped"):
            self.found.append((kind, fields.get("restored")))


async def crash(ref: Ref[Any], handle: Any = Counter.crash) -> None:
    with pytest.raises(AgentDied):
        await ref.invoke(handle)
    await ref.ready()


async def test_it_is_said_wherever_a_start_or_an_end_is_reported(autojump_clock: object) -> None:
    records, downs = Records(), list[bool | None]()
    async with open_node(store="memory:", instrument=records) as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("counter", Counter))
        plain = await node.start_child(ChildSpec("plain", Plain))
        watcher = await node.start_child(ChildSpec("watcher", Watcher))
        await watcher.invoke(Watcher.watch)

        async def listen(*, task_status: trio.TaskStatus[None]) -> None:
            async with ref.monitor() as feed:
                task_status.started()
                async for down in feed:
                    downs.append(down.restored)

        await nursery.start(listen)
        await crash(ref)  # nothing was kept yet
        assert "counter running #2\n" in node.tree()
        await ref.invoke(Counter.add)
        await crash(ref)
        assert "counter running #3 restored" in node.tree()
        assert "(Counter), running #3, restored" in node.dump()
        await crash(ref)
        await trio.sleep(10)
        await crash(plain, Plain.crash)
        assert "plain running #2\n" in node.tree()
        assert [info.restored for info in node.root.which_children()] == [True, None, None]
        assert downs == await watcher.invoke(Watcher.look) == [False, False, True]
        of_counter: list[CrashReport] = [*node.crash_reports[:3]]
        assert [(report.restored, report.kept) for report in of_counter] == [
            (False, False),
            (False, True),
            (True, True),
        ]
        first, last, of_plain = (str(node.crash_reports[i]) for i in (0, 2, 3))
        assert "had begun without stored state; the next incarnation begins anew" in first
        assert "had begun with state from the store; the next incarnation begins with the last kept" in last
        assert "durable" not in of_plain
        assert node.crash_reports[3].data()["restored"] is None
        nursery.cancel_scope.cancel()
    assert records.found == [
        ("started", False),
        ("crashed", False),
        ("started", False),
        ("crashed", False),
        ("started", True),
        ("crashed", True),
        ("started", True),
        ("stopped", True),
    ]


async def test_a_monitor_on_another_node_reports_it_too(autojump_clock: object) -> None:
    async with (
        open_node(store="memory:", listen="ws://127.0.0.1:8080") as node,
        open_node() as other,
    ):
        ref = await node.start_child(ChildSpec("counter", Counter))
        await ref.invoke(Counter.add)
        plain = await node.start_child(ChildSpec("plain", Plain))
        far = await other.consume(Counter, "http://127.0.0.1:8080/counter")
        far_plain = await other.consume(Plain, "http://127.0.0.1:8080/plain")
        async with far.monitor() as downs, far_plain.monitor() as of_plain:
            await crash(ref)
            await crash(ref)
            await crash(plain, Plain.crash)
            assert [(await downs.receive()).restored for _ in range(2)] == [False, True]
            assert (await of_plain.receive()).restored is None
