"""The commands as their users see them: parameters and help. To import this package registers them all."""

from .._app import app as app
from ._conform import conform as conform
from ._deploy import (
    down as down,
    drain as drain,
    logs as logs,
    restart as restart,
    scale as scale,
    status as status,
    up as up,
)
from ._describe import describe as describe
from ._explore import explore as explore
from ._fault_proxy import fault_proxy as fault_proxy
from ._live import deadletters as deadletters, inspect as inspect, top as top, tree as tree
from ._logs import diff as diff, replay as replay
from ._machine import completion as completion, doctor as doctor
from ._project import format_ as format_, init as init, schema as schema
from ._record import record as record
from ._relay import relay as relay
from ._remote import (
    approvals as approvals,
    call as call,
    discover as discover,
    listen as listen,
    monitor as monitor,
    observe as observe,
    read as read,
    write as write,
)
from ._run import run as run, sim as sim, validate as validate
from ._serve import directory as directory, mcp as mcp, serve as serve
from ._state import state as state
