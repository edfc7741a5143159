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
    InvalidInput as InvalidInput,
    LmosActorsError as LmosActorsError,
    MailboxFull as MailboxFull,
    NameTaken as NameTaken,
    NotAllowed as NotAllowed,
    NotFound as NotFound,
    RestartIntensityExceeded as RestartIntensityExceeded,
    StartFailed as StartFailed,
    StopFailed as StopFailed,
    SupervisionError as SupervisionError,
    WrongState as WrongState,
)
from ._node import Node as Node, NodeStatistics as NodeStatistics, open_node as open_node
from .actors import (
    Action as Action,
    Agent as Agent,
    AgentStatistics as AgentStatistics,
    Call as Call,
    CallStatus as CallStatus,
    DeadLetter as DeadLetter,
    Down as Down,
    Event as Event,
    EventHandle as EventHandle,
    ExitReason as ExitReason,
    Feed as Feed,
    Gap as Gap,
    MailboxOptions as MailboxOptions,
    MailboxStatistics as MailboxStatistics,
    Occurrence as Occurrence,
    Progress as Progress,
    Property as Property,
    PropertyHandle as PropertyHandle,
    Ref as Ref,
    Request as Request,
    SlowTurnWarning as SlowTurnWarning,
    StreamAction as StreamAction,
    Turn as Turn,
    action as action,
    current_request as current_request,
    event as event,
    every as every,
    invoke_all as invoke_all,
    prop as prop,
)
from .simulation import TraceLog as TraceLog, simulate as simulate
from .supervision import (
    Backoff as Backoff,
    ChildInfo as ChildInfo,
    ChildSpec as ChildSpec,
    Supervisor as Supervisor,
    SupervisorSpec as SupervisorSpec,
)
