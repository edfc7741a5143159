"""The proxy of `record` between peers that do what they like: bytes, secrets, endless frames, cut lines."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import struct
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.commands import started
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.commands import RunningCommand

PATIENCE = 60.0
KEY = base64.b64encode(bytes(16)).decode()
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%b\r\n"
MEBIBYTE = 1 << 20


# --- a server of bytes, and clients


@contextmanager
def serving(serve: Callable[[socket.socket], None], scheme: str = "ws") -> Iterator[str]:
    """Serve each connection by a function, in a thread of its own; yield the address.

    Connections that come and say nothing, as the recorder's first one does, are none of its.
    """
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def host(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(PATIENCE)
            try:
                if connection.recv(1, socket.MSG_PEEK):
                    serve(connection)
            except ConnectionError:
                pass
            except BaseException as error:
                failures.append(error)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=host, args=(connection,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join(PATIENCE)
            for thread in threads:
                thread.join(PATIENCE)
    assert failures == []


def head_of(connection: socket.socket) -> bytes:
    """Return the head of a request or of an answer, and nothing behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            raise ConnectionError("ended within the head")
        head += byte
    return head


def rest_of(connection: socket.socket, size: int | None = None) -> bytes:
    """Return what comes until the end, or so many bytes."""
    found = bytearray()
    while size is None or len(found) < size:
        data = connection.recv(MEBIBYTE if size is None else min(MEBIBYTE, size - len(found)))
        if not data:
            break
        found += data
    return bytes(found)


@contextmanager
def recording(folder: Path, to: str, *words: str) -> Iterator[tuple[RunningCommand, tuple[str, int]]]:
    """Record to `log.jsonl`, and yield the process and the address for clients."""
    with started(("record", "--to", to, "--out", "log.jsonl", *words), folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"connect to \w+://([0-9.]+):([0-9]+)", line)
        assert found is not None, process.stderr.read() if process.stderr else ""
        yield process, (found[1], int(found[2]))


def ended(process: RunningCommand) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(PATIENCE)
    return process.wait(), out, err


def connected(place: tuple[str, int], target: str = "/arc", *headers: str) -> socket.socket:
    """Ask for a WebSocket, and return the connection once that has been answered."""
    connection = socket.create_connection(place, PATIENCE)
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {place[0]}:{place[1]}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {KEY}",
        *headers,
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    return connection


def frame(payload: bytes, opcode: int = 1, *, masked: bool = True, last: bool = True) -> bytes:
    size = len(payload)
    first = opcode | (0x80 if last else 0)
    length = size if size < 126 else 126 if size < 1 << 16 else 127
    form = {126: ">BBH", 127: ">BBQ"}.get(length, ">BB")
    values = (first, length | (0x80 if masked else 0), *((size,) if length > 125 else ()))
    return struct.pack(form, *values) + (bytes(4) if masked else b"") + payload


def log(folder: Path) -> str:
    return (folder / "log.jsonl").read_text(encoding="utf-8")


def log_of_ended(folder: Path) -> str:
    """Return the log once it is whole: every connection of which it speaks has ended, and so has the line."""
    begun = time.monotonic()
    while True:
        text = log(folder)
        counts = {kind: text.count(f'"kind":"{kind}"') for kind in ("connected", "closed")}
        if text.endswith("\n") and counts["connected"] == counts["closed"]:
            return text
        assert time.monotonic() < begun + PATIENCE, counts


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log(folder).splitlines()]
    return [data for data in found if data.get("kind") == kind]


def echo(connection: socket.socket) -> None:
    """Agree on a WebSocket, and send the frames of the client back, with no mask."""
    head_of(connection)
    connection.sendall(AGREED % b"")
    while head := rest_of(connection, 2):
        size = head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(rest_of(connection, 2 if size == 126 else 8), "big")
        rest_of(connection, 4)
        connection.sendall(frame(rest_of(connection, size), head[0] & 0x0F, masked=False))
        if head[0] & 0x0F == 8:
            return


