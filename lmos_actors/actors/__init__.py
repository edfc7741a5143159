"""Agents, mailboxes and refs: what runs, what waits for it, and what points to it."""

from ._affordances import (
    Action as Action,
    Assignment as Assignment,
    Event as Event,
    EventHandle as EventHandle,
    Property as Property,
    PropertyHandle as PropertyHandle,
    StreamAction as StreamAction,
    Turn as Turn,
)
from ._agent import Agent as Agent, Starter as Starter, current_request as current_request
from ._calls import LocalCall as LocalCall, LocalLink as LocalLink
from ._cell import OutputGate as OutputGate, StateStore as StateStore, Status as Status
from ._declare import action as action, event as event, every as every, prop as prop
from ._dispatcher import dispatch as dispatch
from ._gather import invoke_all as invoke_all
from ._invocation import Progress as Progress, Runners as Runners
from ._mailbox import (
    DEFAULT_MAILBOX as DEFAULT_MAILBOX,
    AgentStatistics as AgentStatistics,
    MailboxOptions as MailboxOptions,
    MailboxStatistics as MailboxStatistics,
    Request as Request,
)
from ._monitor import NORMAL as NORMAL, SHUTDOWN as SHUTDOWN, Down as Down, ExitReason as ExitReason
from ._observers import Feed as Feed, FeedStatistics as FeedStatistics, Gap as Gap, Occurrence as Occurrence
from ._operation import MISSING as MISSING
from ._ref import Call as Call, CallStatus as CallStatus, Link as Link, Ref as Ref
from ._registry import Finder as Finder
from ._runtime import DeadLetter as DeadLetter, Owner as Owner, Resolver as Resolver, Runtime as Runtime
from ._thing import Thing as Thing, acting_as as acting_as
from ._traced import TracedLink as TracedLink
from ._values import Shape as Shape, shape_of as shape_of
from ._watchdog import SlowTurnWarning as SlowTurnWarning, Watchdog as Watchdog
