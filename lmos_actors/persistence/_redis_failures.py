"""The store failures that correspond to errors of the Redis client."""

from __future__ import annotations

from typing import Final

from coredis import exceptions as wrong

from lmos_actors.errors import StoreFailed, StoreForeign, StoreFull, StoreInaccessible

from ._redis_scripts import NOT_OURS

LOOK_AT_USER: Final = "look at the user of its URL, at its password and at its rights"

NO_REDIS: Final = "its answers are not those of a Redis server", "look at what listens there"

LOOK: Final = "look at the server, at its log and at the network"

LOOK_WHY_CLOSED: Final = (
    "look at its log and at its settings: it does so when it ends, with too many clients (maxclients), and "
    "in protected mode to other machines, until it has a password (requirepass)"
)

PROTECTED: Final = "give it a password (requirepass), to which its URL refers by password=env:NAME"

REPLICA: Final = "it is a replica, which takes no writes", "name the server that it follows"


class UnknownScript(Exception):
    """The error for a script that the server has not run yet."""


def failure_of(name: str, error: Exception, seconds: float) -> StoreFailed | UnknownScript:
    """Return the store failure for an error of the client; `seconds` is the time limit for an answer."""
    text = str(error)
    if isinstance(error, wrong.NoScriptError):
        return UnknownScript()
    if isinstance(error, StoreFailed):
        return error
    if isinstance(error, TimeoutError):
        return StoreFailed(name, f"it has not answered for {seconds:g} s", LOOK)
    if isinstance(error, wrong.BusyLoadingError):
        return StoreFailed(name, "it is still loading what it keeps", "wait until it has")
    if isinstance(error, wrong.AuthenticationError | wrong.AuthorizationError):
        return StoreInaccessible(name, text, LOOK_AT_USER)
    if "executing the script can't" in text:  # how a server says of a script that its user has no right
        return StoreInaccessible(name, text, LOOK_AT_USER)
    if isinstance(error, wrong.ReadOnlyError):
        return StoreInaccessible(name, *REPLICA)
    if isinstance(error, wrong.WrongTypeError):
        return StoreForeign(name, *NOT_OURS)
    if text.startswith("DENIED "):
        return StoreInaccessible(name, "in protected mode it answers its own machine only", PROTECTED)
    if text.startswith("OOM "):
        return StoreFull(name, "its memory is full (maxmemory)", "make room, or allow it more")
    if text.startswith("MISCONF "):
        return StoreFull(name, "its disk is full, or fails", "make room on its disk, and look at its log")
    if isinstance(error, wrong.ReplicationError | wrong.PersistenceError):
        return StoreFailed(name, "too few replicas or disks have confirmed a commit in time", LOOK)
    if isinstance(error, wrong.ConnectionError | OSError):
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError | StoreFailed):
            cause = cause.__cause__
        if isinstance(cause, StoreFailed):  # of its password
            return cause
        if cause is None:
            return StoreFailed(name, "it cannot be reached: it has closed the connection", LOOK_WHY_CLOSED)
        return StoreFailed(name, f"it cannot be reached{f': {cause}' if str(cause) else ''}", LOOK)
    return StoreFailed(name, text or type(error).__name__, LOOK)
