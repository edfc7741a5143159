"""Without permission nothing unsafe is invoked; with it, what was changed is put back, whatever happens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors.conformance import Call, ConformOptions, Verdict, conform
from lmos_actors.conformance.scripted import ID_B, VALUES, ScriptedConnection, ScriptedServer
from lmos_actors.conformance.session import CaseContext
from lmos_actors.transport import MemoryNetwork
from tests.conformance.breaking import HERE, HINTS, card_of, ids, on_virtual_time, right, told
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.conformance.card import Traffic
    from lmos_actors.conformance.scripted import Json, NetworkServer, Request

URL = f"http://{HERE.authority}/agents/conformance"
WRITING = (
    "properties.write-kept",
    "properties.write-wrong",
    "properties.write-wrong-kept",
    "observe.change",
    "ordering.write-then-read",
    "things.values",
    "http.write-seen",
    "http.wrong-value",
)
"""Cases that write other values than were there, in all the ways in which that is done."""


@pytest.fixture
def invoked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Give the actions that the kit asks for over the WebSocket: which thing's, and which."""
    found: list[tuple[str, str]] = []
    record = CaseContext.record

    def listen(context: CaseContext, traffic: Traffic) -> None:
        if traffic.sent and traffic.kind == "text" and '"invokeAction"' in traffic.text:
            data = json.loads(traffic.text)
            found.append((data.get("thingID", ""), data.get("action", "")))
        record(context, traffic)

    monkeypatch.setattr(CaseContext, "record", listen)
    return found


def test_a_hint_is_no_permission(invoked: list[tuple[str, str]]) -> None:
    hints = attrs.evolve(HINTS, triggers={"rang": Call(action="reset"), "alarm": Call(action="reset")})
    card = card_of(
        allow_unsafe=False,
        hints=hints,
        cases=few_or_all(
            ("events.*", "extension.stream*"), ("events.*", "extension.*", "things.*", "connection.*")
        ),
    )
    assert invoked
    assert "reset" not in {action for _, action in invoked}
    assert "events.delivered" in ids(card, Verdict.NOT_RUN)
    seen = {result.seen for result in card.results if result.id == "events.delivered"}
    assert seen == {"reset is not safe: --allow-unsafe lets it be invoked"}


class Wary(ScriptedServer):
    """A server whose second thing does not call safe what the first one does."""

    def describe_b(self, base: str) -> Json:
        document = super().describe_b(base)
        document["actions"]["ring"] = {**document["actions"]["ring"], "safe": False}
        return document


def test_an_action_of_another_thing_is_held_against_its_own_description(
    invoked: list[tuple[str, str]],
) -> None:
    card = card_of(lambda: right(server=Wary), allow_unsafe=False, cases=("things.*",))
    assert "things.events" in ids(card, Verdict.NOT_RUN), told(card)
    assert ID_B not in {thing for thing, _ in invoked}
    card = card_of(lambda: right(server=Wary), cases=("things.*",))
    assert "things.events" in ids(card, Verdict.PASSED), told(card)
    assert (ID_B, "ring") in invoked


class Abrupt(ScriptedConnection):
    """Takes whatever is written, and ends the connection in place of an answer."""

    def do_writeProperty(self, request: Request) -> None:
        request.thing.write({request.name: request.message["data"]})
        self.hang_up(1011)


class Mute(ScriptedConnection):
    """Takes whatever is written, and says nothing."""

    def do_writeProperty(self, request: Request) -> None:
        request.thing.write({request.name: request.message["data"]})


@pytest.mark.parametrize("connection", [Abrupt, Mute])
def test_what_was_changed_is_put_back_though_nothing_answers(connection: type[ScriptedConnection]) -> None:
    made: list[NetworkServer] = []

    def make() -> NetworkServer:
        made.append(right(connection=connection))
        return made[-1]

    card = card_of(make, cases=WRITING)
    assert made[0].server.main.values == VALUES, told(card)


@pytest.mark.parametrize("seconds", [0.25, 0.75])
@pytest.mark.parametrize("case", [each for each in WRITING if "wrong" not in each])
def test_what_was_changed_is_put_back_at_an_interrupt(case: str, seconds: float) -> None:
    """The server answers each write after half a second, so that the interrupt is in the middle of one."""

    class Slow(ScriptedConnection):
        def written(self, request: Request, kind: str, members: Json) -> None:
            self.server.after(0.5, lambda: super(Slow, self).written(request, kind, members))

    async def main() -> Any:
        network = MemoryNetwork()
        async with trio.open_nursery() as nursery:
            serving = right(connection=Slow)
            await nursery.start(serving.run, network, HERE)
            written = trio.Event()
            serving.server.main.write = _telling(serving.server.main.write, written)  # type: ignore[assignment, method-assign]
            with trio.fail_after(60):
                await _interrupted(network, case, written, seconds)
            nursery.cancel_scope.cancel()
        return serving.server.main.values

    assert on_virtual_time(main) == VALUES


async def _interrupted(network: MemoryNetwork, case: str, written: trio.Event, seconds: float) -> None:
    async with trio.open_nursery() as judging:
        judging.start_soon(conform, network, URL, ConformOptions(cases=(case,), allow_unsafe=True))
        await written.wait()
        await trio.sleep(seconds)
        judging.cancel_scope.cancel()


def _telling(
    write: Callable[[Mapping[str, Any]], None], written: trio.Event
) -> Callable[[Mapping[str, Any]], None]:
    def tell(values: Mapping[str, Any]) -> None:
        write(values)
        if any(VALUES[name] != value for name, value in values.items()):
            written.set()

    return tell
