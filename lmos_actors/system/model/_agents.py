"""Structs of agents, mocks, replays, populations, their supervision tree and topology."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration, Later

from ._base import Closed, Condition, Count, Data, Delay, Name, Scalar

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Shutdown: TypeAlias = Duration | Literal["brutal", "infinity"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]


class Mailbox(Closed, frozen=True, kw_only=True):
    """The room for waiting messages, and what happens to a message that arrives at a full mailbox."""

    size: Annotated[int, Meta(ge=1, le=1 << 40)] = 64
    when_full: Literal["wait", "reject", "drop_oldest", "drop_newest"] = "wait"


class Backoff(Closed, frozen=True, kw_only=True):
    """The delay before each restart attempt: `initial`, then `factor` times as long, at most `max`.

    Each delay varies by up to the fraction `jitter`, in both directions. After running for `max`, an agent
    begins again at `initial`.
    """

    initial: Duration
    factor: Annotated[float, Meta(ge=1)] = 2.0
    max: Duration = Duration(30.0)
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2


class Supervised(Closed, frozen=True, kw_only=True):
    """The keys that every agent of a file has, whatever its kind."""

    mailbox: Mailbox | UnsetType = UNSET
    restart: Restart = "permanent"
    shutdown: Shutdown = Duration(5.0)
    significant: bool = False
    backoff: Backoff | UnsetType = UNSET


class AgentEntry(Supervised, frozen=True, kw_only=True, tag_field="from", tag="agent"):
    """An agent whose class is in the project. Each of its turns occupies it for `service_time`.

    `key` is the key of its stored state, for a durable class. Nothing waits for the start of an `optional`
    agent.
    """

    use: Name
    args: Data = {}
    state: Data = {}
    id: Name | None = None
    key: Name | None = None
    optional: bool = False
    description: Name | None = None
    service_time: Duration = Duration(0.0)
    later: ClassVar[Later] = Later("start", "listen", "facades")


class PoolEntry(Closed, frozen=True, kw_only=True, tag_field="from", tag="pool"):
    """Several agents of one class behind one name: each message goes to one of them.

    `by` decides how the agent is chosen. With `by: key`, the value of the parameter `key` decides (default:
    the first parameter of the action). `restart`, `shutdown`, `mailbox`, `backoff` and `service_time` apply
    to each member, `max_restarts` and `max_seconds` to the pool.
    """

    use: Name
    size: Annotated[int, Meta(ge=1, le=10_000)]
    by: Literal["round_robin", "least_loaded", "key"] = "round_robin"
    key: Name | UnsetType = UNSET
    args: Data = {}
    state: Data = {}
    mailbox: Mailbox | UnsetType = UNSET
    service_time: Duration = Duration(0.0)
    restart: Literal["permanent", "transient"] = "permanent"
    shutdown: Shutdown = Duration(5.0)
    max_restarts: Count = 3
    max_seconds: Duration = Duration(5.0)
    backoff: Backoff | UnsetType = UNSET
    significant: ClassVar[bool] = False
    id: ClassVar[None] = None


# --- mocks


class When(Closed, frozen=True, kw_only=True):
    """The condition of a rule: all keys given must match; `any: true` alone matches every request.

    `after` names the tools whose results a model received last; only for a mock that speaks `model`.
    """

    action: Name | None = None
    from_: Name | None = field(name="from", default=None)
    after: Name | Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET
    contains: str | None = None
    equals: Any | UnsetType = UNSET
    match: dict[str, Condition | Scalar] = {}
    any: Literal[True] | UnsetType = UNSET


class Chunk(Closed, frozen=True, kw_only=True):
    """A part of the answer: an item of a stream or, for other actions, text before that of `done`."""

    chunk: Any


class Progressed(Closed, frozen=True, kw_only=True):
    """Progress that the caller receives."""

    progress: Any


class Waited(Closed, frozen=True, kw_only=True):
    """Time that passes between two parts of an answer."""

    wait: Delay


class ToolCall(Closed, frozen=True, kw_only=True):
    """A tool call by a model. `arguments` given as text are passed on unchanged.

    A tool that was not offered, or arguments that do not fit it, fail the run unless `unfit` allows them.
    """

    tool: Name
    arguments: Data | str = {}
    id: Name | None = None
    unfit: Literal["fails", "allowed"] = "fails"


class Called(Closed, frozen=True, kw_only=True):
    """A part of a model's answer: a request for a tool call."""

    call: ToolCall


class Reasoned(Closed, frozen=True, kw_only=True):
    """A part of a model's answer: its reasoning before the answer."""

    reasoning: str


class Done(Closed, frozen=True, kw_only=True):
    """The end of the answer, with the output."""

    done: Any


Reply: TypeAlias = Chunk | Progressed | Waited | Called | Reasoned | Done


