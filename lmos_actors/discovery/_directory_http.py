"""One request to the directory over HTTP, and what is done with those to one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import attrs
import msgspec
import trio

from lmos_actors._errors import ActionFailed, AgentError
from lmos_actors.bindings import Answer, HttpError, anything, check_sight, give, problem_answer

from ._directory_td import PROBLEM
from ._merge import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmos_actors.security import Verb

NOSNIFF: Final = (b"x-content-type-options", b"nosniff")

Headers = tuple[tuple[bytes, bytes], ...]


@attrs.frozen
class Asked:
    """One request."""

    scope: Any
    receive: Any
    send: Any

    @property
    def method(self) -> str:
        """Its method; HEAD is asked as GET."""
        method: str = self.scope["method"]
        return "GET" if method == "HEAD" else method

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Its headers, their names in lower case."""
        found: Sequence[tuple[bytes, bytes]] = self.scope["headers"]
        return found

    def header(self, name: bytes) -> str | None:
        """Give the value of a header, None where there is none."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1").strip()
        return None

    def query(self) -> dict[str, str]:
        """Give what stands behind the question mark. Raises HttpError for what is there twice."""
        text = self.scope["query_string"].decode("latin-1")
        found = parse_qs(text, keep_blank_values=True)
        for name, values in found.items():
            if len(values) > 1:
                raise bad(f"{name[:100]!r} is there more than once")
        return {name: values[0] for name, values in found.items()}

    def check(self, agent: str, verb: Verb) -> None:
        """Look whether whoever asks may. Raises Unauthorized, Forbidden, RateLimited."""
        admission = self.scope["state"].get("admission")
        if admission is not None:
            admission.check(agent, verb, trio.current_time())

    def check_sight(self, agent: str) -> None:
        """Look whether whoever asks may see that it is there. Raises as `check` does."""
        state = self.scope["state"]
        check_sight(state.get("admission"), state.get("sees", anything), agent)


def bad(detail: str) -> HttpError:
    return HttpError(400, "Bad Request", detail)


class Resource:
    """One place of the API: what its methods do, and what each takes, None to see; an ASGI application."""

    def __init__(
        self, agent: str, new_id: Callable[[], str], methods: Mapping[str, tuple[Verb | None, Any]]
    ) -> None:
        self._agent = agent
        self._new_id = new_id
        self._methods = methods

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = Asked(scope, receive, send)
        try:
            answer = await self._answer(asked)
        except (AgentError, HttpError) as error:
            answer = _told(error) or problem_answer(error, self._new_id(), self._allowed)
        if answer is not None:
            await give(send, answer, bare=scope["method"] == "HEAD")

    async def _answer(self, asked: Asked) -> Answer | None:
        found = self._methods.get(asked.method)
        allow = ((b"allow", self._allowed().encode()),)
        if asked.method == "OPTIONS":
            return Answer(204, b"", allow)
        if found is None:
            raise HttpError(405, "Method Not Allowed", f"here are {self._allowed()}", allow)
        verb, handler = found
        if verb is None:
            asked.check_sight(self._agent)
        else:
            asked.check(self._agent, verb)
        answer: Answer | None = await handler(asked)
        return answer

    def _allowed(self) -> str:
        reading = ("HEAD",) if "GET" in self._methods else ()
        return ", ".join((*self._methods, *reading, "OPTIONS"))


def _told(error: Exception) -> Answer | None:
    """Give the problem that the directory tells, None if it tells none."""
    data = error.output if isinstance(error, ActionFailed) else None
    if not is_object(data) or not isinstance(data.get("status"), int):
        return None
    more: Headers = ((b"retry-after", b"1"),) if data["status"] == 503 else ()
    return Answer(
        data["status"], msgspec.json.encode(data), ((b"content-type", PROBLEM.encode()), NOSNIFF, *more)
    )
