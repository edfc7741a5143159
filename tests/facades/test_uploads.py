"""Files of chat clients: announced, uploaded, used, downloaded; and every lie about them. In virtual time."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, ConfigError, open_node, simulate
from lmos_actors.facades import ChatAgent, ChatMedia, ChatPart, ChatTurn, OmniaOptions, open_chat
from lmos_actors.security import Bearer, Security
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.facades.desk import URL, Raw, opened_raw
from tests.security.nodes.guarded import Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


class Clerk(ChatAgent):
    """Reads what it is sent."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        for part in turn.parts:
            try:
                yield f"{part.type}:{(await turn.read(part)).decode()} "
            except (ValueError, LookupError) as error:
                yield f"{type(error).__name__} "


def told(
    main: Callable[[MemoryNetwork], Awaitable[Any]], folder: Path, security: Any = None, **options: Any
) -> Any:
    """Have clients talk to a clerk who takes files."""

    async def run() -> Any:
        network = MemoryNetwork()
        omnia = OmniaOptions(uploads=str(folder / "files"), **options)
        async with open_node(
            listen=URL, omnia=omnia, network=network, security=security, insecure=security is not None
        ) as node:
            await node.start(Clerk)
            return await main(network)

    return simulate(run)


async def http(
    network: MemoryNetwork, method: str, url: str, body: bytes = b"", *headers: str
) -> tuple[int, bytes]:
    """Ask once; return status and body."""
    endpoint = endpoint_of(url)
    stream = await network.connect(endpoint, None)
    lines = [f"{method} {endpoint.target} HTTP/1.1", "Host: desk", "Connection: close", *headers]
    if method == "PUT" and not any(
        each.lower().startswith(("content-length", "transfer")) for each in headers
    ):
        lines.append(f"Content-Length: {len(body)}")
    with suppress(trio.BrokenResourceError):  # it may be answered before it has been sent
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
    answer = b"".join([piece async for piece in stream])
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


def chat_at(network: MemoryNetwork, **more: Any) -> Any:
    return open_chat(f"{URL}/agents/clerk", network=network, **more)


def raw_at(network: MemoryNetwork, **more: Any) -> Any:
    return opened_raw(network, "agent=clerk", **more)


async def announced(raw: Raw, size: int = 3, name: str = "a.txt", **more: Any) -> Any:
    """Announce a file; return the answer."""
    order = {"filename": name, "mime_type": "text/plain", "size_bytes": size, **more}
    raw.say(type="upload_request", upload_request=order)
    return await raw.next("upload_ready", "error")


@pytest.mark.parametrize("limit", ["announced", "files"])
def test_how_many_files_may_come_is_an_option(tmp_path: Path, limit: str) -> None:
    async def main(network: MemoryNetwork) -> list[str]:
        async with raw_at(network) as raw:
            return [(await announced(raw))["type"] for _ in range(3)]

    assert told(main, tmp_path, **{limit: 2}) == ["upload_ready", "upload_ready", "error"]