class Refusal(Closed, frozen=True, kw_only=True):
    """A failure that callers can expect (ActionFailed); its output is {code, message}."""

    code: Name = "FAILED"
    message: str = ""


class Rule(Closed, frozen=True, kw_only=True):
    """The reaction of a mock to requests that fit: one of `output`, `reply`, `fail`, `crash`.

    The first rule that fits and has been used less than `times` applies. `type` is the type of the message
    with which a mock on a relay answers.
    """

    when: When
    output: Any | UnsetType = UNSET
    reply: Annotated[tuple[Reply, ...], Meta(min_length=1)] | UnsetType = UNSET
    fail: Refusal | UnsetType = UNSET
    crash: Name | UnsetType = UNSET
    emit: dict[str, Any] = {}
    delay: Delay | UnsetType = UNSET
    times: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    type: Name | UnsetType = UNSET
    unused: Literal["fails", "allowed"] = "fails"


class Mock(Supervised, frozen=True, kw_only=True, tag_field="from", tag="mock"):
    """A scripted agent, which replaces the class `use` or, without it, has the actions its rules name.

    A request that fits no rule, or a rule that is never used, fails the run unless the file allows it. A mock
    that speaks `omnia` is a chat agent: each text sent to it is a request for the action `message`. A mock
    that speaks `relay` is on the hub of the file: each message is a request for the action named by its type.
    A mock that speaks `model` is a language model: rules match what is said to it, and results of tools.
    """

    speaks: Literal["lmos", "omnia", "relay", "model"] = "lmos"
    use: Name | None = None
    state: Data = {}
    rules: Annotated[tuple[Rule, ...], Meta(min_length=1)]
    unmatched: Literal["fails", "allowed"] = "fails"


class Replay(Supervised, frozen=True, kw_only=True, tag_field="from", tag="replay"):
    """An agent that answers as `agent` did in a recorded message log. Requests that are not in the log fail.

    With `use` it takes the place of that class, and `run --update-recordings` can record it anew from the
    real agent. A replay that speaks `omnia` is a chat agent, one that speaks `relay` is on the hub of the
    file, and one that speaks `model` is a language model.
    """

    speaks: Literal["lmos", "omnia", "relay", "model"] = "lmos"
    log: Name
    agent: Name | None = None
    use: Name | None = None
    args: Data = {}
    state: Data = {}
    unused: Literal["fails", "allowed"] = "fails"


