"""LMOS without I/O: messages, dialects, codec, and the two ends of a connection."""

from lmos_actors._late import late

with late(__name__):
    from ._codec import (
        Codec as Codec,
        Unreadable as Unreadable,
    )
    from ._dialects import (
        Dialect as Dialect,
        Habits as Habits,
        canonical_status as canonical_status,
        message_type as message_type,
    )
    from ._frames import Binary as Binary
    from ._limits import (
        Checked as Checked,
        Limits as Limits,
        beyond as beyond,
        written as written,
    )
    from ._messages import (
        Acknowledgement as Acknowledgement,
        ActionStatus as ActionStatus,
        Answer as Answer,
        CancelAction as CancelAction,
        Credit as Credit,
        Error as Error,
        Event as Event,
        Gap as Gap,
        InvokeAction as InvokeAction,
        Message as Message,
        ObserveProperty as ObserveProperty,
        PropertyReading as PropertyReading,
        PropertyReadings as PropertyReadings,
        QueryAction as QueryAction,
        ReadAllProperties as ReadAllProperties,
        ReadMultipleProperties as ReadMultipleProperties,
        ReadProperty as ReadProperty,
        Request as Request,
        StreamCredit as StreamCredit,
        Streamed as Streamed,
        StreamEnd as StreamEnd,
        StreamItem as StreamItem,
        StreamOffer as StreamOffer,
        StreamOpen as StreamOpen,
        SubscribeAllEvents as SubscribeAllEvents,
        SubscribeEvent as SubscribeEvent,
        TellCredit as TellCredit,
        TellWindow as TellWindow,
        UnobserveProperty as UnobserveProperty,
        UnsubscribeAllEvents as UnsubscribeAllEvents,
        UnsubscribeEvent as UnsubscribeEvent,
        WriteAllProperties as WriteAllProperties,
        WriteMultipleProperties as WriteMultipleProperties,
        WriteProperty as WriteProperty,
        message_types as message_types,
    )
    from ._outbox import Sendable as Sendable
    from ._peer import OFFERS as OFFERS, Close as Close, SessionOptions as SessionOptions
    from ._pending import (
        ConsumerRequest as ConsumerRequest,
        Feed as Feed,
        PendingRun as PendingRun,
        RunStatus as RunStatus,
        TraceMembers as TraceMembers,
    )
    from ._problems import (
        FAILED as FAILED,
        Problem as Problem,
        error_message as error_message,
        error_of as error_of,
        problem_of as problem_of,
    )
    from ._streams import (
        CreditArrived as CreditArrived,
        Incoming as Incoming,
        ItemArrived as ItemArrived,
        Outgoing as Outgoing,
        Run as Run,
        StreamFinished as StreamFinished,
        StreamStopped as StreamStopped,
    )
    from ._strictness import (
        irregularities as irregularities,
    )
    from ._times import (
        format_time as format_time,
        parse_time as parse_time,
    )
    from .consumer._outcomes import (
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
    from .consumer._session import (
        ConsumerSession as ConsumerSession,
        ConsumerStatistics as ConsumerStatistics,
        UnfinishedWork as UnfinishedWork,
    )
    from .thing._answers import AnswerBound as AnswerBound, AnswerMemory as AnswerMemory
    from .thing._receiver import Demand as Demand
    from .thing._requests import (
        IncomingRequest as IncomingRequest,
        Listening as Listening,
        ListeningEnded as ListeningEnded,
        RequestKind as RequestKind,
        RequestWithdrawn as RequestWithdrawn,
        State as State,
        WaitsAsked as WaitsAsked,
    )
    from .thing._session import ThingSession as ThingSession
    from .thing._tables import ThingStatistics as ThingStatistics
