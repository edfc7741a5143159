"""The command `relay` and its subcommands. Their docstrings are their help texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from lmos_actors.errors import ConfigError

from .._app import PRINTED, File, Switch, Texts, Time, at_least, whole
from ..options._connection import secret_lines
from ..options._relay import AgentOptions
from ..options._serving import ListenOptions, ServeOptions

if TYPE_CHECKING:
    from lmos_actors.facades import RelayOptions

relay = App(
    name="relay",
    help="""Be a hub of an AgentRelay, or an agent on one: ours, or anybody's.

lmos-actors relay serve --store sqlite:hub.db --extension receipts --extension history

lmos-actors relay register http://127.0.0.1:8080 weather-bot

ARC_TOKEN=tok_... lmos-actors relay send ws://127.0.0.1:8080/arc "Good morning"

ARC_TOKEN=tok_... lmos-actors relay listen ws://127.0.0.1:8080/arc

Help on a command: lmos-actors relay send --help

Exit codes: 0 done; 1 the relay has refused it; 2 the usage is wrong; 3 not reached, not confirmed, or the \
connection was lost; 124 time limit; 130 interrupted.""",
    help_format="plaintext",
)

HUB = Group("Relay", sort_key=0.5)

_USUAL = ListenOptions()

RATE = re.compile(r"(\d{1,9})/(\d+(?:\.\d+)?(?:ms|s|m|h|d)?|[smhd])")

Place: TypeAlias = Annotated[
    str,
    Parameter(name="URL", help="The URL of a relay, such as ws://127.0.0.1:8080/arc; http://HOST will do."),
]


_ALONE = AgentOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HubFlags:
    """The options of a hub."""

    store: Annotated[str | None, Parameter(metavar="STORE", group=HUB)] = None
    """Where identities, and what extensions keep, outlive the process: sqlite:PATH. Without it they are \
kept in memory."""
    extension: Annotated[Texts, Parameter(metavar="NAME", group=HUB)] = None
    """An extension: receipts, presence, history, semantic, voting, questions. May be given several times."""
    weights: Annotated[File, Parameter(group=HUB)] = None
    """A file with the weights of votes, if not 1: one agent a line, ID WEIGHT. With --extension voting."""
    registration: Annotated[Literal["open", "invite", "closed"] | None, Parameter(group=HUB)] = None
    """Whether agents may register themselves. Unless given: by invitation if there are some, else open \
where it listens at this machine alone, else closed."""
    invitations: Annotated[str | None, Parameter(metavar="REF", group=HUB)] = None
    """Where invitations are, one a line, each valid once: file:PATH."""
    identity_ttl: Annotated[Time | None, Parameter(show_default=False, group=HUB)] = None
    """For how long an agent is known after it has left, as in 30d."""
    rate: Annotated[Texts, Parameter(metavar="N/DURATION", group=HUB)] = None
    """How much an agent may send, as in 1000/1m, or off. May be given several times."""
    registration_rate: Annotated[str | None, Parameter(metavar="N/DURATION", group=HUB)] = None
    """How many agents one address may register, as in 600/1m, or off."""
    followed_only: Annotated[Switch, Parameter(group=HUB)] = False
    """An agent that follows others hears only their broadcasts."""

    def options(self) -> RelayOptions:
        """Return the options of the hub. Raises ConfigError."""
        from lmos_actors.facades import RelayOptions

        given: dict[str, Any] = {
            "extensions": self._extensions(),
            "registration": self.registration,
            "invitations": self.invitations,
            "broadcasts": "followed" if self.followed_only else "all",
        }
        if self.identity_ttl is not None:
            given["identity_seconds"] = self.identity_ttl
        if self.rate:
            given["rates"] = (
                () if self.rate == ["off"] else tuple(rate_of(each, "--rate") for each in self.rate)
            )
        if self.registration_rate == "off":
            given["registrations_per_minute"] = None
        elif self.registration_rate is not None:
            number, seconds = rate_of(self.registration_rate, "--registration-rate")
            given["registrations_per_minute"] = max(1, round(number * 60 / seconds))
        try:
            return RelayOptions(**given)
        except ConfigError as error:
            option = re.fullmatch(r"RelayOptions\.(\w+)", error.path)
            path = error.path if option is None else _OPTIONS.get(option[1], error.path)
            raise ConfigError(error.message, path) from None

    def _extensions(self) -> tuple[Any, ...]:
        names = self.extension or ()
        if self.weights is None:
            return tuple(names)
        if "voting" not in names:
            raise ConfigError("goes with --extension voting", "--weights")
        from lmos_actors.facades import Voting

        voting = partial(Voting, _weights_in(self.weights))
        return tuple(voting if name == "voting" else name for name in names)


_DEFAULTS = HubFlags()


def _weights_in(path: str) -> dict[str, int]:
    """Return the voting weights in a file, by agent. Raises ConfigError."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise ConfigError(f"{path}: {why}", "--weights") from None
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit() or len(words[1]) > 9:
            raise ConfigError(f'"{line.strip()}" is not ID WEIGHT, such as chair 3', f"{path}:{number}")
        if words[0] in found:
            raise ConfigError(f"{words[0]} has two weights", f"{path}:{number}")
        found[words[0]] = int(words[1])
    return found


