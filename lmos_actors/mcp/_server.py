"""MCP servers as agents: each server in use is an agent here, like a language model.

So servers have all that agents have. Many agents share one server. It runs once, in one process, and other
processes reach it by a ref. A caller that leaves cancels its call at the server. A mock, a recording or a
fault takes the place of a server in a scenario. A server is supervised, traced and counted, and an access
list decides who may call it.

A server that is restarted, or drops the session, is connected to again (`_held.py`). If it stays away, or
breaks a rule, the agent crashes, and its supervisor restarts it. Calls in progress then end like those of any
agent that died.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Generator  # noqa: TC003 -- types of actions are read
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from lmos_actors._core import WAY_OUT, printable, schema_complaint, time_jumps
from lmos_actors.actors import (
    Agent,
    Progress,
    Property,
    action,
    current_run,
    of_system,
    paths_of_request,
    prop,
)
from lmos_actors.approvals import QUESTION_CHANGED
from lmos_actors.errors import ActionFailed, ConfigError, ForbiddenCall, hint_at
from lmos_actors.security import Reference, SecretSource, in_the_clear, is_private, place_of

from ._connection import Connection
from ._consent import Consent, ToolChanged, question_about
from ._failures import (
    ARGUMENTS_INVALID,
    NO_TOOL,
    NOT_APPROVED,
    RESULT_INVALID,
    McpServerLost,
    SessionLost,
    mcp_failure,
)
from ._held import HeldSession, Opened
from ._oauth import McpOAuth
from ._questions import Questions
from ._values import McpContent, McpInfo, McpMessage, McpProgress, McpPrompt, McpResource, McpResult, McpTool

if TYPE_CHECKING:
    from lmos_actors.approvals import Approval

    from ._questions import Outcome
    from ._session import Session
    from ._sign_in import SignIn
    from ._tokens import Tokens

CONCURRENCY: Final = 64
"""Maximum calls of one server at once."""

MESSAGE_BYTES: Final = 8 << 20
"""The lowest limit on the bytes of one message, even if results may have fewer: lists are longer."""

SHOWN: Final = 100
"""Maximum characters shown of a command."""

MOST_SHOWN: Final = 10
"""Maximum calls in progress that are shown with a question."""

QUESTION: Final = 300
"""Maximum characters of a declined question in the log."""

MOST_LEFT_OUT: Final = 100
"""Maximum entries of `left_out`."""

SIGN_IN_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "last_address": {
            "type": "string",
            "maxLength": 8_000,
            "description": "The address of the last page, if the browser is not on the machine of the agent.",
        }
    },
    "additionalProperties": False,
}
"""The form of the question that asks a person to sign in."""

NO_EXTRA: Final = "MCP servers need the extra mcp: pip install 'lmos-actors[mcp]'"

_REFERENCES: Final = ("env:", "file:")


@of_system
class McpServer(Agent):
    """An MCP server in use: a program that is run (`command`), or a server at a `url` (streamable HTTP).

    `command` is a text, which is split as a shell would, or a list of words; no shell is run. The program
    runs in `cwd` and gets PATH, HOME and a few more variables, and those in `env`. Values of `env` that begin
    with `env:` or `file:` are references to secrets, and so is `bearer`, the token for a URL. References are
    read when the agent starts. With `oauth`, tokens for a URL come from the authorization server that the MCP
    server names. If a person has to sign in for that, the agent starts without waiting, and offers nothing
    until then.

    A session has `start_seconds` to begin, a request `call_seconds` to be answered. A result may have
    `result_bytes`, and the server `most_tools` tools, resources and prompts each.

    `consent` has people approve the server's tools (`self.approve`): each tool once, as it is described
    (`"tools"`), or each call (`"calls"`). If the tool's description or schema has changed since, people are
    asked again.

    The server's questions to the user (`elicitation`) are declined, or put to people as approvals
    (`"approve"`) for `elicitation_seconds` at most, while the time limit of the call is paused. Questions
    that would send the user to a URL, ask for a secret, or come outside a call are always declined, and
    counted in `declined`.

    A lost session is begun again, and a request that the server had not begun is sent again; any other lost
    request fails with MCP_NO_ANSWER. The agent ends with McpServerLost when its server floods, is not back in
    `start_seconds`, or is lost four times in a minute. Raises ConfigError, also without the extra `mcp`. The
    start of the agent raises ForbiddenCall on virtual time.
    """

    command: str | list[str] = ""
    url: str = ""
    env: dict[str, str] = attrs.field(factory=dict[str, str])
    cwd: str | None = None
    bearer: str | None = None
    oauth: McpOAuth | None = None
    start_seconds: float = 30.0
    call_seconds: float = 120.0
    result_bytes: int = 1 << 20
    most_tools: int = 256
    consent: Consent = "none"
    elicitation: Literal["decline", "approve"] = "decline"
    elicitation_seconds: float = 600.0

    tools: Property[tuple[McpTool, ...]] = prop(
        default=(),
        read_only=True,
        doc="What the server offers now. It is read again when the server says so.",
    )
    resources: Property[tuple[McpResource, ...]] = prop(default=(), read_only=True, doc="Likewise.")
    prompts: Property[tuple[McpPrompt, ...]] = prop(default=(), read_only=True, doc="Likewise.")
    info: Property[McpInfo] = prop(default=McpInfo(), read_only=True, doc="What the server says of itself.")
    left_out: Property[tuple[str, ...]] = prop(
        default=(), read_only=True, doc="The tools that are not offered, each with the reason."
    )
    declined: Property[int] = prop(
        default=0, read_only=True, doc="Questions of the server to the user that nobody was asked."
    )

    def __attrs_post_init__(self) -> None:
        name = type(self).__name__
        if bool(self.command) == bool(self.url):
            raise ConfigError("give the command of a program, or the url of a server", name)
        self._words = _words_of(self.command, f"{name}.command")
        if self.url:
            _check_url(self.url, self.bearer, self.oauth, name)
        for field in () if self.url else ("bearer", "oauth"):
            if getattr(self, field) is not None:
                text = "is for servers at a url; a program gets its secrets by env"
                raise ConfigError(text, f"{name}.{field}")
        if self.url and (self.env or self.cwd):
            raise ConfigError("is for programs; a server at a url has its own", f"{name}.env")
        _check_env(self.env, f"{name}.env")
        if self.consent not in ("none", "tools", "calls"):
            raise ConfigError(f'must be "none", "tools" or "calls", not {self.consent!r}', f"{name}.consent")
        if self.elicitation not in ("decline", "approve"):
            raise ConfigError(
                f'must be "decline" or "approve", not {self.elicitation!r}', f"{name}.elicitation"
            )
        for field in ("start_seconds", "call_seconds", "elicitation_seconds"):
            value: Any = getattr(self, field)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ConfigError(f"must be a number of seconds above 0, not {value!r}", f"{name}.{field}")
        for field in ("result_bytes", "most_tools"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise ConfigError(f"must be a whole number of at least 1, not {value!r}", f"{name}.{field}")

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold the session, and the process if there is one. The SDK is imported here, in a thread."""
        self._refuse_virtual_time()
        self._calls: list[tuple[Any, str | None, str]] = []
        self._tokens: Tokens | None = None
        self._held = HeldSession(
            partial(self.to_thread, self._prepared),
            self._serve,
            lambda why: self.log.warning("an MCP server is connected to again", why=why),
            self.start_seconds,
            self.random.random,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._held.run)
            if await self._held.begun():
                self.nursery.start_soon(self._held.watch)
                yield
            if not self._held.stop():
                nursery.cancel_scope.cancel()
        self._held.check()

    # ---- actions

    @action(concurrency=CONCURRENCY)
    async def call(
        self, progress: Progress[McpProgress], name: str, arguments: dict[str, Any] | None = None
    ) -> McpResult:
        """Call a tool. A caller that leaves cancels the call at the server.

        Fails with MCP_TOOL_FAILED in the server's words, MCP_NO_TOOL, MCP_ARGUMENTS_INVALID,
        MCP_RESULT_INVALID, MCP_RESULT_TOO_LARGE, MCP_REQUEST_REFUSED, MCP_NOT_APPROVED or MCP_NO_ANSWER.
        """
        given = arguments or {}
        for _ in range(5):  # so often the tool may change while a person is asked about its call
            tool = self._tool(name, given)
            try:
                await self._approved(tool, given)
                with self._in_progress(f"the tool {name}"):
                    result = await self._held.ask(
                        partial(self._send, tool, given, progress.report),
                        again=tool.read_only or tool.idempotent,
                    )
                break
            except ToolChanged:
                continue
        else:
            raise mcp_failure(NOT_APPROVED, f"the tool {name!r} changes on and on while people are asked")
        wrong = schema_complaint(tool.output_schema, result.structured)
        if wrong is not None:
            text = f"{name!r} was carried out, and its result is not what its schema says: {wrong}"
            raise mcp_failure(RESULT_INVALID, text)
        return result

    def _tool(self, name: str, given: dict[str, Any]) -> McpTool:
        """Return a tool as described now. Raises ActionFailed for unknown names and wrong arguments."""
        tool = next((each for each in self.tools if each.name == name), None)
        if tool is None:
            hint = hint_at(name, [each.name for each in self.tools])
            raise mcp_failure(NO_TOOL, f"there is no tool {name!r}{hint}")
        wrong = schema_complaint(tool.input_schema, given)
        if wrong is not None:
            raise mcp_failure(ARGUMENTS_INVALID, f"the arguments of {name!r} are not right: {wrong}")
        return tool

    async def _approved(self, tool: McpTool, given: dict[str, Any]) -> None:
        """Have people approve a call, if `consent` asks for it. Raises ActionFailed and ToolChanged."""
        if self.consent == "none":
            return
        asked = question_about(tool, given, self.consent)
        try:
            approved = await self.approve(
                asked.text, asked.data, key=asked.key, reuse=asked.stands, reworded="new"
            )
        except ActionFailed as error:
            if error.code == QUESTION_CHANGED:  # another call has found that the tool has changed
                raise ToolChanged from None
            raise
        if not approved:
            raise mcp_failure(NOT_APPROVED, f"nobody has approved it to {asked.text}; nothing was sent")

    async def _send(
        self, tool: McpTool, given: dict[str, Any], report: Callable[[McpProgress], None], session: Session
    ) -> McpResult:
        """Send a call. Raises ToolChanged if the tool differs from what people have approved."""
        if self.consent != "none":
            try:
                await self._read_tools(session)
            except SessionLost as lost:
                raise SessionLost(str(lost), begun=False) from None
            if tool not in self.tools:
                raise ToolChanged
        return await session.call(tool.name, given, report)

    @action(safe=True, concurrency=CONCURRENCY)
    async def read_resource(self, uri: str) -> list[McpContent]:
        """Read a resource. Fails as `call` does."""
        with self._in_progress(f"the resource {uri}"):
            return await self._held.ask(lambda session: session.read_resource(uri), again=True)

    @action(safe=True, concurrency=CONCURRENCY)
    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[McpMessage]:
        """Fill in a prompt. Fails as `call` does."""
        with self._in_progress(f"the prompt {name}"):
            given = arguments or {}
            return await self._held.ask(lambda session: session.get_prompt(name, given), again=True)

    # ---- tasks

    async def _serve(self, session: Session, begin: Callable[[], None]) -> None:
        """Read what the server offers, and each change of this, as long as the session lasts."""
        self._changed = {"tools", "resources", "prompts"}
        try:
            await self._read_changed(session)
        except ActionFailed as error:
            raise McpServerLost(f"the MCP server {session.name} offers nothing usable: {error}") from None
        self.info = session.info  # behind the lists: who waits for it finds them
        begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.listen)
            nursery.start_soon(self._read_again, session)

    async def _read_again(self, session: Session) -> None:
        while True:
            await self._change.wait()
            try:
                await self._read_changed(session)
            except ActionFailed as error:
                self.log.warning("what an MCP server says has changed cannot be read", why=str(error))
            except SessionLost:
                return  # the next one reads all of it
            await trio.sleep(1.0)  # a server that always says so is read once a second

    async def _read_changed(self, session: Session) -> None:
        self._change = trio.Event()
        changed = self._changed
        self._changed = set[str]()
        if "tools" in changed:
            await self._read_tools(session)
        if "resources" in changed:
            self.resources = (await session.resources()).entries
        if "prompts" in changed:
            self.prompts = (await session.prompts()).entries

    async def _read_tools(self, session: Session) -> None:
        found = await session.tools()
        self.tools = found.entries
        self.left_out = found.left_out[:MOST_LEFT_OUT]

    def _note_change(self, kind: str) -> None:
        self._changed.add(kind)
        self._change.set()

    # ---- questions of the server

    @contextmanager
    def _in_progress(self, what: str) -> Generator[None]:
        """Record a request and its sender while the request is in progress."""
        call = (current_run(), paths_of_request()[1], what)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def _ask_people(self, message: str, form: dict[str, Any]) -> Outcome:
        """Have people answer a server's question.

        If all calls in progress come from one caller, its user is asked, too.
        """
        during = list(dict.fromkeys(what for *_, what in self._calls))[:MOST_SHOWN]
        text, seconds = f"the MCP server asks: {message}", self.elicitation_seconds
        ended = await self._ask_once(text, {"during": during}, form, seconds)
        if ended.state == "approved":
            return "accept", ended.answer
        return ("decline" if ended.state == "refused" else "cancel"), None

    async def _ask_once(self, text: str, data: Any, form: dict[str, Any], seconds: float) -> Approval:
        place = self._place()
        if place.rt.approvals is None:
            raise ConfigError("this node has nobody to ask: open it by open_node")
        callers = list(dict.fromkeys(caller for _, caller, _ in self._calls))
        caller = callers[0] if len(callers) == 1 else None
        run = self._calls[0][0] if len(self._calls) == 1 else None
        found: Approval = await place.rt.approvals.ask_once(place, text, data, form, seconds, caller, run)
        return found

    async def _ask_to_sign_in(self, url: str) -> str | None:
        """Have a person open a URL, and return the address of the last page that the browser showed.

        Return an empty text if the person gives no address, None if the person refuses.
        """
        assert self.oauth is not None
        self._held.ask_first()
        if callable(self.oauth.ask):
            await self.oauth.ask(url)
            return ""
        await self._place().wait_running()  # before, nobody can be asked
        text = f"open the address, and sign in to the MCP server {_place_shown(self.url)}"
        ended = await self._ask_once(text, {"address": printable(url)}, SIGN_IN_FORM, self.oauth.seconds)
        given = (ended.answer or {}).get("last_address", "")
        return None if ended.state == "refused" else str(given)

    def _note_declined(self, question: str, why: str) -> None:
        self.declined += 1
        if self.declined == 1:
            text = "a question of an MCP server to the user was declined"
            self.log.warning(text, question=question[:QUESTION], why=why)

    # ---- start

    def _refuse_virtual_time(self) -> None:
        place = self._place()
        if not place.rt.real or time_jumps():
            raise ForbiddenCall(
                f"{type(self).__name__}, agent {place.path!r}, uses a live MCP server, and there is no "
                f"network and no process on virtual time; {WAY_OUT}, such as a mock of it (`from: mock`, "
                f"`use: lmos_actors.mcp:McpServer`) or a recording, or run the scenario in real time"
            )

    def _prepared(self) -> Opened:
        """Prepare a connection: read the secrets and import the SDK. Blocks. Raises ConfigError."""
        try:
            from ._session import Limits, open_session
        except ModuleNotFoundError:
            raise ConfigError(NO_EXTRA) from None
        limits = Limits(self.start_seconds, self.call_seconds, self.result_bytes, self.most_tools)
        most = max(self.result_bytes, MESSAGE_BYTES)
        asks = self._ask_people if self.elicitation == "approve" else None
        seconds = max(self.elicitation_seconds, 0.0 if self.oauth is None else self.oauth.seconds)
        questions = Questions(asks, seconds, self._note_declined)
        if self.url:
            from ._http import HttpTransport, open_http

            token = None if self.bearer is None else _token(self.bearer)
            sign_in, secrets = self._signing_in(questions)
            connection = Connection(_place_shown(self.url), secrets if token is None else [token])
            http = HttpTransport(token, most, connection)
            transport = open_http(self.url, http, most, connection, sign_in)
        else:
            from ._stdio import open_process

            secret = {key: _secret(value) for key, value in self.env.items() if value.startswith(_REFERENCES)}
            connection = Connection(repr(shlex.join(self._words)[:SHOWN]), tuple(secret.values()))
            transport = open_process(self._words, {**self.env, **secret}, self.cwd, most, connection)
        return Opened(
            connection,
            lambda: open_session(transport, connection, limits, self._note_change, questions),
        )

    def _signing_in(self, questions: Questions) -> tuple[SignIn | None, list[str]]:
        """Return the token source, if OAuth is used, and its secrets. Raises ConfigError."""
        options = self.oauth
        if options is None:
            return None, []
        from ._sign_in import Person, SignIn
        from ._tokens import Tokens

        if self._tokens is None:
            self._tokens = Tokens(self.url, options.tokens)
            self._tokens.load()
        secret = "" if options.secret is None else _secret(options.secret)
        if secret and secret not in self._tokens.secrets:
            self._tokens.secrets.append(secret)
        person = Person(self._ask_to_sign_in, questions.standing_still, options.seconds)
        return (
            SignIn(self.url, options, secret, self._tokens, None if options.ask is None else person),
            self._tokens.secrets,
        )


