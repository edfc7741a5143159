"""The commands that talk to running agents, or search for them. Their docstrings are their help texts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import PRINTED, REACHED, File, Switch, Texts, Url, at_least, whole
from ..options._connection import options_in
from ..options._discover import DiscoverOptions
from ..options._remote import ConversationOptions, RemoteOptions

if TYPE_CHECKING:
    from ..remote._approvals import ApprovalDecision, ApprovalList

_ALONE = RemoteOptions()
_TALKING = ConversationOptions()
_ANY = DiscoverOptions()
_NAMES = tuple(options_in(_ALONE))

Count: TypeAlias = Annotated[int | None, Parameter(converter=whole, metavar="N", group=PRINTED)]
Variable: TypeAlias = Annotated[
    Texts,
    Parameter(
        metavar="NAME=VALUE",
        group=REACHED,
        help="Fill in a variable of the URL of the request, over HTTP. May be given several times.",
    ),
]
Property: TypeAlias = Annotated[str, Parameter(name="PROPERTY", help="The name of the property.")]


def call(
    url: Url,
    action: str,
    /,
    *input_: Annotated[str, Parameter(name="INPUT", allow_leading_hyphen=True)],
    stream: Annotated[File, Parameter(allow_leading_hyphen=True)] = None,
    many: Switch = False,
    request_key: Annotated[str | None, Parameter(metavar="KEY")] = None,
    variable: Variable = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Invoke an action of an agent, and print its answer, or its answers as they come.

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather question="Weather in Bonn?" \
interactionMode=text

    lmos-actors call http://127.0.0.1:8080/agents/weather getWeather '{"question": "Weather in Bonn?", \
"interactionMode": "text"}' --within 30s

    lmos-actors call ws://127.0.0.1:8080/agents/weather getWeather @question.json --raw

    cat question.json | lmos-actors call http://127.0.0.1:8080/agents/weather getWeather -

    cat rows.jsonl | lmos-actors call http://127.0.0.1:8080/agents/ledger ingest account=main --stream -

    lmos-actors call http://127.0.0.1:8080/agents/shop order item=tea --request-key order-17

    Progress is shown on standard error. Ctrl-C cancels the action.

    Exit codes: 0 answered, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    action
        The name of the action.
    input_
        JSON as one word; or NAME=VALUE for each parameter; - reads the standard input, @FILE a file.
    stream
        The items of the stream that the action takes: JSON lines of a file, or - for the standard \
input. A stream of bytes takes them as they are.
    many
        Expect many answers even if no description declares them.
    request_key
        A name for this request, for durable agents: they keep the answer, and give it again for the same \
key, over restarts of both sides, instead of carrying the request out once more. Where no answer comes, the \
command asks again.
    """
    from .._inputs import input_of
    from ..remote._requests import ActionCall
    from ..remote._session import run_session
    from ..remote._sources import FileSource

    if request_key is not None:
        _check_key(request_key, "--stream" if stream is not None else "--many" if many else None)
    if stream == "-" and input_ == ("-",):
        raise ConfigError("the standard input is read once: for INPUT, or for the stream", "--stream")
    given = input_of(input_, ("--stream", "--many", "--request-key", "--variable", *_NAMES))
    if stream is None:
        return run_session(url, options, ActionCall(action, given, many, key=request_key), variable)
    with closing(FileSource(stream)) as source:
        return run_session(url, options, ActionCall(action, given, many, source), variable)


def _check_key(key: str, beside: str | None) -> None:
    """Raise ConfigError for an invalid request key, or an option that conflicts with it."""
    from lmos_actors.actors import wrong_key

    if beside is not None:
        raise ConfigError(
            f"streams cannot be repeated from a kept answer: leave out {beside}", "--request-key"
        )
    if (wrong := wrong_key(key)) is not None:
        raise ConfigError(wrong, "--request-key")


