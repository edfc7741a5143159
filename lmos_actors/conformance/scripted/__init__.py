"""The scripted server: two things that follow the LMOS specification exactly."""

from lmos_actors._late import late

with late(__name__):
    from ._connection import (
        MOST_WAITING as MOST_WAITING,
        Listening as Listening,
        ScriptedConnection as ScriptedConnection,
    )
    from ._description import (
        ID as ID,
        ID_B as ID_B,
        VALUES as VALUES,
        described as described,
        described_b as described_b,
    )
    from ._http import (
        HttpRequest as HttpRequest,
        Reply as Reply,
        ScriptedPages as ScriptedPages,
        given as given,
    )
    from ._input_streams import Input as Input
    from ._messages import (
        ABOUT_PROPERTY as ABOUT_PROPERTY,
        IDS as IDS,
        REQUESTS as REQUESTS,
        Disconnect as Disconnect,
        Out as Out,
        Request as Request,
        SendClose as SendClose,
        SendFrame as SendFrame,
        SendText as SendText,
        dumped as dumped,
        is_deep as is_deep,
        is_object as is_object,
    )
    from ._runs import (
        Final_ as Final_,
        KeyedRequest as KeyedRequest,
        Run as Run,
        completed as completed,
        content_of as content_of,
    )
    from ._scheduler import Scheduler as Scheduler, Timer as Timer
    from ._server import ScriptedServer as ScriptedServer
    from ._serving import (
        NetworkServer as NetworkServer,
        RequestHead as RequestHead,
        WebServer as WebServer,
        refusal as refusal,
    )
    from ._thing import (
        ABSENT as ABSENT,
        Done as Done,
        Failed as Failed,
        Json as Json,
        Outcome as Outcome,
        Problem as Problem,
        ScriptedThing as ScriptedThing,
        Taking as Taking,
        invalid as invalid,
        not_allowed as not_allowed,
        not_found as not_found,
        too_late as too_late,
    )
    from ._websocket import (
        MessageConnection as MessageConnection,
        WebSocketCodec as WebSocketCodec,
        is_close_code as is_close_code,
    )