def _token(reference: str) -> str:
    token = _secret(reference)
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{reference}: has characters that no header may have", "McpServer.bearer")
    return token


def _secret(reference: str) -> str:
    source = SecretSource(Reference.parse(reference))
    value = source.read()
    if value is None:
        raise ConfigError(f"there is no secret: {source.problem}")
    return os.fsdecode(bytes(value)).strip()


def _place_shown(url: str) -> str:
    parts = urlsplit(url)
    return f"at {parts.scheme}://{parts.netloc}"


def _words_of(command: Any, path: str) -> list[str]:
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"cannot be split into words: {error}", path) from None
    try:
        return msgspec.convert(command, list[str])
    except msgspec.ValidationError:
        raise ConfigError(f"must be a text or a list of words, not {command!r}", path) from None


def _check_url(url: Any, bearer: Any, oauth: Any, name: str) -> None:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ConfigError(f"must be the http or https URL of a server, not {url!r}", f"{name}.url")
    try:
        place = place_of(url)
    except ConfigError:
        raise ConfigError(
            "must be the URL of a server, with a host and without a user", f"{name}.url"
        ) from None
    if bearer is not None:
        try:
            Reference.parse(bearer)
        except ConfigError as error:
            raise ConfigError(str(error), f"{name}.bearer") from None
    if oauth is not None and (bearer is not None or not isinstance(oauth, McpOAuth)):
        raise ConfigError("must be a McpOAuth, in place of a bearer", f"{name}.oauth")
    if not is_private(place) and (bearer is not None or oauth is not None):
        field = "bearer" if oauth is None else "oauth"
        raise ConfigError(in_the_clear(url, f"no {field} where the server needs none"), f"{name}.{field}")


def _check_env(env: Any, path: str) -> None:
    if not isinstance(env, dict):
        raise ConfigError("must be variables by name", path)
    for key, value in env.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, str) or not key or "=" in key:
            raise ConfigError("must be texts by the names of variables", path)
        if value.startswith(_REFERENCES):
            try:
                Reference.parse(value)
            except ConfigError as error:
                raise ConfigError(str(error), f"{path}.{key}") from None