@relay.command(name="serve")
def relay_serve(*, hub: HubFlags = _DEFAULTS, listening: ListenOptions = _USUAL) -> int:
    """Be the hub of an AgentRelay.

    lmos-actors relay serve --store sqlite:hub.db

    lmos-actors relay serve --store sqlite:hub.db --extension receipts --extension voting --extension history

    lmos-actors relay serve --listen wss://0.0.0.0:9000 --cert server.pem --security rules.yaml \
--invitations file:invitations.txt --store sqlite:hub.db

    lmos-actors relay serve --rate off --registration-rate off

    Then, elsewhere: lmos-actors relay register http://127.0.0.1:8080, or: curl -X POST \
http://127.0.0.1:8080/register

    Ctrl-C or SIGTERM stops in order: agents are asked to come back. A second one ends it at once.

    Exit codes: 0 stopped in order; 2 the usage is wrong; 3 an address is taken, or the store \
cannot be used; 130 ended at once.
    """
    from ..serve._serve import serve_targets

    return serve_targets((), ServeOptions(listening=listening, store=hub.store), relay=hub.options())


_OPTIONS = {
    "extensions": "--extension",
    "identity_seconds": "--identity-ttl",
    "invitations": "--invitations",
    "rates": "--rate",
    "registrations_per_minute": "--registration-rate",
}


def rate_of(text: str, option: str) -> tuple[int, float]:
    """Parse a rate into a number of messages and a period in seconds. Raises ConfigError."""
    from lmos_actors.files import Duration

    found = RATE.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigError(f'"{text}" is not N/DURATION, such as 1000/1m, nor off', option)
    span = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    seconds = float(Duration.parse(span))
    if not seconds > 0:
        raise ConfigError(f'"{text}" is not N/DURATION, such as 1000/1m, nor off', option)
    return int(found[1]), seconds


@relay.command(name="register")
def relay_register(
    url: Place,
    id: Annotated[str | None, Parameter(name="ID")] = None,
    /,
    *,
    register_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    invitation: Annotated[str | None, Parameter(metavar="REF")] = None,
    options: AgentOptions = _ALONE,
) -> int:
    """Register an agent, and print its id and its token.

    lmos-actors relay register http://127.0.0.1:8080

    lmos-actors relay register ws://127.0.0.1:8080/arc weather-bot

    lmos-actors relay register ws://127.0.0.1:8080/arc weather-bot --register-url http://127.0.0.1:8081/register

    lmos-actors relay register wss://hub.example/arc weather-bot --invitation env:INVITATION

    Parameters
    ----------
    id
        The id that the agent wants: 3 to 64 of a-z, 0-9 and hyphens. Without it the relay makes one up.
    register_url
        Where agents are registered, if not at /register beside the relay.
    invitation
        Where the invitation is: env:NAME or file:PATH.
    """
    from ..remote._relay import run_register

    word = None if invitation is None else secret_lines(invitation, "--invitation")[0]
    return run_register(url, options, id, register_url, word)


