"""Things that speak only HTTP, asked: what is sent, what is made of each answer, and of none."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    AgentDied,
    AgentError,
    AgentUnavailable,
    ConfigError,
    DeadlineExceeded,
    InvalidInput,
    MailboxFull,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)
from lmos_actors.bindings import HttpOptions
from lmos_actors.bindings.http_client._pool import _Route
from lmos_actors.bindings.http_client._stream import BadAnswer, Head, WebRequest
from lmos_actors.errors import Forbidden, RateLimited, RemoteProtocolError, Unauthorized
from lmos_actors.security import BasicAuth, Credentials
from lmos_actors.transport import ConnectFailed
from tests.bindings.web_things import (
    LAMP,
    NOTHING,
    cut,
    described,
    form,
    lamp,
    never,
    problem,
    say,
    sites,
    talk,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_properties_are_read_and_written(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True))
        site.on("PUT /on", NOTHING)
        assert await thing.read("on") is True
        assert await thing.write("on", False) is None
        asked = site.last("PUT /on")
        assert asked.data is False
        assert asked.headers["content-type"] == "application/json"
        assert "text" not in site.last("GET /on").headers["accept"]
        assert site.connections == 2  # the description, then one that is kept


async def test_all_properties_are_read_one_by_one_where_there_is_no_form_for_all(
    autojump_clock: object,
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True))
        site.on("GET /level", say(3))
        assert await thing.read_all() == {"on": True, "level": 3}
        site.on("PUT /on", NOTHING)
        site.on("PUT /level", problem("400 Bad Request", detail="too much"))
        with pytest.raises(InvalidInput, match="too much"):
            await thing.write_many({"on": False, "level": 99})
        assert site.last("PUT /on").data is False


@pytest.mark.parametrize(
    ("op", "values", "lines"),
    [
        ("writemultipleproperties", {"level": 2}, ["PUT /all"]),
        ("writeallproperties", {"level": 2, "on": True}, ["PUT /all"]),
        ("writeallproperties", {"level": 2}, ["PUT /level"]),
    ],
)
async def test_several_properties_go_by_the_form_for_all(
    autojump_clock: object, op: str, values: dict[str, Any], lines: list[str]
) -> None:
    async with lamp({**LAMP, "forms": [form("all", "readallproperties", op)]}) as (site, _, thing):
        site.on("GET /all", say({"on": True, "level": 1}))
        for line in ("PUT /all", "PUT /level"):
            site.on(line, NOTHING)
        assert await thing.read_all() == {"on": True, "level": 1}
        await thing.write_many(values)
        assert site.lines() == ["GET /all", *lines]
        assert site.asked[-1].data in (values, 2)


@pytest.mark.parametrize("refusal", ["404 Not Found", "500 Internal Server Error"])
async def test_who_does_not_give_all_properties_is_asked_for_each(
    autojump_clock: object, refusal: str
) -> None:
    described = {**LAMP, "forms": [form("all", "readallproperties")]}
    each = ["GET /on", "GET /level"]
    async with lamp(described) as (site, _, thing):
        site.on("GET /on", say(True))
        site.on("GET /level", say(1))
        site.on("GET /all", say(None, refusal))
        assert await thing.read_all() == {"on": True, "level": 1}
        assert site.lines() == ["GET /all", *each]
        await trio.sleep(50)
        assert await thing.read_all() == {"on": True, "level": 1}
        assert site.lines() == ["GET /all", *each, *each]
        await trio.sleep(20)
        site.on("GET /all", say({"on": False, "level": 2}))
        assert await thing.read_all() == {"on": False, "level": 2}
    async with lamp({**described, "lmosx:offers": ["acks"]}) as (site, _, thing):
        site.on("GET /all", say(None, refusal))
        with pytest.raises((NotFound, RemoteProtocolError)):
            await thing.read_all()
        assert site.lines() == ["GET /all"]


async def test_actions_give_their_output_or_none(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /fade", say({"took": 1.5}))
        site.on("POST /reset", NOTHING)
        assert await thing.invoke("fade", {"to": 3}) == {"took": 1.5}
        assert site.last("POST /fade").data == {"to": 3}
        assert await thing.invoke("reset") is None
        asked = site.last("POST /reset")
        assert asked.body == b""
        assert asked.headers["content-length"] == "0"
        assert "content-type" not in asked.headers
        assert "prefer" not in asked.headers


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            problem("404 Not Found", detail="no lamp", about={"kind": "property", "name": "on"}),
            NotFound,
            "no lamp",
        ),
        (say(None, "404 Not Found"), NotFound, "404"),
        (say(b"<p>gone</p>", "410 Gone", "text/html"), NotFound, "410"),
        (problem("400 Bad Request", detail="no", path="$.x"), InvalidInput, r"no - at \$.x"),
        (say({"bare": 1}, "422 Unprocessable Content"), InvalidInput, "422"),
        (say(None, "413 Content Too Large"), InvalidInput, "413"),
        (say(None, "401 Unauthorized"), Unauthorized, "401"),
        (say(None, "403 Forbidden"), Forbidden, "403"),
        (say(None, "405 Method Not Allowed"), NotAllowed, "405"),
        (say(None, "501 Not Implemented"), NotAllowed, "501"),
        (say(None, "415 Unsupported Media Type"), NotAllowed, "415"),
        (say(None, "429 Too Many Requests", Retry_After="7"), RateLimited, "429"),
        (say(None, "503 Service Unavailable", Retry_After="2"), AgentUnavailable, "503"),
        (say(None, "408 Request Timeout"), AgentUnavailable, "408"),
        (problem("503 X", type="urn:lmos-actors:errors#mailbox-full", about={"size": 4}), MailboxFull, "4"),
        (
            problem("500 X", type="urn:lmos-actors:errors#agent-died", detail="boom", started=False),
            AgentDied,
            "boom",
        ),
        (say(None, "500 Internal Server Error"), ActionFailed, "500"),
        (say({"why": "dark"}, "500 X"), ActionFailed, "dark"),
        (problem("500 X", detail="dark"), ActionFailed, "dark"),
        (say(None, "502 Bad Gateway"), OutcomeUnknown, "502"),
        (say(None, "504 Gateway Timeout"), OutcomeUnknown, "504"),
        (say(None, "418 I'm a teapot"), RemoteProtocolError, "teapot"),
        (say(None, "409 Conflict"), ActionFailed, "409"),
        (problem("409 X", code="taken", detail="by Ada"), ActionFailed, "taken: by Ada"),
        (problem("422 X", type="urn:lmos-actors:errors#action-failed", row=7), ActionFailed, '"row": 7'),
        (say(None, "302 Found", Location="/elsewhere"), RemoteProtocolError, "302"),
        (say(None, "304 Not Modified"), RemoteProtocolError, "304"),
    ],
)
async def test_each_refusal_is_an_error_of_its_class(
    autojump_clock: object, answer: bytes, error: type[AgentError], text: str
) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /fade", answer)
        with pytest.raises(error, match=text) as told:
            await thing.invoke("fade")
        assert type(told.value) is error
        retry_in = getattr(told.value, "retry_in", None)
        assert retry_in in (None, 7.0, 2.0)


async def test_errors_name_the_thing_as_it_is_known_here(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on(
            "GET /on",
            problem("503 X", type="urn:lmos-actors:errors#agent-unavailable", retryIn=1.5, detail="no"),
        )
        with pytest.raises(AgentUnavailable) as told:
            await thing.read("on")
        assert (told.value.agent, told.value.why, told.value.retry_in) == ("urn:example:lamp", "no", 1.5)


HTML = b"<html>"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (say(b"{nonsense"), "not JSON"),
        (say(b"\xff\xfe"), "not JSON"),
        (say(b'"' + b"x" * (4 << 20) + b'"'), "longer than"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b" " * (5 << 20), "longer than"),
        (say(b"[" * 100 + b"]" * 100), "levels deep"),
        (say(b"9" * 2_000), "digits"),
        (say(b"\xff", kind="text/plain"), "not UTF-8 text"),
        (say(True, Content_Encoding="gzip"), "compressed"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 400_000 + b"\r\n\r\n", "no answer of HTTP"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "no answer of HTTP",
        ),
        (b"HTTP/1.1 103 Early\r\n\r\n" * 40, "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\ntrue", "no answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no answer of HTTP"),
    ],
)
async def test_an_answer_that_cannot_be_taken_is_an_error_of_the_peer(
    autojump_clock: object, answer: bytes, text: str
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", answer, say(True))
        with pytest.raises(RemoteProtocolError, match=text):
            await thing.read("on")
        assert await thing.read("on") is True  # nothing of it is left in the next one's way


async def test_interim_answers_are_passed_over(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + say(True))
        assert await thing.read("on") is True


async def test_a_body_that_does_not_end_is_waited_for_only_so_long(autojump_clock: object) -> None:
    async def slow(stream: Any) -> bool:
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        )
        await never(stream)
        return True

    async with lamp() as (site, _, thing):
        site.on("GET /on", talk(slow))
        with pytest.raises(RemoteProtocolError, match="not there after 60 s"):
            await thing.read("on")


@pytest.mark.parametrize("verb", ["read", "write", "invoke"])
async def test_no_answer_means_that_the_outcome_is_unknown(autojump_clock: object, verb: str) -> None:
    async with lamp() as (site, _, thing):
        for line in ("GET /on", "PUT /on", "POST /fade"):
            site.on(line, talk(cut))
        asks = {
            "read": lambda: thing.read("on"),
            "write": lambda: thing.write("on", True),
            "invoke": lambda: thing.invoke("fade"),
        }
        with pytest.raises(OutcomeUnknown, match="before the answer"):
            await asks[verb]()


async def test_an_answer_that_breaks_off_means_that_the_outcome_is_unknown(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        broken = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntr"
        site.on("POST /fade", broken, b"HTTP/1.1 200 O\r\nConnection: close")
        for _ in range(2):
            with pytest.raises(OutcomeUnknown, match="within the answer"):
                await thing.invoke("fade")


async def test_nobody_there_means_that_it_was_not_begun(autojump_clock: object) -> None:
    async with sites("http://tds") as ((site,), node):
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        with pytest.raises(ConnectFailed, match="http://lamp: nothing is listening there"):
            await node.consume_thing("http://tds/td")


async def test_a_server_that_goes_away_is_found_again(autojump_clock: object) -> None:
    async with sites("http://tds") as ((site,), node), trio.open_nursery() as nursery:
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        site.on("GET /on", say(True))
        scope = await nursery.start(_while_open, site, "http://lamp")
        thing = await node.consume_thing("http://tds/td")
        assert await thing.read("on") is True
        scope.cancel()
        await trio.sleep(1)
        with pytest.raises(
            AgentUnavailable, match="no connection to http://lamp: nothing is listening there"
        ):
            await thing.read("on")
        with trio.move_on_after(5):
            await thing.ready()
            pytest.fail("there is nobody")
        scope = await nursery.start(_while_open, site, "http://lamp")
        await thing.ready()
        assert await thing.read("on") is True
        scope.cancel()


async def _while_open(site: Any, url: str, task_status: Any) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(site.serve, url)
            task_status.started(scope)


# ---- connections


async def test_connections_are_kept_and_closed_when_they_have_been_idle(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True))
        for _ in range(5):
            await thing.read("on")
        assert (site.connections, site.open) == (2, 1)
        await trio.sleep(30)
        assert site.open == 0
        await thing.read("on")
        assert site.connections == 3


async def test_a_connection_that_was_closed_meanwhile_is_not_used(autojump_clock: object) -> None:
    async def once(stream: Any) -> bool:
        await stream.send_all(say(None, "204 No Content"))
        await trio.sleep(1)
        return True

    async with lamp() as (site, _, thing):
        site.on("POST /fade", talk(once))
        await thing.invoke("fade")
        await trio.sleep(2)
        await thing.invoke("fade")  # may not be sent twice, and is not lost
        assert site.lines() == ["POST /fade"] * 2


async def test_what_comes_unasked_on_an_idle_connection_is_no_answer(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True) + say(False), say(True))
        assert await thing.read("on") is True
        await trio.sleep(1)
        assert await thing.read("on") is True


@pytest.mark.parametrize(("name", "times"), [("reset", 2), ("fade", 1)])
async def test_what_may_be_repeated_is_when_an_idle_connection_ends_under_it(
    autojump_clock: object, name: str, times: int
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(True))
        site.on(f"POST /{name}", talk(cut), NOTHING)
        await thing.read("on")  # so that there is one
        if times == 1:
            with pytest.raises(OutcomeUnknown):
                await thing.invoke(name)
        else:
            await thing.invoke(name)
        assert site.lines().count(f"POST /{name}") == times


async def test_as_many_requests_as_there_is_room_for_are_open_and_the_others_wait(
    autojump_clock: object,
) -> None:
    async def second(stream: Any) -> None:
        await trio.sleep(1)
        await stream.send_all(say(site.open))

    async with lamp(http=HttpOptions(requests=3)) as (site, _, thing), trio.open_nursery() as nursery:
        site.on("POST /fade", talk(second))
        found: list[int] = []

        async def ask() -> None:
            found.append(await thing.invoke("fade"))

        for _ in range(7):
            nursery.start_soon(ask)
        await trio.sleep(0.5)
        assert len(site.asked) == 3
        await trio.sleep(3)
        assert len(found) == 7
        assert max(found) <= 4  # with that of the description


@pytest.mark.parametrize("stays", [False, True])
async def test_a_large_body_that_is_refused_unread_is_refused_and_not_lost(
    stays: bool, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lamp() as (site, _, thing):

        async def answer_early(_: Any, stream: Any) -> None:
            await stream.receive_some(1024)
            await stream.send_all(say(None, "413 Content Too Large"))
            if stays:  # and reads no more
                await trio.sleep_forever()

        monkeypatch.setattr(site, "_next", answer_early)
        with pytest.raises(InvalidInput, match="413"):
            await thing.write("on", "x" * 1_000_000)


@pytest.mark.parametrize(("size", "seconds"), [(0, 0), (1_000, 0), (2_000_000, 0), (5_000_000, 9)])
async def test_a_complete_answer_ends_a_request_whose_body_nobody_reads(
    size: int, seconds: int, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its status; of one that is longer than 4 MiB the end is not known before the deadline."""
    async with lamp() as (site, _, thing):

        async def answer_early(_: Any, stream: Any) -> None:
            await stream.receive_some(1024)
            await stream.send_all(say(size and "y" * size))
            await trio.sleep_forever()  # and reads no more

        began = trio.current_time()
        with monkeypatch.context() as patch, suppress(DeadlineExceeded):
            patch.setattr(site, "_next", answer_early)
            assert await thing.within(9).invoke("fade", {"text": "x" * 1_000_000}) == (size and "y" * size)
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
        before = site.connections
        site.on("GET /on", say(True))
        assert await thing.read("on") is True
        assert site.connections == before + 1


