"""The thing's session of an LMOS connection."""

from ._answers import AnswerBound as AnswerBound, AnswerMemory as AnswerMemory
from ._receiver import Demand as Demand
from ._requests import (
    IncomingRequest as IncomingRequest,
    Listening as Listening,
    ListeningEnded as ListeningEnded,
    RequestKind as RequestKind,
    RequestWithdrawn as RequestWithdrawn,
    State as State,
    WaitsAsked as WaitsAsked,
)
from ._session import ThingSession as ThingSession
from ._tables import ThingStatistics as ThingStatistics
