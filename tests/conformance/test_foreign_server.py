"""A right server by other hands, on a library of others, over TCP in real time, passes at level `spec`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from lmos_actors.conformance import ConformOptions, Level, Verdict, conform
from lmos_actors.transport import TcpNetwork
from tests.conformance.breaking import ids, told
from tests.conformance.foreign import thermostat

if TYPE_CHECKING:
    import pytest

    from lmos_actors.conformance import Card

CASES = (
    "handshake.*",
    "description.*",
    "spelling.*",
    "correlation.*",
    "properties.*",
    "query.*",
    "cancel.running",
    "errors.*",
    "observe.*",
    "events.*",
    "ordering.*",
    "frames.no-*",
    "frames.un*",
)
"""None of them waits for something not to come."""


def test_a_right_server_by_other_hands_passes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "websockets.server")  # which tells of every broken handshake
    options = ConformOptions(level=Level.SPEC, allow_unsafe=True, patience=5.0, cases=CASES)

    async def judge(url: str) -> Card:
        return await conform(TcpNetwork(), url, options)

    with thermostat() as url:
        card = trio.run(judge, url)
    assert not ids(card, Verdict.FAILED, Verdict.TOLERATED, Verdict.NOT_RUN), told(card)
    assert card.count(Verdict.PASSED) > 75, told(card)
