"""Crash reports as rows of views, each rendered once and kept as long as its report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lmos_actors.actors import text_of_data

if TYPE_CHECKING:
    from lmos_actors.actors import CrashReport

    from ._merge_patch import State


class CrashRows:
    """The rows of the crash reports of one node."""

    def __init__(self) -> None:
        self._rendered: WeakKeyDictionary[CrashReport, State] = WeakKeyDictionary()

    def has(self, report: CrashReport) -> bool:
        """Return whether a report has been rendered, so that its row costs nothing."""
        return report in self._rendered

    def row(self, report: CrashReport) -> State:
        """Return a row: what happened, where and when, and the report as `text` and as data in `report`."""
        row = self._rendered.get(report)
        if row is None:
            row = self._rendered[report] = _rendered(report)
        return row

    def short(self, report: CrashReport) -> State:
        """Return the row without the report itself."""
        row = self.row(report)
        return {name: value for name, value in row.items() if name not in ("text", "report")}


def _rendered(report: CrashReport) -> State:
    data = report.quiet_data()
    return {
        "agent": data["agent"],
        "class": data["class"] or "",
        "life": data["incarnation"],
        "time": report.time.timestamp(),
        "reason": data["reason"],
        "where": data["where"] or "",
        "text": text_of_data(data),
        "report": {name: value for name, value in data.items() if value is not None},
    }
