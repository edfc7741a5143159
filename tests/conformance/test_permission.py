"""Without permission nothing unsafe is invoked; with it, what was changed is put back, whatever happens."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors.conformance import Call, ConformOptions, Verdict, conform
from lmos_actors.conformance._case import Visit
from lmos_actors.conformance._scripted import ScriptedConnection, ScriptedServer
from lmos_actors.conformance._scripted_description import VALUES
from lmos_actors.conformance._scripted_thing import ScriptedThing
from lmos_actors.transport import MemoryNetwork
from tests.conformance.breaking import HERE, HINTS, card_of, ids, on_virtual_time, right, told

if TYPE_CHECKING:
    from lmos_actors.conformance._serving import Serving
    from lmos_actors.conformance._verdicts import Traffic

URL = f"http://{HERE.authority}/agents/conformance"


@pytest.fixture
def invoked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Give the actions that the kit asks for over the WebSocket: which thing's, and which."""
    found: list[tuple[str, str]] = []
    record = Visit.record

    def listen(visit: Visit, traffic: Traffic) -> None:
        if traffic.sent and traffic.kind == "text" and '"invokeAction"' in traffic.text:
            data = json.loads(traffic.text)
            found.append((data.get("thingID", ""), data.get("action", "")))
        record(visit, traffic)

    monkeypatch.setattr(Visit, "record", listen)
    return found


def test_a_hint_is_no_permission(invoked: list[tuple[str, str]]) -> None:
    hints = attrs.evolve(HINTS, triggers={"rang": Call(action="reset"), "alarm": Call(action="reset")})
    card = card_of(allow_unsafe=False, hints=hints, cases=("events.*", "extension.*", "things.*", "connection.*"))
    assert invoked
    assert "reset" not in {action for _, action in invoked}
    assert "events.delivered" in ids(card, Verdict.NOT_RUN)
    seen = {result.seen for result in card.results if result.id == "events.delivered"}
    assert seen == {"reset is not safe: --allow-unsafe lets it be invoked"}


class Wary(ScriptedServer):
    """A server whose second thing does not call safe what the first one does."""

    def described(self, thing: ScriptedThing, base: str) -> dict[str, Any]:
        data = deepcopy(super().described(thing, base))
        if thing is not self.main:
            data["actions"]["ring"]["safe"] = False
        return data