def read(
    url: Url,
    /,
    *property_: Annotated[str, Parameter(name="PROPERTY")],
    variable: Variable = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the values of properties of an agent: the named ones, or all.

    lmos-actors read http://127.0.0.1:8080/agents/weather

    lmos-actors read http://127.0.0.1:8080/agents/weather units --raw

    lmos-actors read http://meter.example/td temperature --variable unit=celsius

    Exit codes: 0 read, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    property_
        The names of properties.
    """
    from ..remote._requests import PropertyRead
    from ..remote._session import run_session

    return run_session(url, options, PropertyRead(property_), variable)


def write(
    url: Url,
    property_: Property,
    value: Annotated[str, Parameter(name="VALUE", allow_leading_hyphen=True)],
    /,
    *,
    variable: Variable = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Set a property of an agent.

    lmos-actors write http://127.0.0.1:8080/agents/weather units fahrenheit

    lmos-actors write ws://127.0.0.1:8080/agents/weather units '"fahrenheit"'

    Exit codes: 0 written, 1 answered with an error, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    value
        JSON; if the description requires a text, that text; - reads the standard input, @FILE a file.
    """
    from .._inputs import written_in
    from ..remote._requests import PropertyWrite
    from ..remote._session import run_session

    given = written_in(value, "VALUE", ("--variable", *_NAMES))
    return run_session(url, options, PropertyWrite(property_, given), variable)


def observe(
    url: Url,
    property_: Property,
    /,
    *,
    count: Count = None,
    variable: Variable = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the value of a property of an agent, and each change of it, until Ctrl-C.

    lmos-actors observe http://127.0.0.1:8080/agents/weather units

    lmos-actors observe http://127.0.0.1:8080/agents/weather units --count 1 --within 10s

    It continues when the agent is restarted or the connection is lost, and says so on standard error.

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    count
        Stop after this many values.
    """
    from ..remote._session import run_session
    from ..remote._subscriptions import property_observation

    return run_session(url, options, property_observation(property_, at_least(count, 1, "--count")), variable)


def listen(
    url: Url,
    event: str | None = None,
    /,
    *,
    count: Count = None,
    variable: Variable = None,
    options: RemoteOptions = _ALONE,
) -> int:
    """Print the events of an agent, all or those of one name, until Ctrl-C.

    lmos-actors listen http://127.0.0.1:8080/agents/weather

    lmos-actors listen http://127.0.0.1:8080/agents/weather asked --count 3

    It continues when the agent is restarted or the connection is lost, and says so on standard error.

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    event
        The name of the event.
    count
        Stop after this many events.
    """
    from ..remote._session import run_session
    from ..remote._subscriptions import event_subscription

    return run_session(url, options, event_subscription(event, at_least(count, 1, "--count")), variable)


def monitor(url: Url, /, *, count: Count = None, options: RemoteOptions = _ALONE) -> int:
    """Print each end of an incarnation of an agent, with its reason, until Ctrl-C.

    lmos-actors monitor http://127.0.0.1:8080/agents/weather

    Exit codes: 0 --count was reached, 1 the agent is gone, 2 the usage is wrong, 3 not reached, \
124 time limit, 130 interrupted.

    Parameters
    ----------
    count
        Stop after this many ends.
    """
    from ..remote._session import run_session
    from ..remote._subscriptions import lifecycle_monitor

    return run_session(url, options, lifecycle_monitor(at_least(count, 1, "--count")))


def chat(url: Annotated[str, Parameter(name="URL")], /, *, options: ConversationOptions = _TALKING) -> int:
    """Talk to a chat agent, over Omnia's chat protocol.

    lmos-actors chat http://127.0.0.1:8080/agents/support

    lmos-actors chat "ws://127.0.0.1:8080/ws?agent=support" --bearer env:TOKEN

    lmos-actors chat http://127.0.0.1:8080/agents/support --message "Where is order 17?"

    lmos-actors chat http://127.0.0.1:8080/agents/support --session 0c5e3a7e-3ad0-4b9c-8b8e-0a3f3c2e9f10

    lmos-actors chat http://127.0.0.1:8080/agents/support --tool tools.py:where_am_i

    lmos-actors chat http://127.0.0.1:8080/agents/support --attach bill.pdf --message "Is this right?"

    printf 'Hello\\nBye\\n' | lmos-actors chat http://127.0.0.1:8080/agents/support

    Each line that is typed or piped in is a message. The answer is printed as it comes; tools that are \
used, and the id of the session, are printed on standard error. Ctrl-C cancels the answer, and ends the chat \
if none is awaited; Ctrl-D ends it. /history prints the session as the agent keeps it, once no \
turn of it is in progress, and /session the id; /attach FILE sends a file with the next message.

    Exit codes: 0 answered, 1 answered with an error, 2 the usage is wrong, 3 not reached, or the connection \
was lost, 124 time limit or a silent agent, 130 interrupted.

    Parameters
    ----------
    url
        The URL of a chat agent, such as http://127.0.0.1:8080/agents/support, or that of any Omnia facade.
    """
    from ..remote._chat import run_chat

    return run_chat(url, options)


def approvals(
    url: Url,
    verb: Annotated[Literal["list", "approve", "refuse"], Parameter(name="VERB")] = "list",
    id: Annotated[str | None, Parameter(name="ID")] = None,
    /,
    *,
    note: Annotated[str | None, Parameter(metavar="TEXT")] = None,
    answer: Annotated[str | None, Parameter(metavar="JSON")] = None,
    all_: Annotated[Switch, Parameter(name="--all")] = False,
    options: RemoteOptions = _ALONE,
) -> int:
    """List what agents ask people, and approve or refuse it.

    lmos-actors approvals http://127.0.0.1:8080

    lmos-actors approvals http://127.0.0.1:8080 approve 7f0c2d9e-1c1b-4a77-9f5e-6f1d3c5a8b20 \
--note "as agreed"

    lmos-actors approvals desk.yaml

    lmos-actors approvals https://agents.example refuse 7f0c2d9e-1c1b-4a77-9f5e-6f1d3c5a8b20 \
--bearer env:ALICE

    For a deployment file that `up` runs, the questions of all its processes are listed.

    The right to decide is approve, in the access lists of the node; without --security, a node started \
with --allow-operations lets its own machine decide.

    Exit codes: 0 done, 1 answered with an error, such as for one decided already, 2 the usage is wrong, \
3 not reached, 124 time limit, 130 interrupted.

    Parameters
    ----------
    verb
        list, approve or refuse.
    id
        The id of an approval, as in the list.
    note
        A remark that is kept with the decision.
    answer
        The answer if more than a yes is needed, as the list says: an object, such as '{"name": "Ann"}'.
    all_
        Also list what has been decided.
    """
    from ..remote._approvals import ApprovalDecision, ApprovalList, answer_in, place_of, run_in_deployment
    from ..remote._session import run_session

    if answer is not None and verb != "approve":
        raise ConfigError("goes with approve", "--answer")
    what: ApprovalList | ApprovalDecision
    if verb == "list":
        if id is not None or note is not None:
            raise ConfigError("goes with approve or refuse", "ID" if id is not None else "--note")
        what = ApprovalList(all_)
    else:
        if id is None:
            raise ConfigError(f"{verb} what? Give the id of an approval, as the list has it", "ID")
        if all_:
            raise ConfigError("goes with list", "--all")
        what = ApprovalDecision(verb, id, note or "", answer_in(answer))
    if "://" not in url and url.endswith((".yaml", ".yml", ".toml")):
        from ..deploy._requests import addresses_of, controls_for

        controls = controls_for(url, None)
        if not (controls.is_running() or Path(url).exists()):
            raise ConfigError(f"there is no file {url!r}", "URL")
        found = addresses_of(controls)
        return found if isinstance(found, int) else run_in_deployment(found, options, what)
    return run_session(place_of(url), options, what)


def discover(
    source: Annotated[str | None, Parameter(name="URL", negative=())] = None,
    /,
    *,
    options: DiscoverOptions = _ANY,
) -> int:
    """List the agents at an address, in a directory, or on this network.

    lmos-actors discover http://127.0.0.1:8080

    lmos-actors discover directory.example.org --capability weather

    lmos-actors discover https://weather.example --credential https://weather.example=bearer:env:TOKEN

    lmos-actors discover

    A server is asked for its well-known URL, a directory for its entries. Without an address, three seconds \
are spent listening for announcements on this network by DNS-SD (needs the extra mdns).

    Exit codes: 0 there are some; 1 there is none; 2 the usage is wrong; 3 nothing could be reached.

    Parameters
    ----------
    source
        The URL of a description, of a server or of a directory; or a host, with its port.
    """
    from .._discover import discover

    return discover(source or "mdns", options)
