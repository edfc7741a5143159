"""The types of values that the methods of refs and nodes return, for annotations."""

from lmos_actors._late import late

with late(__name__):
    from .actors import (
        Action as Action,
        AgentStatistics as AgentStatistics,
        CallStatus as CallStatus,
        CrashReport as CrashReport,
        DeadLetter as DeadLetter,
        DurableTimer as DurableTimer,
        EventHandle as EventHandle,
        FeedStatistics as FeedStatistics,
        Joined as Joined,
        Left as Left,
        MailboxStatistics as MailboxStatistics,
        Occurrence as Occurrence,
        PropertyHandle as PropertyHandle,
        Request as Request,
        StreamAction as StreamAction,
        TopicStatistics as TopicStatistics,
        Turn as Turn,
        Waiting as Waiting,
        WaitingGraph as WaitingGraph,
    )
    from .observe import NodeStatistics as NodeStatistics
    from .portal import PortalFeed as PortalFeed
    from .supervision import ChildInfo as ChildInfo, SupervisorStatistics as SupervisorStatistics
