"""Execution of `trace`: the messages of a node as they pass, on a terminal, as JSON lines, and in a log.

A node records messages only while a client watches, so the trace begins when the command starts. `replay` and
`diff` can read the log; its times are counted from the first message.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.live import FlowRecords
from lmos_actors.recording import RecordingFile
from lmos_actors.reports import message_text, read_record

from .._exit_codes import FAILED, OK
from ..remote._relay import run_within
from ._watch import live_at, reason_of

if TYPE_CHECKING:
    from lmos_actors.live import LiveClient

    from .._answers import AnswerPrinter
    from ..options._live import TraceOptions

OWN: Final = frozenset({"n", "t", "kind", "agent", "json"})
"""The members of a record that are not fields of a log."""

COLOURS: Final = {"sent": "bold", "delivered": "dim", "crashed": "bold red", "event": "cyan"}


def run_trace(url: str, options: TraceOptions) -> int:
    """Print messages until Ctrl-C; return the exit code. Raises ConfigError, OSError.

    With `once` the trace ends when all requests seen so far are answered.
    """
    watch = options.watch
    server, answers = watch.server.at(url), watch.answers()
    stream = FlowRecords()
    head = {"watched": url, "label": url}
    log = None if options.log is None else RecordingFile(options.log, head, lambda: stream.at)

    async def work() -> int:
        async with live_at(server) as client:
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
    client: LiveClient, stream: FlowRecords, log: RecordingFile | None, answers: AnswerPrinter, *, once: bool
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
    return FAILED


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
