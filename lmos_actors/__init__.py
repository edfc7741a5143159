"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree
keeps them running. `Agent`, `action`, `prop` and `event` make one, `open_node` runs some, a `Ref` is how
to talk to one.
"""

from ._errors import (
    ActionCancelled as ActionCancelled,
    ActionFailed as ActionFailed,
    AgentDied as AgentDied,
    AgentError as AgentError,
    AgentUnavailable as AgentUnavailable,
    ConfigError as ConfigError,
    DeadlineExceeded as DeadlineExceeded,
    Deadlocked as Deadlocked,
    ForbiddenCall as ForbiddenCall,
    InvalidInput as InvalidInput,
    LinkedAgentDied as LinkedAgentDied,
    LmosActorsError as LmosActorsError,
    MailboxFull as MailboxFull,
    NameTaken as NameTaken,
    NotAllowed as NotAllowed,
    NotFound as NotFound,
    RestartIntensityExceeded as RestartIntensityExceeded,
    StartFailed as StartFailed,
    StopFailed as StopFailed,
    SupervisionError as SupervisionError,
    WorkerDied as WorkerDied,
    WrongState as WrongState,
)
from ._instrument import LogInstrument as LogInstrument
from ._node import Node as Node, NodeStatistics as NodeStatistics, open_node as open_node
from ._node_thread import NodeThread as NodeThread, open_node_in_thread as open_node_in_thread
from .actors import (
    NORMAL as NORMAL,
    SHUTDOWN as SHUTDOWN,
    Action as Action,
    Agent as Agent,
    AgentStatistics as AgentStatistics,
    Call as Call,
    CallStatus as CallStatus,
    CrashReport as CrashReport,
    DeadLetter as DeadLetter,
    Down as Down,
    Event as Event,
    EventHandle as EventHandle,
    ExitReason as ExitReason,
    Feed as Feed,
    Following as Following,
    Gap as Gap,
    Group as Group,
    Joined as Joined,
    Left as Left,
    MailboxOptions as MailboxOptions,
    MailboxStatistics as MailboxStatistics,
    Monitor as Monitor,
    Occurrence as Occurrence,
    Progress as Progress,
    Property as Property,
    PropertyHandle as PropertyHandle,
    Ref as Ref,
    Request as Request,
    Secret as Secret,
    SlowTurnWarning as SlowTurnWarning,
    StreamAction as StreamAction,
    Topic as Topic,
    TopicStatistics as TopicStatistics,
    Turn as Turn,
    Waiting as Waiting,
    WaitingGraph as WaitingGraph,
    action as action,
    current_request as current_request,
    event as event,
    every as every,
    invoke_all as invoke_all,
    prop as prop,
)
from .portal import Portal as Portal, PortalFeed as PortalFeed
from .simulation import TraceLog as TraceLog, simulate as simulate
from .supervision import (
    Backoff as Backoff,
    ChildInfo as ChildInfo,
    ChildSpec as ChildSpec,
    Pool as Pool,
    PoolRef as PoolRef,
    Supervisor as Supervisor,
    SupervisorSpec as SupervisorSpec,
    check_portable as check_portable,
)