# --- bytes


def test_every_byte_goes_through_in_both_directions(tmp_path: Path) -> None:
    """Frames in pieces, pings, reserved bits, then what is no frame at all: none of it is touched."""
    ours = [
        frame(b'{"to":["*"],"payload":1}'),
        frame(b'{"to":["*"],', last=False) + frame(b"ping", 9) + frame(b'"payload":2}', 0),
        frame(b"\xff\xfe", 2),
        frame(b"pong", 10),
        frame(b"x" * 70_000),
        b"\xf1\x85" + os.urandom(400_000),
    ]
    theirs = os.urandom(300_000)
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        head = head_of(connection)
        assert b"sec-websocket-extensions" not in head.lower()
        assert b"\r\naccept: none\r\n" in head.lower()
        connection.sendall(AGREED % b"Sec-WebSocket-Protocol: arc\r\n" + theirs[:1_000])
        seen.append(rest_of(connection, len(b"".join(ours))))
        connection.sendall(theirs[1_000:])

    with serving(serve) as url, recording(tmp_path, url) as (process, place):
        more = ("Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: arc", "Accept: none")
        with connected(place, "/arc", *more) as client:
            head = head_of(client)
            assert b"\r\nsec-websocket-protocol: arc\r\n" in head.lower()
            for piece in ours:
                client.sendall(piece)
            assert rest_of(client) == theirs
        code, out, _ = ended(process)
    assert seen == [b"".join(ours)]
    assert (code, "cut by the server" in out, "not understood" in out) == (3, True, True)
    assert [each["data"]["payload"] for each in records(tmp_path, "frame") if "data" in each] == [1, 2]


@pytest.mark.parametrize("code", [1000, 1012, 4001, 4029])
def test_closes_are_passed_on_and_written(tmp_path: Path, code: int) -> None:
    close = struct.pack(">H", code) + b"bye"
    with serving(echo) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        with connected(place) as client:
            head_of(client)
            client.sendall(frame(close, 8))
            assert rest_of(client) == frame(close, 8, masked=False)
        assert ended(process)[0] == 0
    (found,) = records(tmp_path, "closed")
    assert (found["by"], found["code"], found["reason"]) == ("client", code, "bye")


# --- secrets

TOKENS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=6, max_size=40)


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[tuple[Path, tuple[str, int]]]:
    with serving(echo) as url, recording(tmp_path, url, "--speaks", "relay") as (process, place):
        yield tmp_path, place
        ended(process)


WAYS: dict[str, Callable[[str], tuple[str, tuple[str, ...]]]] = {
    "bearer": lambda token: ("/arc", (f"Authorization: Bearer {token}",)),
    "basic": lambda token: (
        "/arc",
        (f"Authorization: Basic {base64.b64encode(f'bob:{token}'.encode()).decode()}",),
    ),
    "cookie": lambda token: ("/arc", (f"Cookie: a=b; session={token.replace(';', '')}",)),
    "query": lambda token: (f"/arc?token={quote(token, safe='')}", ()),
    "query as it is": lambda token: ("/arc?x=1&access_token=" + re.sub(r"[#&+%?]", "", token), ()),
    "key": lambda token: ("/arc", (f"X-API-Key: {token}",)),
}


@pytest.mark.parametrize("way", WAYS)
@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(word=TOKENS)
def test_a_credential_never_stands_in_the_file(
    recorder: tuple[Path, tuple[str, int]], way: str, word: str
) -> None:
    """In whatever way it was sent, and wherever it is said again, in either direction."""
    folder, place = recorder
    token = re.sub(r"[;#&+%?,\s]", "", word) + "Zq7"
    target, headers = WAYS[way](token)
    said = {"to": ["*"], "type": f"is {token}!", "payload": {"deep": [token], token: json.dumps([token])}}
    with connected(place, target, *headers) as client:
        head_of(client)
        for text in (json.dumps(said), f"no JSON, but {token}"):
            client.sendall(frame(text.encode()))
        client.sendall(frame(struct.pack(">H", 4000) + f"not {token}".encode(), 8))
        rest_of(client)
    written = log_of_ended(folder)
    lines = written.splitlines()
    assert '"type":"is ***!"' in written
    assert token not in written
    assert [text for line in lines for text in strings_in(json.loads(line)) if token in text] == []


