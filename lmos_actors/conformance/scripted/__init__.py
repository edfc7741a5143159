"""The scripted server: two things that speak LMOS by the letter."""

from ._connection import (
    ABOUT_PROPERTY as ABOUT_PROPERTY,
    IDS as IDS,
    REQUESTS as REQUESTS,
    Hang as Hang,
    Out as Out,
    Raw as Raw,
    Request as Request,
    Say as Say,
    is_deep as is_deep,
    is_object as is_object,
    no_number as no_number,
)
from ._description import described as described, described_b as described_b
from ._http import HttpRequest as HttpRequest, Reply as Reply, ScriptedPages as ScriptedPages
from ._runs import Run as Run, completed as completed
from ._server import ScriptedConnection as ScriptedConnection, ScriptedServer as ScriptedServer
from ._serving import Head as Head, Serving as Serving
from ._thing import (
    ABSENT as ABSENT,
    Done as Done,
    Json as Json,
    Outcome as Outcome,
    Problem as Problem,
    ScriptedThing as ScriptedThing,
    not_allowed as not_allowed,
)
from ._websocket import Wire as Wire, is_close_code as is_close_code
