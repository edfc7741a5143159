"""What a node keeps of the crashes of its agents: the last reports, who waits for the next, the log."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from ._monitor import ExitReason
from ._reports import REASON, CrashReport, class_made_by
from ._secrets import HIDDEN, Secrets, conceal, members_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._mailbox import Envelope
    from ._observers import Feed

REPORTS: Final = 100  # kept by a node
LOGGER: Final = "lmos_actors"
AT_ONCE: Final = 10  # reports written to the log …
WITHIN: Final = 10.0  # … in so many seconds


def crash_reason(slot: Any, error: BaseException, hand: Any, earlier: Iterable[Any] = ()) -> ExitReason:
    """Make the reason of an agent that ends by an exception, with its report.

    `hand` is the item of its mailbox that raised, or words for what it was; `earlier` the items before it.
    """
    return ExitReason("error", error=error, report=CrashReport(slot, error, hand, earlier))


def shown_message(place: Any, affordance: str, message: Any) -> Any:
    """Give what may be shown of a message that was sent to an agent or a pool, and perhaps never checked.

    Where nobody knows what may be shown, because there is no agent yet, that is nothing.
    """
    if not isinstance(message, tuple) or not message:
        return message  # pyright: ignore[reportUnknownVariableType] # no arguments, or none of a message
    args: tuple[Any, ...] = cast("Any", message)
    for slot in (place, *getattr(place, "members", ())):
        table = getattr(slot, "table", None) or _table_of(slot)
        for key in (affordance, f"={affordance}", affordance.replace("*", "=")):
            if key in table:
                hidden = table[key].secrecies
                return args if hidden is None else tuple(map(_shown, args, hidden))
    return HIDDEN


def without_secrets(envelope: Envelope, text: str) -> str:
    """Give the text of an error that a message ended with, without the secrets of the message."""
    hidden = envelope.op.secrecies
    if hidden is None:
        return text
    found = Secrets()
    for value, secrecy in zip(envelope.args, hidden, strict=False):
        found.look(value, secrecy)
    return found.clean(text, REASON)


def _table_of(slot: Any) -> dict[str, Any]:
    spec = getattr(slot, "spec", None)
    contract = getattr(class_made_by(getattr(spec, "factory", None)), "__contract__", None)
    return contract.table if contract is not None else {}


def _shown(value: Any, secrecy: Any) -> Any:
    """As `conceal`, but an object in the form it has in JSON does not tell what of it is secret."""
    known = not secrecy or not isinstance(secrecy, int) or members_of(value) is not None
    return conceal(value, secrecy) if known else HIDDEN


class Crashes:
    """The reports of one node. `log`: write them to the standard library's logging, too."""

    def __init__(self, *, log: bool) -> None:
        self.reports: deque[CrashReport] = deque(maxlen=REPORTS)
        self.feeds: list[Feed[CrashReport]] = []
        self._log = _Log() if log else None

    def take(self, slot: object, reason: ExitReason) -> None:
        """Note a crash; nothing where the reason is another agent's, or was no crash."""
        report: CrashReport | None = reason.report
        if report is None or not report.is_of(slot):
            return
        self.reports.append(report)
        if self.feeds:
            for feed in tuple(self.feeds):
                feed.push(report)
        log = self._log
        if log is not None and isinstance(report.error, Exception) and not report.is_first_start:
            log.take(report)

    def close(self) -> None:
        """The node has ended: say what the log left out last."""
        if self._log is not None:
            self._log.say_left_out()


class _Log:
    """Writes reports to logging: ten in ten seconds, and how many were left out."""

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
        """Tell how many were left out since the last one written."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._write("%d crash reports were left out here; node.crash_reports has the last ones", left_out)

    def _write(self, text: str, what: object) -> None:
        with suppress(Exception):  # of a handler of the user's: the crash arrives elsewhere, too
            self._logger.error(text, what)