async def test_an_answer_that_comes_while_the_request_is_read_is_whole(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lamp() as (site, _, thing):

        async def answer_meanwhile(_: Any, stream: Any) -> None:
            answer = say("y" * 3_000)
            await stream.receive_some(1024)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_all, stream)
                for start in range(0, len(answer), 100):
                    await stream.send_all(answer[start : start + 100])
                    await trio.sleep(0.1)
                nursery.cancel_scope.cancel()

        async def read_all(stream: Any) -> None:
            for _ in range(800_000 // 50_000 + 1):
                await stream.receive_some(60_000)
                await trio.sleep(0.1)

        monkeypatch.setattr(site, "_next", answer_meanwhile)
        assert await thing.invoke("fade", {"text": "x" * 800_000}) == "y" * 3_000


# ---- cancelling


async def test_a_cancel_closes_the_connection_and_frees_the_seat(autojump_clock: object) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /fade", talk(never))
        site.on("GET /on", say(True))
        with trio.move_on_after(1):
            await thing.invoke("fade")
        await trio.sleep(1)
        assert site.open == 0
        with pytest.raises(DeadlineExceeded):
            await thing.within(2).invoke("fade")
        await trio.sleep(1)
        assert site.open == 0
        assert float(site.last("POST /fade").headers["lmos-remaining"]) == pytest.approx(2, abs=0.01)
        assert await thing.read("on") is True


async def test_a_request_may_be_cancelled_at_every_step(autojump_clock: object) -> None:
    async def drop_by_drop(stream: Any) -> None:
        for byte in say({"done": True}):
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.01)

    async with lamp() as (site, _, thing):
        site.on("POST /fade", talk(drop_by_drop))
        ends: list[object] = []
        for step in range(0, 130, 3):
            with trio.move_on_after(step * 0.01):
                ends.append(await thing.invoke("fade"))
        await trio.sleep(1)
        assert site.open <= 1
        assert ends
        assert all(end == {"done": True} for end in ends)