def test_a_file_is_uploaded_and_read_by_the_agent(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> list[Any]:
        async with chat_at(network) as chat:
            part = await chat.upload(b"the text", "text/plain", "a.txt")
            assert part.media is not None
            found = [part.type, part.media.filename, (await chat.say("read", parts=[part])).text]
            picture = await chat.upload(b"x" * 300_000, "image/png", "../../etc/passwd")
            found += [picture.type, len((await chat.say(parts=[picture])).text)]
            embedded = ChatPart("file", media=ChatMedia("text/plain", data=base64.b64encode(b"hi").decode()))
            far = ChatPart("image", media=ChatMedia("image/png", url="http://127.0.0.1/secret"))
            odd = ChatPart("file", media=ChatMedia("text/plain", data="no base64"))
            found.append((await chat.say(parts=[embedded, far, odd, ChatPart("text", "x")])).text)
            return found

    assert told(main, tmp_path) == [
        "file",
        "a.txt",
        "file:the text ",
        "image",
        300_007,
        "file:hi ValueError ValueError ValueError ",
    ]
    assert {len(each.name) for each in (tmp_path / "files").iterdir()} == {32, 37}
    assert not (tmp_path / "etc").exists()


def test_the_frames_and_the_requests_of_an_upload(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            session = (await raw.next())["session_id"]
            ready = await announced(raw, name='näme "x".txt')
            ticket = ready["upload_ready"]
            assert ready["session_id"] == session
            assert ticket["upload_url"] == f"http://desk/media/upload/{ticket['upload_id']}"
            reference = f"omnia://sessions/{session}/media/{ticket['upload_id']}"
            assert ticket["storage_ref"] == reference
            assert ticket["expires_at"].endswith("Z")
            assert (await http(network, "GET", ticket["upload_url"]))[0] == 404
            where = f"http://desk/media/download/{session}/{ticket['upload_id']}"
            assert (await http(network, "GET", where))[0] == 404, "it has not come"
            assert await http(network, "PUT", ticket["upload_url"], b"abc") == (204, b"")
            complete = await raw.next("upload_complete")
            assert complete["upload_complete"] == {
                "upload_id": ticket["upload_id"],
                "storage_ref": reference,
                "size_bytes": 3,
            }
            assert (await http(network, "PUT", ticket["upload_url"], b"abc"))[0] == 404, "it is used"
            assert await http(network, "GET", where) == (200, b"abc")
            status, info = await http(network, "GET", where.replace("download", "info"))
            assert status == 200
            assert b'"size_bytes":3' in info
            for wrong in (
                f"/media/download/none/{ticket['upload_id']}",
                "/media/download/../files",
                "/media/upload/x",
            ):
                assert (await http(network, "GET", f"http://desk{wrong}"))[0] in (404, 405)

    told(main, tmp_path)


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"ab", (), 400, b"2 of the announced 3 bytes"),
        (b"abcd", (), 400, b"more than the announced 3 bytes"),
        (b"x" * 5_000_000, (), 400, b"more than the announced 3 bytes"),
        (b"", (), 400, b"0 of the announced 3 bytes"),
        (b"2\r\nab\r\n0\r\n\r\n", ("Transfer-Encoding: chunked",), 400, b"2 of the announced"),
    ],
)
def test_a_file_that_is_not_as_long_as_announced(
    tmp_path: Path, body: bytes, headers: tuple[str, ...], status: int, words: bytes
) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            ticket = (await announced(raw))["upload_ready"]
            found = await http(network, "PUT", ticket["upload_url"], body, *headers)
            assert found[0] == status
            assert words in found[1]
            assert list((tmp_path / "files").iterdir()) == []
            assert (await http(network, "PUT", ticket["upload_url"], b"abc"))[0] == 204, "it may come again"

    told(main, tmp_path)


