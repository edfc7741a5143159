"""The crashes of a node's agents: the last reports, the feeds of new reports, and the log."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors._core import ASYNCIO, HIDDEN, WAY_OUT
from lmos_actors.errors import LinkedAgentDied, WrongEventLoop, group_of, text_of

from ..declaration._contract import outline_of
from ..messages._monitor import ExitReason
from ..values import PARTS, Secrets, conceal, conceal_all, conceal_unchecked
from ._report_values import class_made_by, fields_of
from ._reports import REASON, CrashReport
from ._traces import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..messages._mailbox import Envelope
    from ..messages._observers import Feed

LOGGER: Final = "lmos_actors"
AT_ONCE: Final = 10  # the most reports written to the log …
WITHIN: Final = 10.0  # … in so many seconds


def crash_reason(slot: Any, error: BaseException, hand: Any, earlier: Iterable[Any] = ()) -> ExitReason:
    """Make the exit reason, with a crash report, for an agent that ends by an exception.

    `hand` is the item of its mailbox that raised, or the name of the code; `earlier` are the items before it.
    """
    if isinstance(error, _OF_LOOPS):
        error = _explained(slot, error)
    return ExitReason("error", error=error, report=CrashReport(slot, error, hand, earlier))


def _explained(slot: Any, error: BaseException) -> BaseException:
    """Return a clearer error, with the user's line and a solution, if asyncio code has raised this one."""
    leaf = error
    while (group := group_of(leaf)) is not None and len(group.exceptions) == 1:
        leaf = group.exceptions[0]
    text = text_of(leaf)
    if not (any(part in text for part in _NO_LOOP) or _is_missing_loop(leaf, text)):
        return error
    way = _THREAD if slot.rt.real else WAY_OUT
    why = text.partition(". ")[0].rstrip(".")
    wrong = WrongEventLoop(f"asyncio code in an agent, at {place_of(leaf)}: {why}; {_ON_TRIO}, or {way}")
    wrong.__cause__ = error
    return wrong.with_traceback(leaf.__traceback__)


_OF_LOOPS: Final[Any] = (RuntimeError, TypeError, AttributeError, BaseExceptionGroup)
_NO_LOOP: Final = (
    "no running event loop",
    "There is no current event loop",
    "asyncio.run() cannot be called from a running event loop",
    "unrecognized yield message",
    "Task got bad yield",
)
_ON_TRIO: Final = "agents run on trio: await trio.sleep(...) and its like"
_THREAD: Final = (
    "run what needs asyncio in a thread, await self.to_thread(asyncio.run, main()), "
    "where node.portal().aio reaches agents"
)


def _is_missing_loop(error: BaseException, text: str) -> bool:
    """Return whether asyncio has failed for lack of its loop, which may show as an AttributeError."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    inside = traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(ASYNCIO)
    return inside and text.startswith("'NoneType' object has no attribute")


def end_reason(slot: Any, error: BaseException, hand: Any) -> ExitReason:
    """Make the exit reason, as `crash_reason` does, for an exception that leaves a run or a task.

    If the cause is a linked agent that was stopped, its reason is passed on unchanged, as that is no crash.
    """
    if isinstance(error, LinkedAgentDied) and error.reason.kind == "shutdown":
        passed_on: ExitReason = error.reason
        return passed_on
    return crash_reason(slot, error, hand)


def shown_message(place: Any, affordance: str, message: Any) -> Any:
    """Return the parts of a message to an agent or a pool that may be shown; it may be unchecked so far.

    Nothing is shown until there is an agent, whose class declares the secrets.
    """
    if not isinstance(message, tuple) or not message:
        return message  # pyright: ignore[reportUnknownVariableType] # no arguments, or none of a message
    args: tuple[Any, ...] = cast("Any", message)
    for slot in (place, *getattr(place, "members", ())):
        op = _operation(getattr(slot, "table", None), affordance)
        if op is not None:
            return conceal_all(args, op.secrecies)
        contract = outline_of(class_made_by(getattr(getattr(slot, "spec", None), "factory", None)))
        op = _operation(contract.table if contract is not None else None, affordance)
        if op is not None:
            return tuple(map(_shown_unchecked, args, op.secrecies or (0,) * len(args)))
    return HIDDEN


def _operation(table: dict[str, Any] | None, affordance: str) -> Any:
    keys = (affordance, f"={affordance}", affordance.replace("*", "="))
    return next((table[key] for key in keys if key in table), None) if table else None


def _shown_unchecked(value: Any, secrecy: Any) -> Any:
    """Return an argument without its secrets; its type need not be the declared one."""
    return conceal_unchecked(value, secrecy) if secrecy else conceal(value, PARTS)


def without_secrets(envelope: Envelope, text: str) -> str:
    """Return the text of the error that ended a message, without secrets of message and agent."""
    agent: Any = envelope.slot.agent
    hidden = envelope.op.secrecies
    guarded = agent is not None and agent.__contract__.guarded
    if hidden is None and not guarded:
        return text
    found = Secrets()
    for value, secrecy in zip(envelope.args, hidden or (), strict=False):
        found.look(value, secrecy)
    if guarded:
        for value, secrecy in fields_of(cast("type", type(agent)), agent.__dict__).values():
            found.look(value, secrecy)
    return found.clean(text, REASON)


def hide_error(envelope: Envelope, fields: dict[str, object]) -> None:
    """Remove secrets from the record of an error; a failure's output stays if its text contains none."""
    text = str(fields["error"])
    fields["error"] = shown = without_secrets(envelope, text)
    if shown != text or fields.get("output") is None:
        fields.pop("output", None)


class Crashes:
    """The last `most` reports of one node; with `log` they also go to the standard library's logging."""

    def __init__(self, most: int, *, log: bool) -> None:
        self.reports: deque[CrashReport] = deque(maxlen=most)
        self.count = 0
        """The number of reports so far."""
        self.feeds: list[Feed[CrashReport]] = []
        self._log = _Log() if log else None

    def take(self, slot: object, reason: ExitReason) -> None:
        """Record a crash; do nothing if the reason comes from another agent, or is no crash."""
        report: CrashReport | None = reason.report
        if report is None or not report.is_of(slot):
            return
        self.reports.append(report)
        self.count += 1
        if self.feeds:
            for feed in tuple(self.feeds):
                feed.push(report)
        log = self._log
        if log is not None and isinstance(report.error, Exception) and not report.is_first_start:
            log.take(report)

    def close(self) -> None:
        """Log how many reports have been left out since the last written one, as the node has ended."""
        if self._log is not None:
            self._log.say_left_out()


class _Log:
    """A log that writes at most ten reports in ten seconds, and the number of those left out."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER)
        self._until = float("-inf")
        self._room = 0
        self._left_out = 0

    def take(self, report: CrashReport) -> None:
        """Write a report, or count it as left out."""
        now = report.stamp
        if not self._until - WITHIN <= now < self._until:  # the time of day may be set back
            self._until, self._room = now + WITHIN, AT_ONCE
        if not self._room:
            self._left_out += 1
            return
        self._room -= 1
        self.say_left_out()
        self._write("%s", report)

    def say_left_out(self) -> None:
        """Write how many reports have been left out since the last written one."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._write("%d crash reports were left out here; node.crash_reports has the last ones", left_out)

    def _write(self, text: str, what: object) -> None:
        with suppress(Exception):  # of a handler of the user's: the crash arrives elsewhere, too
            self._logger.error(text, what)
