"""The consumer's session of an LMOS connection."""

from ._outcomes import (
    EventOccurred as EventOccurred,
    FeedEnded as FeedEnded,
    FeedEstablished as FeedEstablished,
    ForgottenFailed as ForgottenFailed,
    Outcome as Outcome,
    PropertyRead as PropertyRead,
    RequestAnswered as RequestAnswered,
    RequestFailed as RequestFailed,
    RunItem as RunItem,
    RunProgressed as RunProgressed,
    StrayMessage as StrayMessage,
    TellRoom as TellRoom,
    ValuesMissed as ValuesMissed,
)
from ._session import (
    ConsumerSession as ConsumerSession,
    ConsumerStatistics as ConsumerStatistics,
    UnfinishedWork as UnfinishedWork,
)
