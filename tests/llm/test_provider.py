"""What goes wrong with providers: refusals, cuts, silence, nonsense, keys, outages, callers that leave."""

from __future__ import annotations

import gzip
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from lmos_actors import ActionFailed, DeadlineExceeded, open_node
from lmos_actors.llm import Model
from tests.llm.asking import AFTER_HELLO, END, HI, PROVIDERS, SECRET, items, model_of, shown, start
from tests.llm.provider_server import Reply, Tool, anthropic_events, open_provider, openai_events, refused

if TYPE_CHECKING:
    from pathlib import Path

BUSY = Reply(status=429, retry_after="0.01")
FAULTS = [
    pytest.param([BUSY], "Hello there|stop", 2, id="429, then an answer"),
    pytest.param([BUSY] * 3, "|MODEL_BUSY", 3, id="429 to the end"),
    pytest.param([Reply(status=500, retry_after="0")], "Hello there|stop", 2, id="500, then an answer"),
    pytest.param([Reply(status=503, retry_after="0")] * 3, "|MODEL_UNAVAILABLE", 3, id="503 to the end"),
    pytest.param([Reply(status=400)], "|MODEL_REQUEST_REFUSED", 1, id="400"),
    pytest.param([Reply(status=404)], "|MODEL_REQUEST_REFUSED", 1, id="404"),
    pytest.param([Reply(status=413)], "|MODEL_REQUEST_REFUSED", 1, id="413"),
    pytest.param([Reply(status=401)], "|MODEL_KEY_REFUSED", 1, id="401"),
    pytest.param([Reply(status=403)], "|MODEL_KEY_REFUSED", 1, id="403"),
    pytest.param([Reply(fault="cut")], "Hello there|stop", 2, id="cut before it began"),
    pytest.param([Reply(fault="no end", after=6)], "Hello there|MODEL_CUT", 1, id="no end"),
    pytest.param([Reply(fault="no end", after=1)], "Hello there|stop", 2, id="no end, before it began"),
    pytest.param([Reply(status=307)], "|MODEL_REQUEST_REFUSED", 1, id="307"),
    pytest.param([Reply(fault="no end")], "|MODEL_MALFORMED", 1, id="nothing"),
    pytest.param([Reply(fault="malformed")], "|MODEL_MALFORMED", 1, id="malformed from the start"),
    pytest.param([Reply(fault="not an event stream")], "|MODEL_MALFORMED", 1, id="a page"),
]


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("replies", "answer", "asked"), FAULTS)
async def test_faults(provider: str, replies: list[Reply], answer: str, asked: int) -> None:
    if provider == "openai":  # whose second to last event has the end in it
        replies = [Reply(**{**vars(r), "after": 3}) if r.after == 6 else r for r in replies]
    async with model_of(provider) as (server, model):
        server.reply(*replies)
        assert shown(await items(model)) == answer
        assert len(server.requests) == asked
        assert (await items(model))[-1] == END


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("fault", "code"), [("cut", "MODEL_CUT"), ("error event", "MODEL_CUT"), ("malformed", "MODEL_MALFORMED")]
)
async def test_nothing_is_asked_twice_once_an_item_has_come(provider: str, fault: Any, code: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(fault=fault, after=AFTER_HELLO[provider]))
        assert shown(await items(model)) == f"Hello|{code}"
        assert len(server.requests) == 1
        assert (await items(model))[-1] == END


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_silence_is_bounded(provider: str) -> None:
    async with model_of(provider, idle_seconds=0.05) as (server, model):
        server.reply(Reply(fault="silent"), Reply(fault="silent", after=AFTER_HELLO[provider]))
        before, after = (await items(model))[-1], (await items(model))[-1]
        assert [before.code, after.code] == ["MODEL_UNAVAILABLE", "MODEL_CUT"]
        assert "was silent for 0.05 s" in before.detail
        await server.client_left(2)
        assert (await items(model))[-1] == END
        assert len(server.requests) == 3


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_trickle_is_bounded(provider: str) -> None:
    async with model_of(provider, idle_seconds=60, answer_seconds=0.2) as (server, model):
        server.reply(
            Reply(raw=(b": processing\n\n",) * 10_000, wait=0.01), Reply(("drip",) * 10_000, wait=0.01)
        )
        before, *_, after = [*await items(model), *await items(model)]
        assert [before.code, after.code] == ["MODEL_UNAVAILABLE", "MODEL_CUT"]
        assert "did not end its answer in 0.2 s" in after.detail
        await server.client_left(2)
        assert (await items(model))[-1] == END
        assert len(server.requests) == 3


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_connection_that_stays_open_after_the_answer_is_not_waited_for(provider: str) -> None:
    count = len(list((openai_events if provider == "openai" else anthropic_events)(Reply())))
    async with model_of(provider, idle_seconds=60) as (server, model):
        server.reply(Reply(fault="silent", after=count))
        with trio.fail_after(10):
            assert (await items(model))[-1] == END
            await server.client_left()
        assert (await items(model))[-1] == END
        assert (await items(model))[-1] == END
        assert server.connections == 2, "one that was read to its end is used again"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_without_an_end_is_cut_off(provider: str) -> None:
    async with model_of(provider, max_tokens=1) as (server, model):
        server.reply(Reply(fault="endless"))
        last = (await items(model))[-1]
        assert last.code == "MODEL_MALFORMED"
        assert "without an end" in last.detail
        await server.client_left()
        assert (await items(model))[-1] == END


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_so_many_tools_are_too_many(provider: str) -> None:
    async with model_of(provider) as (server, model):
        for number, end in ((128, "tools"), (129, "MODEL_MALFORMED")):
            server.reply(Reply(tools=[Tool("look")] * number))
            assert shown(await items(model)) == f"Hello there|{end}"


