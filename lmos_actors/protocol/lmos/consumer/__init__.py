"""The consumer's session of an LMOS connection."""

from ._outcomes import (
    Answered as Answered,
    Ended as Ended,
    Established as Established,
    Failed as Failed,
    Happening as Happening,
    Item as Item,
    Lost as Lost,
    Missed as Missed,
    Moved as Moved,
    Occurred as Occurred,
    Read as Read,
    Stray as Stray,
    TellRoom as TellRoom,
)
from ._session import (
    ConsumerSession as ConsumerSession,
    ConsumerStatistics as ConsumerStatistics,
    Left as Left,
)
