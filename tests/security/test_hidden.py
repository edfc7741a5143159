"""Nothing shows a secret: no repr, no traceback with its local variables, no report, wherever it breaks.

The code of `lmos_actors.security` is broken at every one of its lines in turn, and what a debugger, a
crash report or a log would show of that is searched.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from rich.console import Console
from rich.traceback import Traceback

import lmos_actors.security
from lmos_actors import Agent, AgentDied, action
from lmos_actors._core import HIDDEN, SecretBytes, hide
from lmos_actors.files import FileError
from lmos_actors.security import (
    Basic,
    BasicAuth,
    Bearer,
    BearerToken,
    ClientCertificates,
    Credentials,
    Guard,
    Jwt,
    RequestContext,
    Security,
)
from lmos_actors.testing import open_test_node
from lmos_actors.transport._asgi import scope_of
from lmos_actors.transport._head import HeadReader, upgrade_of
from tests.security.sample_credentials import (
    AUDIENCE,
    ISSUER,
    OFTEN,
    Wall,
    basic,
    guard_of,
    key_of,
    key_set,
    request,
    token,
    write,
)
from tests.transport.doors import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# a file that is open where the code breaks is closed by nobody
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FOLDER = str(Path(lmos_actors.security.__file__).parent)
KEY = key_of()
SHARED = key_of("hs", "oct", 256)
SIGNED = token(KEY)


class Secrets:
    """The secrets of these tests. No local variable of a test holds one."""

    token = "hunter2-token-0123456789"
    password = "hunter3 pässword"
    given = "hunter4.opaque.token"
    shared = str(SHARED.as_dict(private=True)["k"])

    @classmethod
    def all(cls) -> Iterator[str]:
        yield from (cls.token, cls.password, cls.given, cls.shared, basic("bob", cls.password).split()[1])
        yield SIGNED.split(".")[2]
        yield ascii(cls.password)[1:-1]
        yield repr(cls.password.encode())[2:-1]


class Broken(BaseException):
    """What no code expects."""


def broken_at(nth: int, call: Callable[[], object]) -> BaseException | None:
    """Call it, and break the nth line of the package that runs; None if there are fewer."""
    left = nth

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event == "line":
            if left == 0:
                raise Broken
            left -= 1
        return trace

    found: list[BaseException | None] = [None]

    def traced() -> None:
        sys.settrace(trace)
        try:
            call()
        except Broken as error:
            found[0] = error
        finally:
            sys.settrace(None)

    # in a thread: what breaks while an exception is handled leaves that one behind as being handled
    thread = threading.Thread(target=traced)
    thread.start()
    thread.join()
    return found[0]


def shown(error: BaseException) -> str:
    """All that tools show of an exception: with the local variables of every frame, and what is in those."""
    found = [
        value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()
    ]
    members = [vars(value) for value in found if is_ours(value)]
    return "\n".join([*traceback.format_exception(error), *map(as_shown, [*found, *members])])


def is_ours(value: object) -> bool:
    return type(value).__module__.startswith("lmos_actors.") and hasattr(value, "__dict__")


def as_shown(value: object) -> str:
    try:
        return repr(value)
    except Broken:
        raise
    except Exception:  # it was never finished
        return ""


def leaks(text: str) -> list[str]:
    return [HIDDEN for secret in Secrets.all() if secret in text]


@pytest.fixture
def security(tmp_path: Path, monkeypatch) -> Security:
    monkeypatch.setenv("S1_TOKEN", Secrets.token)
    monkeypatch.setenv("S1_PASSWORD", Secrets.password)
    return Security(
        schemes=(
            Bearer({"alice": ("env:S1_TOKEN", write(tmp_path / "token", Secrets.token + "2"))}),
            Basic({"bob": "env:S1_PASSWORD"}),
            Jwt(keys=write(tmp_path / "keys.json", key_set(KEY)), issuer=ISSUER, audience=AUDIENCE),
            ClientCertificates(write(tmp_path / "people", f"alice sha256:{'a1' * 32}")),
        )
    )


def shared_keys(folder: Path) -> Security:
    reference = write(folder / "shared.json", key_set(SHARED, private=True))
    return Security(schemes=(Jwt(keys=reference, issuer=ISSUER, audience=AUDIENCE, algorithms="HS256"),))


@pytest.mark.slow
def test_a_guard_that_breaks_while_it_is_made(security: Security, tmp_path: Path) -> None:
    for each in (security, shared_keys(tmp_path)):
        count = everywhere(lambda each=each: guard_of(each))
        assert count > 80


@pytest.mark.parametrize(
    "authorization",
    [
        lambda: f"Bearer {Secrets.token}",
        lambda: f"Bearer {Secrets.given}",
        lambda: Secrets.given,
        lambda: basic("bob", Secrets.password),
        lambda: f"Basic {Secrets.token}",
        lambda: f"Bearer {SIGNED}",
    ],
)
def test_a_guard_that_breaks_while_it_decides(security: Security, authorization: Callable[[], str]) -> None:
    guard = guard_of(attrs.evolve(security, failures=OFTEN))
    guard.refresh(5.0)
    brought = request(authorization())
    assert everywhere(lambda: guard.admit(brought, 5.0)) > 20


def test_a_guard_that_breaks_while_it_looks_again(security: Security) -> None:
    guard, now = guard_of(security), [5.0]

    def later() -> None:
        now[0] += 5.0
        for verifier in guard._verifiers:
            verifier.refresh()

    assert everywhere(lambda: guard.refresh(now[0]), before=later) > 60


def everywhere(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
    """Break it at each line in turn; give how many there were."""
    for nth in range(5000):
        before()
        error = broken_at(nth, call)
        if error is None:
            gc.collect()  # here, and not in another test, where what is open still would be told of
            return nth
        assert leaks(shown(error)) == [], traceback.format_exception(error)
    raise AssertionError("it never came to its end")


@pytest.mark.slow
def test_credentials_that_break_while_they_are_presented(security: Security, tmp_path: Path) -> None:
    def present() -> None:
        kept = Credentials(
            {
                "https://a.example": BearerToken("env:S1_TOKEN"),
                "https://b.example": BasicAuth("bob", "env:S1_PASSWORD"),
                "https://c.example": BearerToken(f"file:{tmp_path / 'token'}"),
            }
        )
        for url in ("https://a.example/x", "wss://b.example", "https://c.example"):
            headers = kept.headers_for(url, 5.0)
            assert len(headers[0][1]) > 20

    assert everywhere(present) > 60


def test_the_search_would_find_a_secret(security: Security) -> None:
    def careless() -> None:
        value = Secrets.token.encode()
        guard_of(security).admit(request(b"Bearer " + value), 0.0)

    error = broken_at(10, careless)
    assert error is not None
    assert leaks(shown(error)) != []


def test_rich_tracebacks_show_none(security: Security) -> None:
    guard = guard_of(security, wall=lambda: 1 // 0)
    brought = request(f"Bearer {Secrets.given}")
    try:
        guard.admit(brought, 0.0)
    except ZeroDivisionError as error:
        text = io.StringIO()
        made = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
        Console(file=text, width=200).print(made)
        assert "request" in text.getvalue()  # the local variables are there
        assert leaks(text.getvalue()) == []
    else:
        pytest.fail("the clock did not break")


def test_logs_show_none(security: Security, caplog) -> None:
    guard = guard_of(security)
    brought = request(f"Bearer {Secrets.token}")
    with caplog.at_level(logging.DEBUG):
        found = guard.admit(brought, 0.0)
        logging.getLogger("x").info("%s %r %s", brought, brought.headers, found)
        logging.getLogger("x").info("%s", brought.values(b"authorization")[0])
    assert leaks(caplog.text) == []
    assert HIDDEN in caplog.text


async def test_crash_reports_show_none(security: Security, virtual_clock, capsys, caplog) -> None:
    class Courier(Agent):
        headers: Any = None

        @action
        def crash(self) -> None:
            self.headers = Credentials({"https://a.example": BearerToken("env:S1_TOKEN")}).headers_for(
                "https://a.example", 0.0
            )
            brought = request(*(value for _, value in self.headers))
            raise ValueError(f"{brought} {self.headers}")

    async with open_test_node() as node:
        ref = await node.start(Courier)
        with pytest.raises(AgentDied) as caught:
            await ref.invoke(Courier.crash)
        (report,) = node.crash_reports
        assert HIDDEN in str(report)
        assert leaks(f"{report} {report!r}") == []
        assert HIDDEN in str(caught.value)
        assert leaks(str(caught.value)) == []
    out = capsys.readouterr()
    assert leaks(out.out + out.err + caplog.text) == []


@pytest.mark.parametrize("suffix", ["yaml", "toml"])
def test_a_file_with_a_secret_in_it_is_refused_without_showing_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"security.{suffix}"
    path.write_text(
        f"schemes: [{{scheme: bearer, tokens: {{alice: {Secrets.token}}}}}]\n"
        if suffix == "yaml"
        else f'[[schemes]]\nscheme = "bearer"\ntokens.alice = "{Secrets.token}"\n'
    )
    with pytest.raises(FileError) as caught:
        Security.load(path)
    assert "the secret itself does not belong here" in str(caught.value)
    assert leaks(shown(caught.value)) == []
    assert leaks(str(caught.value) + repr(caught.value) + repr(caught.value.mistakes)) == []
    assert caught.value.__context__ is None


def test_headers_that_carry_no_secret_stay_as_they_are() -> None:
    plain = ((b"host", b"x"), (b"accept", b"y"))
    assert hide(plain) is plain
    mixed = hide((*plain, (b"cookie", b"hunter5"), (b"authorization", b"hunter5")))
    assert [type(value) for _, value in mixed] == [bytes, bytes, SecretBytes, SecretBytes]
    assert mixed == (*plain, (b"cookie", b"hunter5"), (b"authorization", b"hunter5"))
    assert "hunter5" not in repr(mixed)
    assert "hunter5" not in repr(RequestContext(mixed, "p", True, None))


def test_what_comes_in_at_the_door_is_hidden_from_its_first_reading() -> None:
    reader = HeadReader(max_bytes=10_000, max_headers=100)
    reader.feed(
        upgrade("/ws").replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {Secrets.token}\r\n\r\n".encode())
    )
    head = reader.take()
    assert head is not None
    asked = upgrade_of(head, "p:1", secure=True)
    scope = scope_of(head, "p:1", ("h", 1), secure=True)
    for each in (head, asked, scope, vars(reader)):
        assert leaks(repr(each)) == []
    assert f"Bearer {Secrets.token}".encode() in dict(asked.headers).values()


def test_keys_that_are_shared_are_not_shown(tmp_path: Path) -> None:
    guard = Guard(shared_keys(tmp_path), wall=Wall())
    verifier: Any = guard._verifiers[0]
    text = repr(
        [guard, vars(guard), vars(verifier), verifier._keys, verifier._source, vars(verifier._source)]
    )
    assert leaks(text) == []
    assert leaks(json.dumps(sorted(map(str, verifier._keys)))) == []