def test_a_client_that_leaves_in_the_middle_of_a_file(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            ticket = (await announced(raw))["upload_ready"]
            stream = await network.connect(endpoint_of(ticket["upload_url"]), None)
            head = f"PUT /media/upload/{ticket['upload_id']} HTTP/1.1\r\nHost: desk\r\n"
            await stream.send_all(f"{head}Content-Length: 3\r\n\r\nab".encode())
            await trio.sleep(1)
            assert [each.suffix for each in (tmp_path / "files").iterdir()] == [".part"]
            assert (await http(network, "PUT", ticket["upload_url"], b"abc"))[0] == 400, "it is coming"
            await stream.aclose()
            await trio.sleep(1)
            assert list((tmp_path / "files").iterdir()) == []
            assert (await http(network, "PUT", ticket["upload_url"], b"abc"))[0] == 204

    told(main, tmp_path)


@pytest.mark.parametrize(
    ("order", "code", "words"),
    [
        ({"size_bytes": 0}, "INVALID_MESSAGE", "size_bytes"),
        ({"size_bytes": -1}, "INVALID_MESSAGE", "size_bytes"),
        ({"size_bytes": "3"}, "INVALID_MESSAGE", "size_bytes"),
        ({"filename": 3}, "INVALID_MESSAGE", "filename"),
        ({"size_bytes": 1 << 40}, "UPLOAD_FAILED", "a file has at most 1000 bytes"),
        ({"size_bytes": 700}, "UPLOAD_FAILED", "no room"),
        ({"filename": "x" * 256}, "UPLOAD_FAILED", "at most 255"),
        ({"mime_type": "a\r\nb"}, "UPLOAD_FAILED", "at most 255"),
    ],
)
def test_what_is_not_announced_well(tmp_path: Path, order: dict[str, Any], code: str, words: str) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            refused = await announced(raw, **order)
            assert refused["error"]["code"] == code
            assert words in refused["error"]["message"]
            raw.ask("hello")
            assert (await raw.end())["type"] == "done"

    told(main, tmp_path, upload_bytes=1_000, uploads_bytes=1_200)


def test_announcements_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            kinds = [(await announced(raw))["type"] for _ in range(17)]
            assert kinds == ["upload_ready"] * 16 + ["error"]
            await trio.sleep(901)
            last = await announced(raw)
            assert last["type"] == "upload_ready"
            await trio.sleep(901)
            assert (await http(network, "PUT", last["upload_ready"]["upload_url"], b"abc"))[0] == 404

    told(main, tmp_path)


@pytest.mark.slow
def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> list[str]:
        async with chat_at(network) as chat:
            for _ in range(3):
                await chat.upload(b"a", "text/plain")
            with pytest.raises(ActionFailed, match="no room"):
                await chat.upload(b"a", "text/plain")
            await trio.sleep(24 * 3600 + 1)
            return [(await chat.upload(b"a", "text/plain")).type]

    assert told(main, tmp_path, files=3) == ["file"]


def test_a_file_that_comes_after_its_connection_has_ended(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            raw.ask("hello")
            session = (await raw.end())["session_id"]
            ticket = (await announced(raw))["upload_ready"]
        assert await http(network, "PUT", ticket["upload_url"], b"abc") == (204, b"")
        async with raw_at(network) as raw:
            media = {"mime_type": "text/plain", "storage_ref": ticket["storage_ref"]}
            raw.say(type="message", session_id=session, parts=[{"type": "file", "media": media}])
            assert (await raw.end())["content"] == "file:abc "

    told(main, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
def test_a_file_that_comes_before_the_first_message_is_kept_with_its_session(
    tmp_path: Path, strict: bool
) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            session = (await raw.next("connected"))["session_id"]
            ticket = (await announced(raw))["upload_ready"]
            await http(network, "PUT", ticket["upload_url"], b"abc")
        async with raw_at(network) as raw:  # the connection has ended meanwhile
            await raw.next("connected")
            media = {"mime_type": "text/plain", "storage_ref": ticket["storage_ref"]}
            for content, parts, answer in (("hi", None, ""), ("", [{"type": "file", "media": media}], "abc")):
                raw.say(type="message", session_id=session, content=content, parts=parts)
                end = await raw.next()
                while end["type"] == "chunk":
                    end = await raw.next()
                assert (end["type"], end["session_id"]) == ("done", session)
                assert answer in end.get("content", "")
            raw.ask("hi", session_id="never heard of")
            kinds = [(await raw.next())["type"]] if strict else [(await raw.next())["type"] for _ in range(2)]
            assert kinds == (["error"] if strict else ["connected", "done"])

    told(main, tmp_path, strict_sessions=strict)


def test_a_file_for_a_session_that_is_gone_is_in_the_one_that_begins(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> str:
        async with chat_at(network, session="long gone") as chat:
            part = await chat.upload(b"abc", "text/plain")
            return (await chat.say(parts=[part])).text

    assert told(main, tmp_path) == "file:abc "


def test_files_are_removed_in_time(tmp_path: Path) -> None:
    async def main(network: MemoryNetwork) -> None:
        async with chat_at(network) as chat:
            part = await chat.upload(b"abc", "text/plain")
            await trio.sleep(24 * 3600)
            with pytest.raises(ActionFailed, match="there is no such file"):
                await chat.say(parts=[part])
            assert list((tmp_path / "files").iterdir()) == []

    told(main, tmp_path)


def test_files_are_known_after_a_restart_and_rubbish_is_removed(tmp_path: Path) -> None:
    kept: list[ChatPart] = []

    async def before(network: MemoryNetwork) -> None:
        async with raw_at(network) as raw:
            ticket = (await announced(raw))["upload_ready"]
            await http(network, "PUT", ticket["upload_url"], b"abc")
            kept.append(ChatPart("file", media=ChatMedia("text/plain", storage_ref=ticket["storage_ref"])))
        (tmp_path / "files" / "left.part").write_bytes(b"half")

    async def after(network: MemoryNetwork) -> str:
        media = kept[0].media
        assert media is not None
        assert media.storage_ref is not None
        session, id = media.storage_ref.split("/")[3::2]
        assert await http(network, "GET", f"http://desk/media/download/{session}/{id}") == (200, b"abc")
        return "found"

    told(before, tmp_path)
    assert told(after, tmp_path) == "found"
    assert len(list((tmp_path / "files").iterdir())) == 2


def test_without_a_folder_there_are_no_uploads() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=True, network=network) as node:
            await node.start(Clerk)
            async with raw_at(network) as raw:
                assert (await announced(raw))["error"]["code"] == "MEDIA_NOT_ENABLED"
            async with chat_at(network) as chat:
                with pytest.raises(ActionFailed, match="MEDIA_NOT_ENABLED"):
                    await chat.upload(b"abc", "text/plain")
                part = ChatPart(
                    "file", media=ChatMedia("text/plain", storage_ref="omnia://sessions/s/media/m")
                )
                with pytest.raises(ActionFailed, match="there is no such file"):
                    await chat.say(parts=[part])

    simulate(main)


async def hello(network: MemoryNetwork) -> None:
    async with chat_at(network) as chat:
        await chat.say("hello")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="files cannot be used"):
        told(hello, tmp_path)


def test_files_are_of_one_caller_and_one_session(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path)
    security = Security(
        schemes=(Bearer({name: secrets.put(name, f"token-{name}") for name in ("alice", "bob")}),)
    )

    def token(name: str) -> str:
        return f"Authorization: Bearer token-{name}"

    def header(name: str) -> tuple[tuple[bytes, bytes], ...]:
        return ((b"authorization", f"Bearer token-{name}".encode()),)

    async def main(network: MemoryNetwork) -> None:
        async with raw_at(network, headers=header("alice")) as raw:
            session = (await raw.next())["session_id"]
            ticket = (await announced(raw))["upload_ready"]
            put, id = ticket["upload_url"], ticket["upload_id"]
            where = f"http://desk/media/download/{session}/{id}"
            assert (await http(network, "PUT", put, b"abc"))[0] == 401
            assert (await http(network, "PUT", put, b"abc", token("bob")))[0] == 404
            assert (await http(network, "PUT", put, b"abc", token("alice")))[0] == 204
            assert (await http(network, "GET", where))[0] == 401
            assert (await http(network, "GET", where, b"", token("bob")))[0] == 404
            assert await http(network, "GET", where, b"", token("alice")) == (200, b"abc")
            part = {
                "type": "file",
                "media": {"mime_type": "text/plain", "storage_ref": ticket["storage_ref"]},
            }
            raw.say(type="message", parts=[part], session_id=session)
            assert (await raw.end())["content"] == "file:abc "
            raw.say(type="message", parts=[part], session_id="another")
            assert (await raw.end())["error"]["code"] == "INVALID_MESSAGE"
        async with raw_at(network, headers=header("bob")) as raw:
            raw.say(type="message", parts=[part], session_id=session)
            assert (await raw.end())["error"]["code"] == "INVALID_MESSAGE"

    told(main, tmp_path, security)
