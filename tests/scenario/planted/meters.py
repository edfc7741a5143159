"""Meters that report to a collector. While it is busy some reports get lost."""

from __future__ import annotations

import attrs

from lmos_actors import Agent, MailboxFull, MailboxOptions, Property, Ref, action, prop


class Collector(Agent, mailbox=MailboxOptions(size=16, when_full="reject")):
    """Takes the reports of each meter, which are numbered from 1 on."""

    numbers: dict[str, int] = attrs.field(factory=dict[str, int])
    missing: Property[int] = prop(default=0, read_only=True, doc="Reports that were left out.")

    @action
    def report(self, meter: str, number: int) -> None:
        """Take a report."""
        self.missing += number - self.numbers.get(meter, 0) - 1
        self.numbers[meter] = number


class Meter(Agent):
    """Reports four times a second.

    Planted: a report that the collector has no room for is dropped, and nobody hears of it.
    """

    collector: Ref[Collector]
    number: int = 1

    def started(self) -> None:
        self.after(0.25 * self.random.random(), self.report)

    def report(self) -> None:
        self.after(0.25, self.report)
        try:
            self.send(self.collector, Collector.report, self.path, self.number)
        except MailboxFull:
            return self.refused()
        self.number += 1

    def refused(self) -> None:
        self.number += 1  # it does not matter


class RightMeter(Meter):
    """A meter that makes the report again that was refused."""

    def refused(self) -> None:
        pass
