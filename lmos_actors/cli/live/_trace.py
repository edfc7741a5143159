"""Execution of `trace`: the messages of a node as they pass, on a terminal, as JSON lines, and in a log.

A node records messages only while somebody looks, so it begins with the ones after that. The log is one that
`replay` and `diff` read: its instants begin with the first message.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.live import open_live
from lmos_actors.recording import RecordingFile
from lmos_actors.reports import message_text, read_record

from ..remote._relay import run_within
from ..remote._session import ANSWERED_WITH_ERROR, OK
from ._watch import headers_for, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.live import LiveClient

    from .._answers import AnswerPrinter
    from ..options._live import TraceOptions

VALUES: Final = ("input", "value", "data", "progress")
"""The members of a record that hold values of agents."""

OWN: Final = frozenset({"n", "t", "kind", "agent", "json"})

OPEN: Final = 10_000
"""Requests without an answer that are known of at a time."""

FULL: Final = 200
"""Records of the view at a time."""

ENDS: Final = frozenset({"answered", "refused", "dropped", "cancelled", "dead_letter"})

COLOURS: Final = {"sent": "bold", "delivered": "dim", "crashed": "bold red", "event": "cyan"}


def run_trace(url: str, options: TraceOptions) -> int:
    """Print messages until Ctrl-C; return the exit code. Raises ConfigError, OSError.

    With `once` it ends with the first that are all answered.
    """
    watch = options.watch
    server, answers = watch.server.at(url), watch.answers()
    stream = _Stream()
    head = {"watched": url, "label": url}
    log = None if options.log is None else RecordingFile(options.log, head, lambda: stream.at)

    async def work() -> int:
        async with open_live(url, headers=headers_for(server), tls=server.tls) as client:
            client.look("flow", "flow", **options.arguments())
            return await _follow(client, stream, log, answers, once=watch.once)

    try:
        return run_within(watch.within, answers, work)
    finally:
        if log is not None:
            log.end()
            log.close()
            print(f"lmos-actors: wrote {log.path}: {log.records} records", file=sys.stderr)


async def _follow(
    client: LiveClient, stream: _Stream, log: RecordingFile | None, answers: AnswerPrinter, *, once: bool
) -> int:
    said = False
    while not client.errors:
        await client.wait()
        if "flow" in client.views and not said:
            said = True
            print("lmos-actors: messages from now on; Ctrl-C ends", file=sys.stderr, flush=True)
        lines: list[str] = []
        for record in stream.fresh(client.views.get("flow", {})):
            if log is not None:
                fields = {name: value for name, value in record.items() if name not in OWN}
                log.record(record["kind"], record["agent"], **fields)
            lines.append(_line(record, answers))
        if stream.missed:
            print(
                f"lmos-actors: up to {stream.missed} records were left out here", file=sys.stderr, flush=True
            )
            stream.missed = 0
        if lines:
            await answers.write("".join(lines))
            if once and not stream.open:
                return OK
    answers.wrong(reason_of(client.errors[0]))
    return ANSWERED_WITH_ERROR


def _line(record: dict[str, Any], answers: AnswerPrinter) -> str:
    text = json.dumps(record, ensure_ascii=False)
    if answers.form == "json":
        return f"{text}\n"
    found = read_record(text)
    shown = text if found is None else message_text(found)
    colour = "red" if "error" in record else COLOURS.get(record["kind"], "")
    if not colour or not sys.stdout.isatty():
        return f"{shown}\n"
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as captured:
        console.print(Text(shown, colour), soft_wrap=True)
    return captured.get()


class _Stream:
    """The records of the view in their order, each once, as they stand in a log."""

    def __init__(self) -> None:
        self.at = 0.0
        """The instant of the last record, from the first one on."""
        self.open: dict[Any, None] = {}
        """Requests that have no answer yet."""
        self.missed = 0
        """The most records that may have been missed, as there were too many; others' count too."""
        self._begun: float | None = None
        self._last = 0
        self._number = 0

    def fresh(self, state: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the records that have come."""
        records = sorted(state.get("records", {}).values(), key=lambda record: record["n"])
        if records and records[-1]["n"] < self._last:
            self._last = 0  # the node records anew
        news = [record for record in records if record["n"] > self._last]
        if news and len(news) == len(records) >= FULL and self._number:
            self.missed += news[0]["n"] - self._last - 1
        for record in news:
            self._last = record["n"]
            if self._begun is None:
                self._begun = record["t"]
            self.at = max(self.at, round(record["t"] - self._begun, 6))
            self._number += 1
            self._note(record)
            yield self._logged(record)

    def _logged(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record as it stands in a log: values as such, or as text, which `text` then names."""
        fields: dict[str, Any] = {**record, "n": self._number, "t": self.at}
        values = [name for name in VALUES if name in fields]
        if fields.pop("json", False):
            return {**fields, **{name: json.loads(fields[name]) for name in values}}
        return {**fields, "text": values} if values else fields

    def _note(self, record: dict[str, Any]) -> None:
        number = record.get("id")
        if number is None:
            return
        if record["kind"] == "sent" and len(self.open) < OPEN:
            self.open[number] = None
        elif record["kind"] in ENDS:
            self.open.pop(number, None)