class CredentialText(str):
    """Credentials as in the options of commands; never the secret itself."""

    __slots__ = ()
    kind: ClassVar[Literal["bearer", "basic"]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text. Raises ValueError, whose message does not repeat the text."""
        from lmos_actors.security import credential_of  # most files reach no agents elsewhere

        try:
            credential_of(cls.kind, text)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return cls(text)


class BearerText(CredentialText):
    """A reference to a token or a key, as in `call --bearer`."""

    __slots__ = ()
    kind = "bearer"
    described: ClassVar = "a reference to a secret, env:NAME or file:PATH"
    pattern: ClassVar = r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$"


class BasicText(CredentialText):
    """A user and a reference to the password, as in `call --basic`."""

    __slots__ = ()
    kind = "basic"
    described: ClassVar = "a user and a reference to the password, USER:env:NAME or USER:file:PATH"
    pattern: ClassVar = r"^[^:]+:(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$"


class Bridge(Supervised, frozen=True, kw_only=True, tag_field="from", tag="bridge"):
    """An agent that connects another protocol to an agent of the file (`to`) or a remote server (`url`).

    With `speaks: omnia` it is a chat agent that passes messages on to that agent or server. With `speaks:
    relay` it is on the hub of the file, or on the relay at `url`. There, others can call the actions of `to`
    that `access` opens; without `to`, other agents reach the relay through it, and `follows` has names there.
    With `url`, credentials and files are as for a remote agent.
    """

    speaks: Literal["omnia", "relay"]
    to: Name | None = None
    url: Name | None = None
    access: Literal["answers", "anyone"] | UnsetType = UNSET
    follows: tuple[Name, ...] = ()
    bearer: BearerText | None = None
    basic: BasicText | None = None
    ca: Name | None = None
    cert: Name | None = None
    key: Name | None = None
    insecure: bool = False
    apikey: ClassVar[None] = None

    @property
    def is_beside_agent(self) -> bool:
        """Whether the bridge is on the node of its target agent, which it calls without a message."""
        return self.speaks == "relay" and self.to is not None


class Remote(Closed, frozen=True, kw_only=True, tag_field="from", tag="remote"):
    """A remote agent to which steps send requests; at least one of `url` and `description` is given.

    `url` is the URL of its description (http, https) or of the agent (ws, wss); `description` is a Thing
    Description beside the file. `thing` selects one of several agents. `use` is the class for its contract.

    `bearer`, `basic` or `apikey` is presented to the server of `url`. `ca` has the authorities to trust;
    `cert` and `key` are shown to a server that asks for a certificate. File names are relative to this file.
    `insecure` allows credentials without TLS.
    """

    url: Name | None = None
    description: Name | None = None
    thing: Name | None = None
    use: Name | None = None
    bearer: BearerText | None = None
    basic: BasicText | None = None
    apikey: BearerText | None = None
    ca: Name | None = None
    cert: Name | None = None
    key: Name | None = None
    insecure: bool = False


class OwnProcess(Closed, frozen=True, kw_only=True, tag_field="from", tag="process"):
    """A remote agent in a process that the run starts and ends.

    The process serves the class `use`, or runs any `command`, whose agent is used as that class. Within
    `ready` seconds it prints the lines of `serve` with the address of `agent`, or the agent is at `url`.
    `thing` selects one of several agents.
    """

    command: Annotated[tuple[Name, ...], Meta(min_length=1)] | UnsetType = UNSET
    use: Name | None = None
    url: Name | None = None
    thing: Name | None = None
    env: dict[str, str] = {}
    ready: Annotated[Duration, Meta(gt=0)] = Duration(30.0)
    description: ClassVar[None] = None
    bearer: ClassVar[None] = None
    basic: ClassVar[None] = None
    apikey: ClassVar[None] = None
    ca: ClassVar[None] = None
    cert: ClassVar[None] = None
    key: ClassVar[None] = None
    insecure: ClassVar[bool] = False


AnyAgent: TypeAlias = AgentEntry | PoolEntry | Mock | Replay | Bridge | Remote | OwnProcess
Elsewhere: TypeAlias = Remote | OwnProcess
"""Entries of agents that are not on a node of the run."""

# --- trees


class Supervising(Closed, frozen=True, kw_only=True):
    """The keys of every supervisor. Children are names of agents, or supervisors."""

    strategy: Strategy = "one_for_one"
    max_restarts: Count = 3
    max_seconds: Duration = Duration(5.0)
    auto_shutdown: AutoShutdown = "never"
    children: tuple[Child, ...]


class Root(Supervising, frozen=True, kw_only=True):
    """The root supervisor."""


class Supervisor(Supervising, frozen=True, kw_only=True):
    """A supervisor below the root."""

    name: Name
    restart: Restart = "permanent"
    shutdown: Shutdown = "infinity"
    significant: bool = False
    backoff: Backoff | UnsetType = UNSET


Child: TypeAlias = str | Supervisor


class Tree(Closed, frozen=True, kw_only=True):
    """The supervision tree: `root` describes it, or `use` names a SupervisorSpec of the project.

    Agents of a tree in `use` are known by their paths. An entry in `agents` whose name is such a path
    replaces the agent; `children` are further children of the root. Without a tree, every agent is a child of
    a default root, in file order.
    """

    root: Root | UnsetType = UNSET
    use: Name | UnsetType = UNSET
    children: tuple[Child, ...] = ()


# --- populations


class StartOver(Closed, frozen=True, kw_only=True):
    """The agents start one after the other, evenly spread over this time."""

    over: Duration


class Population(Closed, frozen=True, kw_only=True):
    """Many agents of one class (`peer/0`, `peer/1`, ...) under a separate supervisor.

    `args` may use `$(population.index)`, the number of the agent, and distributions, drawn for each agent. By
    default, `max_restarts` is the size of the population.
    """

    id: Name
    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    use: Name
    args: Data = {}
    state: Data = {}
    mailbox: Mailbox | UnsetType = UNSET
    service_time: Duration = Duration(0.0)
    start: StartOver | None = None
    restart: Restart = "permanent"
    shutdown: Shutdown = Duration(5.0)
    max_restarts: Count | UnsetType = UNSET
    max_seconds: Duration = Duration(5.0)
    backoff: Backoff | UnsetType = UNSET
    later: ClassVar[Later] = Later("listen")


class Topology(Closed, frozen=True, kw_only=True):
    """The neighbours in a population: each agent receives its neighbours' refs as the argument `field`.

    `TOPOLOGY_KEYS` lists the keys for each kind.
    """

    kind: Literal["complete", "ring", "line", "star", "grid", "small_world", "random", "scale_free", "edges"]
    of: Name
    field: Name = "neighbours"
    degree: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    rewire: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    probability: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    width: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    edges: tuple[tuple[Count, ...], ...] | UnsetType = UNSET


TOPOLOGY_KEYS: dict[str, frozenset[str]] = {
    "complete": frozenset(),
    "ring": frozenset(),
    "line": frozenset(),
    "star": frozenset(),
    "grid": frozenset({"width"}),
    "small_world": frozenset({"degree", "rewire"}),
    "random": frozenset({"probability"}),
    "scale_free": frozenset({"degree"}),
    "edges": frozenset({"edges"}),
}
"""The keys that each kind of topology needs; it takes no others."""
