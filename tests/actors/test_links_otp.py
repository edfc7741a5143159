"""Our links and monitors against Erlang processes: recorded programs, fresh ones, rules that are wrong."""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import NORMAL, Down, ExitReason
from lmos_actors.actors import Monitor, Slot, _agent
from lmos_actors.actors.slot._task_links import TaskLink
from tests.actors.otp_links.programs import (
    CORNERS,
    REASONS,
    TABLE,
    Recorded,
    difference,
    random_programs,
    read_table,
)
from tests.actors.otp_links.record import have_erlang, play_in_erlang
from tests.actors.otp_links.runtime import play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@pytest.fixture(scope="module")
def table() -> list[Recorded]:
    return read_table()


def differing(records: Iterable[Recorded]) -> Iterator[str]:
    for record in records:
        text = difference(record.program, record.seen, play(record.program))
        if text:
            yield text


@pytest.mark.slow  # its lines: the tests around it, test_random_programs.py
def test_recorded_programs_end_as_in_erlang(table: list[Recorded]) -> None:
    assert "\n\n".join(islice(differing(table), 3)) == ""


@pytest.mark.parametrize("name", CORNERS)
def test_corners_are_recorded(table: list[Recorded], name: str) -> None:
    assert CORNERS[name] in [record.program for record in table]


def test_the_table_holds_enough(table: list[Recorded]) -> None:
    assert len(table) >= 200
    assert TABLE.stat().st_size < 200_000
    verbs = Counter(step.verb for record in table for step in record.program.steps)
    assert min(verbs.values()) > 100
    deaths = Counter(reason for record in table for seen in record.seen for _, reason in seen.died)
    assert {*REASONS, "noproc"} == set(deaths)
    told = Counter(
        (kind, reason) for record in table for seen in record.seen for _, (kind, _, reason) in seen.told
    )
    assert set(told) == {(kind, reason) for kind in ("exit", "down") for reason in (*REASONS, "noproc")}
    assert any(len(seen.died) >= 4 for record in table for seen in record.seen)


@pytest.mark.skipif(not have_erlang(), reason="needs Erlang/OTP")
def test_fresh_programs_end_as_in_erlang() -> None:
    seed = secrets.token_hex(8)
    records = play_in_erlang(list(islice(random_programs(Random(seed)), 15)))
    assert "\n\n".join(islice(differing(records), 3)) == "", f"seed {seed}"


# Each of these breaks one rule; the table has to notice.


def signal_on_normal(self: Any, down: Down) -> None:
    reason = ExitReason("shutdown") if down.reason.kind == "normal" else down.reason
    SIGNAL(self, Down(down.agent, down.incarnation, reason))


def no_signal_on_shutdown(self: Any, down: Down) -> None:
    if down.reason.kind != "shutdown":
        SIGNAL(self, down)


def normal_is_not_trapped(self: Any, down: Down) -> None:
    if down.reason is not NORMAL:
        SIGNAL(self, down)


def traps_are_not_asked(self: Any, down: Down) -> None:
    if down.reason.kind != "normal":
        self.die(down.reason)


def another_reason(self: Any, down: Down) -> None:
    SIGNAL(self, Down(down.agent, down.incarnation, ExitReason("shutdown", 9)))


def one_way(self: Any, other: Any) -> None:
    other.check_alive()
    self.join(other)


def linked_to_the_dead(self: Any, other: Any) -> None:
    if other.state < 4:
        LINK(self, other)


def unlinked_one_way(self: Any, other: Any) -> None:
    self.part(other)


def only_the_next(self: Any, reason: ExitReason) -> None:
    if not self.rt.signalling:
        END_LINKS(self, reason)


def silent_task(self: Any, error: BaseException | None) -> None:
    self._slot.part(self)


def silent_monitor(self: Any, value: Down) -> None:
    if value.reason.detail != "not running":
        PUSH(self, value)


def still_watching(self: Any) -> None: ...


def one_monitor_each(self: Any, other: Any, turn: Any) -> Any:
    monitor = MONITOR(self, other, turn)
    for older in tuple(self.extra.monitors or ()) if self.extra is not None else ():
        if older is not monitor and older._sinks is monitor._sinks:
            older.cancel()
    return monitor


SIGNAL, LINK, END_LINKS = Slot.exit_signal, _agent.link_agents, Slot.end_links
PUSH, MONITOR = Monitor.push, _agent.monitor_agent

BROKEN: list[tuple[object, str, Callable[..., Any]]] = [
    (Slot, "exit_signal", signal_on_normal),
    (Slot, "exit_signal", no_signal_on_shutdown),
    (Slot, "exit_signal", normal_is_not_trapped),
    (Slot, "exit_signal", traps_are_not_asked),
    (Slot, "exit_signal", another_reason),
    (_agent, "link_agents", one_way),
    (_agent, "link_agents", linked_to_the_dead),
    (_agent, "unlink_agents", unlinked_one_way),
    (Slot, "end_links", only_the_next),
    (_agent, "monitor_agent", one_monitor_each),
    (TaskLink, "left", silent_task),
    (Monitor, "push", silent_monitor),
    (Monitor, "cancel", still_watching),
]


@pytest.mark.parametrize(
    ("owner", "name", "wrong"), BROKEN, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_broken_rule_is_noticed(
    table: list[Recorded],
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    wrong: Callable[..., Any],
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    assert next(differing(table), "")