def test_a_cookie_and_a_token_of_the_server_are_not_written(tmp_path: Path) -> None:
    def serve(connection: socket.socket) -> None:
        head = head_of(connection)
        if b"/register" in head:
            rest_of(connection, 2)
            body = b'{"agent_id":"me","token":"a-token-of-any-form"}'
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            return
        connection.sendall(AGREED % b"Set-Cookie: id=cookie-of-the-server; Path=/\r\n")
        connection.sendall(frame(b'{"from":"relay","type":"welcome","to":["me"]}', masked=False))
        said = (
            b'{"from":"you","to":["me"],"payload":"a-token-of-any-form cookie-of-the-server tok_0123456789"}'
        )
        connection.sendall(frame(said, masked=False))
        connection.sendall(frame(struct.pack(">H", 1000), 8, masked=False))

    with serving(serve) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        with socket.create_connection(place, PATIENCE) as client:
            client.sendall(b"POST /register HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
            assert b"200 OK" in head_of(client)
            assert b"a-token-of-any-form" in rest_of(client, 47)
        with connected(place) as client:
            assert b"id=cookie-of-the-server" in head_of(client)
            assert b"tok_0123456789" in rest_of(client)
        assert ended(process)[0] == 0
    (heard,) = [each for each in records(tmp_path, "sent") if each["agent"] == "me"]
    assert heard["input"] == "*** *** ***"


def test_credentials_are_not_passed_on_to_another_machine_without_tls(tmp_path: Path) -> None:
    """The other machine is this one, by an address of it that is not its loopback one."""
    host = outward_address()
    if host is None:
        pytest.skip("this machine has one address alone")
    heads: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heads.append(head_of(connection))
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    asked = b"GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abcdefgh\r\n\r\n"
    for words, status in ((), b"403"), (("--insecure",), b"204"):
        (tmp_path / "log.jsonl").unlink(missing_ok=True)
        with serving_at(host, serve) as url, recording(tmp_path, url, *words) as (process, place):
            with socket.create_connection(place, PATIENCE) as client:
                client.sendall(asked)
                assert status in head_of(client).splitlines()[0]
            ended(process)
    assert [b"Bearer abcdefgh" in head for head in heads] == [True]


def outward_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError:
            return None
        host = str(asking.getsockname()[0])
    return None if host.startswith("127.") else host


@contextmanager
def serving_at(host: str, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                if connection.recv(1, socket.MSG_PEEK):
                    serve(connection)

    with socket.create_server((host, 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


# --- peers that are hostile, or slow


def resident(process: RunningCommand) -> int:
    """Return how many bytes of memory a process has."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it reads /proc")
GROWTH = 32 * MEBIBYTE


@pytest.mark.slow
@needs_proc
def test_a_frame_without_end_is_passed_on_in_bounded_memory(tmp_path: Path) -> None:
    total = 96 * MEBIBYTE
    got: list[int] = []

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"")
        count = 0
        while count < total and (data := connection.recv(MEBIBYTE)):
            count += len(data)
        got.append(count)

    with serving(serve) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        before = resident(process)
        with connected(place) as client:
            head_of(client)
            head = struct.pack(">BBQ", 0x81, 0xFF, 1 << 62) + bytes(4)
            client.sendall(head)
            piece = b"a" * MEBIBYTE
            for _ in range(total // MEBIBYTE - 1):
                client.sendall(piece)
            client.sendall(piece[len(head) :])
            rest_of(client)
            assert resident(process) - before < GROWTH
        ended(process)
    assert got == [total]


@pytest.mark.slow
@needs_proc
def test_a_slow_reader_holds_its_sender_back(tmp_path: Path) -> None:
    total = 64 * MEBIBYTE
    read_now, filled = threading.Event(), threading.Event()
    got: list[int] = []

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"")
        assert read_now.wait(PATIENCE)
        got.append(len(rest_of(connection, total)))

    def send(client: socket.socket) -> None:
        sent = memoryview(frame(bytes(total - 14), 2))
        client.setblocking(False)
        while sent:
            try:
                sent = sent[client.send(sent) :]
            except BlockingIOError:
                filled.set()
                client.setblocking(True)

    with serving(serve) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        with connected(place) as client:
            head_of(client)
            before = resident(process)
            sending = threading.Thread(target=send, args=(client,))
            sending.start()
            assert filled.wait(PATIENCE)
            assert sending.is_alive()
            assert resident(process) - before < GROWTH
            read_now.set()
            sending.join(PATIENCE)
            rest_of(client)
        ended(process)
    assert got == [total]


def test_a_server_that_is_gone_in_the_middle(tmp_path: Path) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"" + frame(b'{"type":"welcome","from":"relay","to":["me"]}')[:20])

    with serving(serve) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        with connected(place) as client:
            head_of(client)
            assert len(rest_of(client)) == 20
        code, out, _ = ended(process)
    assert (code, "1 cut by the server" in out) == (3, True)
    (found,) = records(tmp_path, "closed")
    assert (found["by"], found["code"]) == ("server", None)


def test_a_client_that_is_gone_in_the_middle_is_no_failure(tmp_path: Path) -> None:
    left = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(AGREED % b"")
        rest_of(connection)
        left.set()

    with serving(serve) as url, recording(tmp_path, f"{url}/arc", "--once") as (process, place):
        with connected(place) as client:
            head_of(client)
            client.sendall(frame(b'{"to":["*"]')[:9])
        assert left.wait(PATIENCE)
        process.communicate(PATIENCE)
        assert process.wait() == 0
    (found,) = records(tmp_path, "closed")
    assert (found["by"], found["code"]) == ("client", None)


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_a_refusal_is_passed_on_with_its_reason(tmp_path: Path, status: int) -> None:
    body = b"not you"

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        head = b"HTTP/1.1 %d No\r\nRetry-After: 7\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        connection.sendall(head + body)

    with serving(serve) as url, recording(tmp_path, f"{url}/arc") as (process, place):
        with connected(place) as client:
            head = head_of(client)
            assert (b"%d No" % status in head, b"retry-after: 7" in head.lower()) == (True, True)
            assert rest_of(client, len(body)) == body
        code, out, err = ended(process)
    assert (code, "1 refused by the server" in out, str(status) in err) == (1, True, True)
    assert [each["status"] for each in records(tmp_path, "connected")] == [status]


def test_a_server_that_has_gone_away_is_502(tmp_path: Path) -> None:
    with ExitStack() as server:
        url = server.enter_context(serving(echo))
        with recording(tmp_path, f"{url}/arc") as (process, place):
            with connected(place) as client:
                head_of(client)
                client.sendall(frame(b"\x03\xe8", 8))
                rest_of(client)
            server.close()
            with connected(place) as client:
                assert b" 502 " in head_of(client).splitlines()[0]
                assert b"cannot connect" in rest_of(client)
            code, out, err = ended(process)
    assert (code, "1 not reached" in out, "cannot connect" in err) == (3, True, True)


NO_REQUESTS = [
    (b"\x16\x03\x01\x02\x00\x01", b"400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
    (b"GET / HTTP/1.1\r\nHost: pages.example\r\n\r\n", b"421"),
    (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000), b"421"),
    (b"GET / HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n", b"421"),
    (b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"400"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", b"431"),
]


@pytest.mark.parametrize(("asked", "status"), NO_REQUESTS, ids=lambda each: repr(each)[:30])
def test_what_is_no_request_for_it_is_refused(tmp_path: Path, asked: bytes, status: bytes) -> None:
    with serving(echo) as url, recording(tmp_path, url) as (process, place):
        with socket.create_connection(place, PATIENCE) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # so that all has to be read
            client.sendall(asked)
            client.shutdown(socket.SHUT_WR)
            assert head_of(client).split()[1] == status
        code, _, _ = ended(process)
    assert code == 0


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"", b"HTTP/1.1 200"], ids=repr)
def test_a_server_that_is_none_is_502(tmp_path: Path, answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(answer)

    with serving(serve) as url, recording(tmp_path, url) as (process, place):
        with connected(place, "/arc") as client:
            assert b" 502 " in head_of(client).splitlines()[0]
        with socket.create_connection(place, PATIENCE) as client:
            client.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 502 " in head_of(client).splitlines()[0]
        code, out, _ = ended(process)
    assert (code, "2 cut by the server" in out) == (3, True)


# --- requests over HTTP


@pytest.mark.slow
@needs_proc
def test_bodies_of_any_size_are_passed_on_in_bounded_memory(tmp_path: Path) -> None:
    size = 80 * MEBIBYTE

    def serve(connection: socket.socket) -> None:
        head = head_of(connection)
        assert b"Content-Length: %d" % size in head or b"content-length: %d" % size in head
        assert len(rest_of(connection, size)) == size
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MEBIBYTE):
            connection.sendall(bytes(MEBIBYTE))

    with serving(serve, "http") as url, recording(tmp_path, url) as (process, place):
        before = resident(process)
        with socket.create_connection(place, PATIENCE) as client:
            client.sendall(b"PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // MEBIBYTE):
                client.sendall(bytes(MEBIBYTE))
            head_of(client)
            assert len(rest_of(client, size)) == size
            assert resident(process) - before < GROWTH
        assert ended(process)[0] == 0


def test_several_requests_go_over_one_connection(tmp_path: Path) -> None:
    heads: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        heads.append(head_of(connection))
        port = heads[-1].partition(b"127.0.0.1:")[2].split()[0]
        connection.sendall(
            b"HTTP/1.1 201 Created\r\nLocation: http://127.0.0.1:%b/run/1\r\nContent-Length: 2\r\n\r\nok"
            % port
        )

    with serving(serve, "http") as url, recording(tmp_path, url) as (process, place):
        own = f"http://{place[0]}:{place[1]}"
        with socket.create_connection(place, PATIENCE) as client:
            for number in range(3):
                client.sendall(
                    f"GET /{number} HTTP/1.1\r\nHost: localhost\r\nOrigin: {own}\r\n"
                    "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nX-Yours: 1\r\n\r\n".encode()
                )
                assert f"{own}/run/1".encode() in head_of(client)
                assert rest_of(client, 2) == b"ok"
        assert ended(process)[0] == 0
    server = url.encode()
    for head in heads:
        low = head.lower()
        assert (b"origin: " + server in low, b"x-mine" in low, b"x-yours: 1" in low) == (True, False, True)
        assert b"\r\nhost: " + server.partition(b"//")[2] in low
    assert [each["target"] for each in records(tmp_path, "http")] == ["/0", "/1", "/2"]


def test_an_answer_that_is_cut_is_cut_for_the_client_too(tmp_path: Path) -> None:
    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")

    with serving(serve, "http") as url, recording(tmp_path, url) as (process, place):
        with socket.create_connection(place, PATIENCE) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head_of(client)
            assert rest_of(client) == b"0123456789"
        code, out, _ = ended(process)
    assert (code, "1 cut by the server" in out) == (3, True)


def test_a_stream_of_events_comes_as_it_is_sent_and_ends_with_its_reader(tmp_path: Path) -> None:
    left = threading.Event()

    def serve(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        if not connection.recv(1):
            left.set()

    with serving(serve, "http") as url, recording(tmp_path, url) as (process, place):
        with socket.create_connection(place, PATIENCE) as client:
            client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head_of(client)
            assert b"data: 1" in rest_of(client, 14)
        assert left.wait(PATIENCE)
        assert ended(process)[0] == 0
