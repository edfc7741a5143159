"""Stories made by hand: corners that random ones seldom reach, most of them about a busy supervisor.

`BUSY` is a child whose termination, asked for at tick 2, keeps its supervisor deaf until tick 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .stories import Call, Exit, Start, Story, Sup, Worker

if TYPE_CHECKING:
    from .stories import Step

BUSY = Worker("busy", shutdown=5, hang=True)
DEAFEN = Call(2, "r", "terminate", "busy")


def _story(*children: Worker | Sup, steps: tuple[Step, ...], **flags: Any) -> Story:
    return Story(Sup("r", children, **{"intensity": 5, **flags}), steps, 15)


def _while_deaf(*children: Worker | Sup, steps: tuple[Step, ...], **flags: Any) -> Story:
    return _story(*children, BUSY, steps=(DEAFEN, *steps), **flags)


FAILS_ONCE = Worker("a", fails=(2,))
FAILS_TWICE = Worker("a", fails=(2, 3))
B = Worker("b")
A_EXITS = Exit(4, "r", ("a",), "error")
B_EXITS = Exit(4, "r", ("b",), "error")

# A supervisor told to stop while it is deaf still does first what came first.
STOPPED_WHILE_DEAF = _story(
    Sup("s", (Worker("a"), BUSY), intensity=5),
    steps=(
        Call(2, "r/s", "terminate", "busy"),
        Exit(4, "r/s", ("a",), "error"),
        Call(6, "r", "terminate", "s"),
    ),
)

CORNERS = (
    # Asked about a child whose restart has failed and will be tried again.
    _while_deaf(FAILS_ONCE, steps=(A_EXITS, Call(6, "r", "terminate", "a"))),
    _while_deaf(FAILS_ONCE, steps=(A_EXITS, Call(6, "r", "restart", "a"))),
    _while_deaf(FAILS_ONCE, steps=(A_EXITS, Call(6, "r", "delete", "a"))),
    _while_deaf(FAILS_ONCE, steps=(A_EXITS, Start(6, "r", Worker("a")))),
    _while_deaf(FAILS_TWICE, steps=(A_EXITS, Call(6, "r", "terminate", "a"), Call(8, "r", "restart", "a"))),
    # A child that went down with the one whose restart failed is stopped, and may be started by request.
    _while_deaf(FAILS_ONCE, B, steps=(B_EXITS, Call(6, "r", "restart", "b")), strategy="one_for_all"),
    _while_deaf(FAILS_ONCE, B, steps=(B_EXITS, Call(6, "r", "delete", "b")), strategy="one_for_all"),
    _while_deaf(FAILS_ONCE, B, steps=(A_EXITS, Call(6, "r", "restart", "b")), strategy="rest_for_one"),
    _while_deaf(FAILS_ONCE, B, steps=(B_EXITS, Call(6, "r", "terminate", "a")), strategy="one_for_all"),
    # Exits that wait while another restart fails.
    _story(B, FAILS_ONCE, steps=(Exit(2, "r", ("a", "b"), "error"),), strategy="rest_for_one"),
    _story(B, FAILS_TWICE, steps=(Exit(2, "r", ("a", "b"), "error"),), strategy="rest_for_one"),
    _story(B, FAILS_TWICE, steps=(Exit(2, "r", ("a", "b"), "error"),), strategy="one_for_all"),
    _story(B, FAILS_TWICE, steps=(Exit(2, "r", ("a", "b"), "error"),), intensity=3),
    _story(B, FAILS_TWICE, steps=(Exit(2, "r", ("a", "b"), "error"),), intensity=4),
    # An exit counts once, and not at all where the child went down with another meanwhile.
    _story(Worker("a"), B, steps=(Exit(2, "r", ("a", "b"), "error"),), intensity=1),
    _story(Worker("a"), B, steps=(Exit(2, "r", ("a", "b"), "error"),), intensity=1, strategy="one_for_all"),
    _story(Worker("a"), B, steps=(Exit(2, "r", ("b", "a"), "error"),), intensity=1, strategy="rest_for_one"),
    STOPPED_WHILE_DEAF,
    # A supervisor over its limit is restarted by its own, with everything below it new.
    _story(
        Sup("s", (Worker("a"), Worker("t", restart="temporary")), intensity=0),
        B,
        steps=(Exit(2, "r/s", ("a",), "error"), Exit(4, "r/s", ("t",), "error")),
        strategy="rest_for_one",
    ),
)