@relay.command(name="ping")
def relay_ping(url: Place, /, *, options: AgentOptions = _ALONE) -> int:
    """Print what a relay is and can do, and how long it takes to answer.

    lmos-actors relay ping ws://127.0.0.1:8080/arc --bearer env:ARC_TOKEN
    """
    from ..remote._relay import run_ping

    return run_ping(url, options)


@relay.command(name="send", usage="Usage: lmos-actors relay send [OPTIONS] URL TEXT")
def relay_send(
    url: Place,
    text: Annotated[str, Parameter(name="TEXT", allow_leading_hyphen=True)],
    /,
    *,
    to: Annotated[Texts, Parameter(metavar="ID")] = None,
    type_: Annotated[str | None, Parameter(name="--type", metavar="TYPE")] = None,
    ref: Annotated[str | None, Parameter(metavar="ID")] = None,
    json_payload: Switch = False,
    options: AgentOptions = _ALONE,
) -> int:
    """Send a message to everybody, or to some.

    lmos-actors relay send ws://127.0.0.1:8080/arc "Good morning"

    lmos-actors relay send ws://127.0.0.1:8080/arc "Are you there?" --to weather-bot --type question

    lmos-actors relay send ws://127.0.0.1:8080/arc '{"action": "forecast", "input": {"city": "Bonn"}}' \
--json-payload --to weather-bot --type question

    It waits until the relay has read the message or refused it: exit code 1. A relay that does not answer \
leaves it not confirmed: exit code 3.

    Parameters
    ----------
    text
        The text of the message.
    to
        The id of an agent; may be given several times. Without it everybody.
    type_
        The type of the message, such as thought, question, answer or data.
    ref
        The id of the message that it answers.
    json_payload
        The text is JSON, and is sent as JSON.
    """
    from ..remote._relay import Outgoing, payload_of, run_send

    message = Outgoing(payload=payload_of(text, is_json=json_payload), to=to or (), type=type_, ref=ref)
    return run_send(url, options, message)


@relay.command(name="listen")
def relay_listen(
    url: Place,
    /,
    *,
    follow: Annotated[Texts, Parameter(metavar="ID")] = None,
    count: Annotated[int | None, Parameter(converter=whole, metavar="N", group=PRINTED)] = None,
    options: AgentOptions = _ALONE,
) -> int:
    """Print the messages that an agent hears, until Ctrl-C. A connection that breaks is made again.

    lmos-actors relay listen ws://127.0.0.1:8080/arc

    lmos-actors relay listen ws://127.0.0.1:8080/arc --follow weather-bot | jq .payload

    Parameters
    ----------
    follow
        The id of an agent to follow; may be given several times.
    count
        End after so many messages.
    """
    from ..remote._relay import run_listen

    return run_listen(url, options, follow or (), at_least(count, 1, "--count"))


@relay.command(name="join")
def relay_join(
    url: Place,
    /,
    *,
    follow: Annotated[Texts, Parameter(metavar="ID")] = None,
    options: AgentOptions = _ALONE,
) -> int:
    """Be on a relay at a terminal: read what others say, and speak with them.

    lmos-actors relay join ws://127.0.0.1:8080/arc

    A line is said to everybody; @ID before it sends it to an agent, ? asks, #3 answers message 3. /who \
lists who is there, /help explains, Ctrl-D ends.

    Parameters
    ----------
    follow
        The id of an agent to follow; may be given several times.
    """
    from ..remote._relay_join import run_join

    return run_join(url, options, follow or ())


@relay.command(name="revoke")
def relay_revoke(
    url: Place,
    id: Annotated[str | None, Parameter(name="ID")] = None,
    /,
    *,
    options: AgentOptions = _ALONE,
) -> int:
    """Take the token of an agent away, and close its connection: one's own, or any for a principal who may.

    lmos-actors relay revoke ws://127.0.0.1:8080/arc

    lmos-actors relay revoke ws://127.0.0.1:8080/arc weather-bot --bearer env:CHIEF

    Parameters
    ----------
    id
        The agent. Without it the agent whose token is presented.
    """
    from ..remote._relay import run_revoke

    return run_revoke(url, options, id)
