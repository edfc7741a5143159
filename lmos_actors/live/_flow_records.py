"""The records of the view `flow`, collected by a viewer in order and without duplicates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ._flow import SHOWN_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: Final = ("input", "value", "data", "progress")
"""The members of a record that hold values of agents."""

OPEN: Final = 10_000
"""Requests without an answer that are remembered at a time."""

ENDS: Final = frozenset({"answered", "refused", "dropped", "cancelled", "dead_letter"})


class FlowRecords:
    """The records of the view in order and without duplicates, in the form that they have in a log."""

    def __init__(self) -> None:
        self.at = 0.0
        """The instant of the last record, in seconds since the first one."""
        self.open: dict[Any, None] = {}
        """Requests that have no answer yet."""
        self.missed = 0
        """How many records may have been missed at most, as there were too many; others' count too."""
        self._begun: float | None = None
        self._last = 0
        self._number = 0

    def fresh(self, state: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the records in a state of the view that earlier states did not contain."""
        records = sorted(state.get("records", {}).values(), key=lambda record: record["n"])
        if records and records[-1]["n"] < self._last:
            self._last = 0  # the node records anew
        news = [record for record in records if record["n"] > self._last]
        if news and len(news) == len(records) >= SHOWN_RECORDS and self._number:
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
        """Return a record in the form of a log: values as data, or as text for the names in `text`."""
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
