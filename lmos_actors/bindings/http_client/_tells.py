"""One-way messages over HTTP: one after another for each thing, so that they arrive in order (M4, M5)."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from lmos_actors.errors import AgentError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..lmos._peer_requests import FarTell, Note
    from ._invocations import Errand

SEATS: Final = 256
"""Messages that have been taken for sending and wait for their turn."""


class Tells:
    """The one-way messages to one thing. `start` has `run` carried out, in a task, when there are some.

    `failed` is given what is a mistake here, which costs one message.
    """

    def __init__(self, start: Callable[[], None], failed: Callable[[BaseException], object]) -> None:
        self.line: OrderedDict[FarTell, Errand] = OrderedDict()
        """Those that wait for a seat, whose senders are held back."""
        self._start = start
        self._failed = failed
        self._seated: deque[tuple[Note, Errand]] = deque()
        self._runs = False

    def put(self, note: Note, errand: Errand) -> bool:
        """Take a message for sending; False where there is no room."""
        if self.line or len(self._seated) >= SEATS:
            return False
        self._seated.append((note, errand))
        if not self._runs:
            self._runs = True
            self._start()
        return True

    def post(self, want: FarTell, errand: Errand) -> None:
        """Take a message for sending, or let it stand in line for room."""
        if self.put(want.note, errand):
            want.posted()
        else:
            self.line[want] = errand

    async def run(self) -> None:
        """Send what there is."""
        while self._seated:
            note, errand = self._seated.popleft()
            self._go_on()
            try:
                await errand.run(None)
            except AgentError as error:
                note.fail(error)
            except Exception as error:
                self._failed(error)
                note.fail(OutcomeUnknown(note.far.path, f"{type(error).__name__} here"))
        self._runs = False

    def _go_on(self) -> None:
        if self.line:
            want, errand = self.line.popitem(last=False)
            self._seated.append((want.note, errand))
            want.posted()

    def end(self, error: Callable[[Note], Exception]) -> None:
        """The node has ended: nothing more is sent."""
        for want in tuple(self.line):
            del self.line[want]
            want.fail(error(want.note))
        while self._seated:
            note, _ = self._seated.popleft()
            note.fail(error(note))