# ---- waits


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_attempt_waits_past_the_deadline_of_the_caller(provider: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(status=429, retry_after="30"))
        began = trio.current_time()
        (failed,) = await items(model.within(20))
        assert (failed.code, failed.data) == ("MODEL_BUSY", {"retry_after": 30.0})
        assert trio.current_time() - began < 5
        assert len(server.requests) == 1
        # the provider has asked all to wait, so the next one does not even ask
        (failed,) = await items(model.within(20))
        assert failed.code == "MODEL_BUSY"
        assert 20 < failed.data["retry_after"] <= 30
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("600", 600, 600),
        ("Wed, 01 Jan 2125 00:00:00 GMT", 1e9, 1e10),
        ("Sun, 01 Jan 2006 00:00:00 GMT", 0, 0),
    ],
)
async def test_long_waits_are_left_to_the_caller(header: str, least: float, most: float) -> None:
    async with model_of("openai", retries=0) as (server, model):
        server.reply(Reply(status=429, retry_after=header))
        (failed,) = await items(model)
        assert failed.code == "MODEL_BUSY"
        assert least <= failed.data["retry_after"] <= most


# ---- outages


@pytest.mark.slow
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_requests_fail_at_once_while_the_provider_is_down(provider: str) -> None:
    async with open_node() as node:
        async with open_provider() as server:
            model = await start(node, server, provider)
            assert (await items(model))[-1] == END
            port = server.port
        first = (await items(model))[-1]  # the connection that was kept is gone: this one is tried again
        assert first.code == "MODEL_UNAVAILABLE"
        assert "127.0.0.1 (for test) cannot be reached" in first.detail
        began = trio.current_time()
        failed = [(await items(model))[-1] for _ in range(50)]
        assert {each.code for each in failed} == {"MODEL_UNAVAILABLE"}
        at_once = [each.data["retry_after"] for each in failed if "retry_after" in each.data]
        assert len(at_once) >= 45, "all others tried to reach it, one a second"
        assert all(0 <= wait <= 1 for wait in at_once)
        assert trio.current_time() - began < 1.5
        async with open_provider(port=port) as server:
            if (last := (await items(model))[-1]) != END:
                await trio.sleep(last.data["retry_after"])
                assert (await items(model))[-1] == END
            assert len(server.requests) == 1


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, and forget it."""
    found = [one.getMessage() for one in caplog.records if one.name == "lmos_actors"]
    caplog.clear()
    return found


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_outage_is_logged_once_and_so_is_its_end(
    provider: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KEY_OF_TESTS", SECRET)
    down = Reply(status=503, error=f"down\nfor {SECRET}")
    async with model_of(provider, key="env:KEY_OF_TESTS", retries=1) as (server, model):
        server.reply(down, Reply(), *[down] * 6)
        assert (await items(model))[-1] == END
        assert logged(caplog) == [], "it has answered the second time"
        for _ in range(3):
            await items(model)
        assert logged(caplog) == [
            "MODEL_UNAVAILABLE: 127.0.0.1 (for test) answered 503: down for ***",
        ]
        server.reply(Reply(status=401), Reply(status=400))
        await items(model)
        assert logged(caplog) == [
            "MODEL_KEY_REFUSED: 127.0.0.1 (for test) refuses the key (env:KEY_OF_TESTS), with status 401 "
            "(2 more requests have failed)"
        ]
        await items(model)
        assert logged(caplog) == [], "a request that is wrong is no outage"
        assert (await items(model))[-1] == END
        assert logged(caplog) == ["127.0.0.1 (for test) answers again"]


@pytest.mark.usefixtures("no_waits")
async def test_a_provider_that_fails_now_and_then_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with model_of("openai", retries=0) as (server, model):
        for _ in range(5):
            server.reply(Reply(status=500), Reply())
            await items(model)
            await items(model)
        assert [line.partition(" ")[0] for line in logged(caplog)] == ["MODEL_UNAVAILABLE:", "127.0.0.1"]
        now = trio.current_time()
        monkeypatch.setattr("lmos_actors.llm._provider.trio.current_time", lambda: now + 61)
        server.reply(Reply(status=500))
        await items(model)
        (line,) = logged(caplog)
        assert line.endswith("(4 more requests have failed)")


async def test_a_key_that_is_missing_is_logged_with_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    async with model_of("openai", key="env:NO_SUCH_KEY") as (_, model):
        await items(model)
        await items(model)
    (line,) = logged(caplog)
    assert line.startswith(
        "MODEL_KEY_REFUSED: 127.0.0.1 (for test): there is no key for the provider: env:NO"
    )


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_provider_that_is_away_for_a_moment_is_tried_again(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.llm._provider.FIRST_WAIT", 0.2)
    async with open_node() as node:
        async with open_provider() as server:
            model = await start(node, server, provider)
            port = server.port
        async with trio.open_nursery() as nursery:
            got: list[Any] = []

            async def ask() -> None:
                got.extend(await items(model))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.02)  # it waits before its next attempt
            async with open_provider(port=port) as server:
                await server.until(lambda: len(server.requests) == 1)
                await server.until(lambda: server.answering == 0)
        assert got[-1] == END


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_over_tls_too_and_a_certificate_that_is_not_trusted_is_named(
    provider: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with model_of(provider, tls) as (server, model):
        assert (await items(model))[-1] == END
        server.reply(Reply(fault="silent", after=AFTER_HELLO[provider]))
        async with model.stream(Model.generate, HI) as answer:
            async for _ in answer:
                break
        await server.client_left()
        assert (await items(model))[-1] == END
        monkeypatch.delenv("SSL_CERT_FILE")
        async with open_node() as node:
            stranger = await start(node, server, provider, retries=0)
            (failed,) = await items(stranger)
    assert failed.code == "MODEL_UNAVAILABLE"
    assert "cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED]" in failed.detail


# ---- callers that leave


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_caller_that_leaves_ends_the_request_at_the_provider(provider: str) -> None:
    async with model_of(provider) as (server, model):
        for times in (1, 2):
            server.reply(Reply(fault="silent", after=AFTER_HELLO[provider]))
            async with model.stream(Model.generate, HI) as answer:
                async for item in answer:
                    assert item.text == "Hello"
                    break
            await server.client_left(times)
        server.reply(Reply(fault="silent"))
        with pytest.raises(DeadlineExceeded):
            await items(model.within(0.05))
        await server.client_left(3)
        await server.until(lambda: server.open_connections == 0)
        assert (await items(model))[-1] == END


@pytest.mark.slow  # its lines: the test above, test_client.py
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_cancel_at_any_point_leaves_nothing_running(provider: str) -> None:
    async with model_of(provider) as (server, model):
        assert (await items(model))[-1] == END
        resting = trio.lowlevel.current_statistics().tasks_living
        ended = 0
        for steps in range(0, 90, 3):
            server.default = Reply(text=("a",) * 5, bytes_at_a_time=40)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_after, steps, scope)
                    await items(model)
                    ended += 1
                    nursery.cancel_scope.cancel()
            await server.until(lambda: server.answering == 0)
            server.default = Reply()
            assert (await items(model))[-1] == END
        assert 0 < ended < 30, "some were cancelled, and some were not"
        assert server.open_connections <= 1
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living <= resting + 1  # and that of a new connection


async def _cancel_after(steps: int, scope: trio.CancelScope) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


# ---- many


@pytest.mark.slow  # its lines: the tests above
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("number", [100, pytest.param(1_000, marks=pytest.mark.matrix)])
async def test_many_requests_share_one_client(provider: str, number: int) -> None:
    async with model_of(provider, concurrency=20) as (server, model):
        results: list[Any] = []

        async def ask() -> None:
            results.append((await items(model))[-1])

        async with trio.open_nursery() as nursery:
            for _ in range(number):
                nursery.start_soon(ask)
        assert results == [END] * number
        assert server.most_at_once <= 20
        assert server.connections <= 20


async def test_nothing_of_an_sdk_is_held_by_a_failure() -> None:
    async with model_of("anthropic") as (server, model):
        server.reply(Reply(status=400))
        failed = (await items(model))[-1]
        assert isinstance(failed, ActionFailed)
        seen: BaseException | None = failed
        while seen is not None:
            assert not type(seen).__module__.startswith(("anthropic", "httpx2"))
            seen = seen.__cause__ or seen.__context__


ODD_REFUSALS = [
    pytest.param(
        refused(500, gzip.compress(b'{"error": {"message": "unpacked"}}'), "content-encoding: gzip"),
        "MODEL_UNAVAILABLE",
        id="packed",  # a megabyte of it may be a gigabyte
    ),
    *(
        pytest.param(
            refused(500, b"61", f"content-type: text/plain; charset={name}"), "MODEL_UNAVAILABLE", id=name
        )
        for name in ("hex", "rot13", "zlib", "idna")  # codecs of Python, but none of text
    ),
    pytest.param(
        refused(429, b"{}", "retry-after: Mon, 01 Jan 2024 00:00:00 +99999999999999999999"),
        "MODEL_BUSY",
        id="a time zone far away",
    ),
    pytest.param(refused(500, b"x" * (2 << 20)), "MODEL_MALFORMED", id="a long page"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("reply", "code"), ODD_REFUSALS)
async def test_odd_refusals_end_a_request_and_not_the_model(provider: str, reply: Reply, code: str) -> None:
    async with model_of(provider, retries=0) as (server, model):
        server.reply(reply)
        (failed,) = await items(model)
        assert isinstance(failed, ActionFailed), failed
        assert failed.code == code
        assert "unpacked" not in str(failed)
        assert (await items(model))[-1] == END


ODD_ARGUMENTS = {
    "nested": '{"a": ' + "[" * 63 + "]" * 63 + "}",
    "nested when sent back": '{"a": ' + "[" * 60 + "]" * 60 + "}",
    "many digits": '{"a": ' + "9" * 2000 + "}",
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("arguments", ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
async def test_arguments_that_cannot_be_sent_on_are_unreadable(provider: str, arguments: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(text=(), tools=[Tool("search", [arguments])]))
        asked = (await items(model))[0]
        assert (asked.arguments, asked.unreadable) == ({}, arguments)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_counts_that_are_none_are_bounded(provider: str) -> None:
    async with model_of(provider) as (server, model):
        server.reply(Reply(input_tokens=10**2000, output_tokens=-1))
        usage = (await items(model))[-1].usage
        assert 12 < usage.input_tokens < 2**53
        assert usage.output_tokens in (0, 1)
