"""The public names of the package; the first use of any of them imports this module."""

from ._core import LogInstrument as LogInstrument
from .actors import (
    NORMAL as NORMAL,
    SHUTDOWN as SHUTDOWN,
    About as About,
    Agent as Agent,
    Call as Call,
    Down as Down,
    Event as Event,
    ExitReason as ExitReason,
    Feed as Feed,
    Following as Following,
    Gap as Gap,
    Group as Group,
    MailboxOptions as MailboxOptions,
    Monitor as Monitor,
    Progress as Progress,
    Property as Property,
    Ref as Ref,
    Secret as Secret,
    Topic as Topic,
    Unit as Unit,
    action as action,
    current_request as current_request,
    describe as describe,
    ephemeral as ephemeral,
    event as event,
    every as every,
    invoke_all as invoke_all,
    prop as prop,
    state_converter as state_converter,
)
from .errors import (
    ActionFailed as ActionFailed,
    AgentDied as AgentDied,
    AgentError as AgentError,
    AgentUnavailable as AgentUnavailable,
    ConfigError as ConfigError,
    DeadlineExceeded as DeadlineExceeded,
    InvalidInput as InvalidInput,
    LmosActorsError as LmosActorsError,
    MailboxFull as MailboxFull,
    NotAllowed as NotAllowed,
    NotFound as NotFound,
    OutcomeUnknown as OutcomeUnknown,
    StartFailed as StartFailed,
)
from .node import (
    Node as Node,
    NodeOptions as NodeOptions,
    NodeThread as NodeThread,
    open_node as open_node,
    open_node_in_thread as open_node_in_thread,
)
from .portal import Portal as Portal
from .protocol.td import Description as Description, ModelInfo as ModelInfo, Vendor as Vendor
from .simulation import TraceLog as TraceLog, simulate as simulate
from .supervision import (
    Backoff as Backoff,
    ChildSpec as ChildSpec,
    Pool as Pool,
    PoolRef as PoolRef,
    Supervisor as Supervisor,
    SupervisorSpec as SupervisorSpec,
    check_portable as check_portable,
    sibling as sibling,
)
