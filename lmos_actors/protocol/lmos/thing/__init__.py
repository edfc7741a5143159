"""The thing's session of an LMOS connection."""

from ._answers import AnswerBound as AnswerBound, AnswerMemory as AnswerMemory
from ._intake import Demand as Demand
from ._requests import (
    Asked as Asked,
    Listening as Listening,
    State as State,
    Unlistened as Unlistened,
    Verb as Verb,
    Withdrawn as Withdrawn,
)
from ._session import ThingSession as ThingSession
from ._tables import ThingStatistics as ThingStatistics
