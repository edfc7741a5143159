"""What recorded relays do otherwise than our hub: the rows of `docs/reference/relay-dialects.md`.

`python -m tests.protocol.relay.dialects` writes the page. `test_dialects.py` sends every recorded frame to
our hub; what comes of it otherwise than in the recording has to be a row here.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from tests.source import ROOT

PAGE = ROOT / "docs/reference/relay-dialects.md"

HEAD = """# Relay dialects

AgentRelay has documents, and programs that differ from them and from one another. Three relays were
recorded, frame by frame: the reference relay of February 2026, `rawk`, which other people run, and the
reference relay of the days when the protocol's text was written. Every recorded frame of a client was sent
to our hub too (`tests/protocol/relay/test_dialects.py`). It does what the relays did, but for the rows
below; a difference without a row fails. `python -m tests.protocol.relay.dialects` writes this page.

| | frame | recorded | our hub |
|---|---|---|---|
"""

TAIL = """
The client's end understands all three: a welcome, a flat one or none; `error` as `code` or as `error`; the
same id twice. It writes its own id as `from` once it knows it, as the oldest relay refuses frames without.
What is not `from` the relay is never taken for the relay's.
"""

ALL: Final = ("reference", "rawk", "seed-day")


@attrs.frozen
class Row:
    """A difference. `frames` are patterns of frames as they were sent, without `from`; `relays` do it."""

    decision: str
    what: str
    recorded: str
    ours: str
    frames: tuple[str, ...]
    relays: tuple[str, ...] = ALL

    def covers(self, relay: str, frame: str) -> bool:
        """Return whether this is the row of a frame."""
        return relay in self.relays and any(re.fullmatch(each, frame, re.DOTALL) for each in self.frames)


ROWS: Final = (
    Row(
        "D36",
        "`from` names another agent, or `relay`",
        "reference: it is replaced; rawk: it is passed on, so anybody speaks as anybody",
        "`auth_mismatch`, as the oldest relay",
        (r'.*"payload": "forged", "from": "(agent-100|relay)".*',),
        ("reference", "rawk"),
    ),
    Row(
        "D37",
        "a command without a payload",
        "reference: `invalid_message`; rawk: a `subscribe` without one is passed over",
        "taken where the command needs none; else `invalid_message`",
        (r'\{"to": \["relay"\], "type": "(list_subscriptions|subscribe|ping)"\}',),
    ),
    Row(
        "D38",
        "`ping`",
        "reference: silence, or `invalid_message`",
        "`pong`",
        (r'\{"to": \["relay"\], "type": "ping".*',),
        ("reference", "seed-day"),
    ),
    Row(
        "D39",
        "private members; `type` and `ref` that are empty or null; whole numbers above 2^53",
        "dropped by the reference, rounded by all",
        "passed on as the bytes that came; a hub that records spans writes `traceparent`",
        (
            r'.*"payload": 1, "(type|ref)": (""|null)\}',
            r'.*"payload": 1, "(myRelay_x|__proto__x)".*',
            r'.*"payload": 12345678901234567890\}',
        ),
    ),
    Row(
        "D40",
        "a recipient that is named twice, or hears a broadcast and follows its sender",
        "has the message twice",
        "has it once; a broadcast never comes back to its sender",
        (
            r'.*"payload": "to \[.agent-007., .agent-007.\]"\}',
            r'.*"payload": "(a broadcast of the followed agent|do I hear myself\?)"\}',
        ),
        ("reference", "rawk"),
    ),
    Row(
        "D41",
        "a direct message to an agent that is followed",
        "rawk hands it to the followers too",
        "only its recipients have it",
        (r'.*"payload": "a direct message TO the followed agent"\}',),
        ("rawk",),
    ),
    Row(
        "D41",
        "what an agent follows, when it comes back",
        "forgotten at once",
        "kept for 60 s",
        (r'\{"to": \["relay"\], "type": "list_subscriptions", "payload": null\}',),
    ),
    Row(
        "D40, D42",
        "direct messages, `ref`, `subscribe` and its kin",
        "the oldest relay knows broadcasts alone, and is silent",
        "passed on, acknowledged",
        (
            r'\{"to": \["(agent-\d+|nobody)".*',
            r'\{"to": \["relay"\], "type": "(un)?subscribe", "payload": \{"agents".*',
        ),
        ("seed-day",),
    ),
    Row(
        "D45",
        "a second connection of one agent",
        "the first goes on; when it closes, the second is unreachable",
        "the first is closed with 4009, the second is reachable",
        (r'.*"payload": "(from the first connection|is the second still reachable\?)"\}',),
    ),
    Row(
        "D46",
        "a message of more than 64 KiB, up to 110 MB",
        "passed on up to 100 MiB",
        "close 1009",
        (r'\{"to": \["\*"\], "payload": "x+… .*',),
    ),
    Row(
        "D46",
        "100,000 nested arrays",
        "end the reference; rawk takes no connections from then on",
        "`invalid_message`",
        (r'\{"to":\["\*"\],"payload":\[+… .*',),
    ),
    Row(
        "D46",
        "more messages than the rate allows",
        "rawk: `rate_limit` for each of them (here it was started with 100 a minute)",
        "1,000 a minute and 10,000 an hour, one `rate_limit` a second, 4029 after a minute",
        (r'.*"payload": "still connected\?"\}',),
        ("rawk",),
    ),
    Row(
        "D51",
        "`to` that is empty, or names what is no text",
        'nobody or only texts are served, in silence; `[{"toString":1}]` ends two of them',
        "`invalid_message`",
        (
            r'\{"to": \[\], .*',
            r'\{"to": \[(1|null|\["agent-007"\])\].*',
            r'\{"to": \["agent-007", 5\].*',
            r'\{"to":\[\{"toString":1\}\],"payload":1\}',
            r'\{"to":(\{\}|5),"payload":1\}',
        ),
    ),
    Row(
        "D51",
        "`null`",
        "ends the relay",
        "`invalid_message`",
        ("null",),
    ),
    Row(
        "D51",
        "`subscribe` and `unsubscribe` with a payload of another shape",
        "silence, or they are taken as they are",
        "`invalid_message`",
        (r'\{"to": \["relay"\], "type": "(un)?subscribe", "payload": .*',),
    ),
    Row(
        "D51",
        "commands that are not known, or of extensions that are not there",
        "silence",
        "`unknown_command`",
        (
            r'\{"to": \["relay"\], "payload": "no type"\}',
            r'\{"to": \["relay"\], "type": "(query|command|vote|storage:status|welcome|unsubscribe_all)".*',
            r'\{"to": \["\*", "relay"\].*',
        ),
    ),
)


def write_page() -> str:
    """Return the whole page."""
    lines = [
        f"| {row.decision} | {_cell(row.what)} | {_cell(row.recorded)} | {_cell(row.ours)} |\n"
        for row in ROWS
    ]
    return "".join([HEAD, *lines, TAIL])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