# ---- who asks


async def test_headers_go_to_the_server_that_was_asked_and_to_no_other(autojump_clock: object) -> None:
    description = described(
        properties={
            "here": {"forms": [form("http://lamp/here", "readproperty")]},
            "there": {"forms": [form("http://other/there", "readproperty")]},
        }
    )
    async with sites("http://lamp", "http://other") as ((site, other), node):
        site.on("GET /td", say(description, kind="application/td+json"))
        site.on("GET /here", say(1))
        other.on("GET /there", say(2))
        thing = await node.consume_thing("http://lamp/td", headers={"X-Key": "secret"})
        assert await thing.read_all() == {"here": 1, "there": 2}
        assert site.last("GET /here").headers["x-key"] == "secret"
        assert "x-key" not in other.last("GET /there").headers


async def test_headers_for_a_file_need_one_server(autojump_clock: object, tmp_path: Path) -> None:
    path = tmp_path / "lamp.td.json"
    path.write_text(json.dumps(LAMP))
    async with sites("http://lamp", "http://other") as ((site, _), node):
        site.on("GET /on", say(True))
        thing = await node.consume_thing(path, headers={"X-Key": "secret"})
        assert await thing.read("on")
        assert site.last("GET /on").headers["x-key"] == "secret"
        two = {**LAMP, "actions": {"other": {"forms": [form("http://other/x")]}}}
        path.write_text(json.dumps(two))
        with pytest.raises(ConfigError, match="headers are for one server, and the forms lead to 2"):
            await node.consume_thing(path, headers={"X-Key": "secret"})
        assert await node.consume_thing(path)


