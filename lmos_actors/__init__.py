"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree keeps
them running. `Agent`, `action`, `prop` and `event` define agents, `open_node` runs them, a `Ref` addresses
one of them.

Each public name is imported on first use, so that the command starts quickly: `lmos-actors --version` needs
none of them, a file of agents needs no node, and the command itself handles Ctrl-C during imports. Further
names are in `lmos_actors.errors`, `lmos_actors.types` and `lmos_actors.facades`. Looking up one of those here
raises an error that names its module.
"""

from lmos_actors._late import late

with late(__name__, others=("lmos_actors.errors", "lmos_actors.types", "lmos_actors.facades")):
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
    from .assembly import (
        NodeOptions as NodeOptions,
        open_node as open_node,
        open_node_in_thread as open_node_in_thread,
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
        NodeService as NodeService,
        NodeThread as NodeThread,
        ServiceHome as ServiceHome,
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