async def test_a_thing_needs_no_id(autojump_clock: object, tmp_path: Path) -> None:
    """TD 1.1 asks for none, and over HTTP none is said."""
    path = tmp_path / "lamp.td.json"
    path.write_text(json.dumps({name: each for name, each in LAMP.items() if name != "id"}))
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /on", say(True))
        assert await (await node.consume_thing(path)).read("on")
        site.on("GET /td", say(json.loads(path.read_text()), kind="application/td+json"))
        assert await (await node.consume_thing("http://lamp/td")).read("on")


async def test_credentials_are_asked_for_at_every_request(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("first")
    credentials = Credentials({"http://lamp": BasicAuth("alice", f"file:{secret}")}, allow_insecure=True)
    async with lamp(credentials=credentials) as (site, _, thing):
        site.on("GET /on", say(True))
        for password in ("first", "second, longer"):
            secret.write_text(password)
            await trio.sleep(2)
            await thing.read("on")
            told = site.last("GET /on").headers["authorization"].removeprefix("Basic ")
            assert base64.b64decode(told) == f"alice:{password}".encode()
        secret.unlink()
        await trio.sleep(2)
        with pytest.raises(AgentUnavailable) as error:
            await thing.read("on")
        assert "second" not in str(error.value)


# ---- redirects


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Again", "308 For Good"])
async def test_a_question_is_followed_where_it_leads_without_who_asks(
    autojump_clock: object, status: str
) -> None:
    credentials = Credentials(
        {each: BasicAuth("alice", "env:S4_PASSWORD") for each in ("http://lamp", "http://other")},
        allow_insecure=True,
    )
    async with sites("http://lamp", "http://other", credentials=credentials) as ((site, other), node):
        site.on("GET /td", say(LAMP, kind="application/td+json"))
        thing = await node.consume_thing("http://lamp/td", headers={"X-Key": "secret"})
        site.on("GET /on", say(None, status, Location="/on2"))
        site.on("GET /on2", say(None, status, Location="http://other/on3#here"))
        other.on("GET /on3", say(None, status, Location="http://lamp/on4"))
        site.on("GET /on4", say(None, status, Location="/on5"))
        site.on("GET /on5", say(True))
        assert await thing.read("on") is True
        for line, known in (("GET /on", True), ("GET /on2", True), ("GET /on4", False), ("GET /on5", False)):
            assert ("x-key" in site.last(line).headers) is known
            assert ("authorization" in site.last(line).headers) is known
        assert not {"x-key", "authorization"} & set(other.last("GET /on3").headers)


def test_no_redirect_leads_out_of_tls() -> None:
    pool: Any = None
    route = _Route(pool, WebRequest("GET", "https://lamp/on"), lambda _: ())
    assert route.goes_on(Head(307, "", ((b"location", b"https://other/on"),), "https://lamp/on"))
    with pytest.raises(BadAnswer, match="not secure"):
        route.goes_on(Head(307, "", ((b"location", b"http://other/on"),), "https://other/on"))


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S4_PASSWORD", "open sesame")


@pytest.mark.parametrize(
    ("location", "error", "text"),
    [
        ("/on", RemoteProtocolError, "more than 5 redirects"),
        ("ftp://lamp/on", RemoteProtocolError, "invalid address"),
        ("http://user:pw@lamp/on", RemoteProtocolError, "invalid address"),
        ("ws://lamp/on", RemoteProtocolError, "invalid address"),
        ("http://[::1", RemoteProtocolError, "invalid address"),
        ("", RemoteProtocolError, "307"),
    ],
)
async def test_a_redirect_that_leads_nowhere_is_an_error(
    autojump_clock: object, location: str, error: type[Exception], text: str
) -> None:
    async with lamp() as (site, _, thing):
        site.on("GET /on", say(None, "307 Again", **({"Location": location} if location else {})))
        with pytest.raises(error, match=text) as told:
            await thing.read("on")
        assert "pw" not in str(told.value)
        assert len(site.asked) <= 6


async def test_what_is_more_than_a_question_is_followed_on_its_own_server_alone(
    autojump_clock: object,
) -> None:
    async with lamp() as (site, _, thing):
        site.on("PUT /on", say(None, "307 Again", Location="/on2"))
        site.on("PUT /on2", NOTHING)
        await thing.write("on", True)
        assert site.last("PUT /on2").data is True
        site.on("PUT /on", say(None, "307 Again", Location="http://other/on"))
        with pytest.raises(RemoteProtocolError, match="more than a question"):
            await thing.write("on", True)
        site.on("POST /fade", say(None, "303 See Other", Location="/on2"))
        with pytest.raises(RemoteProtocolError, match="303"):
            await thing.invoke("fade")
