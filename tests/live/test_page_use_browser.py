"""Talking to agents from the page of a node, in a real browser: forms, streams, chats, restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
import trio
from msgspec import Struct

from lmos_actors import (
    ActionFailed,
    Agent,
    ChildSpec,
    Event,
    Progress,
    Property,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.persistence import MemoryStore
from lmos_actors.security import Access, Bearer, Security
from tests.chromium import Page, browser as browser, of_one_server, opened
from tests.facades.lives import Mortal

if TYPE_CHECKING:
    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<script>window.bad=1</script> <img src=x onerror=bad=1> [a](javascript:bad=1) **b**"
SAFE = "window.bad === undefined && !document.querySelector('#app script, #app img, #app a')"


class Place(Struct):
    """Where it is."""

    city: str
    height: float = 0.0


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")
    asked: Property[int] = prop(default=0, read_only=True)
    changed: Event[str] = event()

    @action
    def forecast(
        self, city: str, days: int = 3, kind: Literal["short", "long"] = "short", place: Place | None = None
    ) -> dict[str, Any]:
        """Forecast the weather of a city."""
        if city == "Atlantis":
            raise ActionFailed({"code": "UNKNOWN_CITY", "message": HOSTILE, "nearest": "Athens"})
        self.asked += 1
        self.changed.emit(city)
        return {"city": city, "days": days, "kind": kind, "height": place and place.height}

    @action
    async def count(self) -> AsyncGenerator[int]:
        """Count, without end."""
        number = 0
        while True:
            yield number
            number += 1
            await trio.sleep(0.01)

    @action
    async def climb(self, progress: Progress[str], wait: bool) -> str:
        """Say how far it is; with `wait`, without end."""
        progress.report("half the way")
        await trio.sleep(float("inf") if wait else 1.5)
        return "at the top"

    @action
    async def total(self, rows: AsyncIterator[int], factor: int = 1) -> int:
        """Sum the rows."""
        return factor * sum([row async for row in rows])


async def look_up(city: str) -> str:
    """Look a city up."""
    return f"{city} {HOSTILE}"


class Parrot(ChatAgent):
    """Repeats, when it may."""

    resumes = True
    gate: ClassVar[trio.Event]

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        await turn.use(look_up, city="Bonn")
        yield "I say: "
        if "wait" in turn.text:
            await Parrot.gate.wait()
        yield f"{turn.text} {HOSTILE}"


TREE = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("parrot", Parrot)])


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser) as tab:
        yield tab


def one(name: str, selector: str = "") -> str:
    return f"document.querySelector('[data-action={name}] {selector}')"


async def opened_form(page: Page, node: Node, name: str) -> None:
    assert node.page_url is not None
    await page.visit(node.page_url + "#view=tree&agent=weather")
    await page.until("document.querySelector('.usepart:not([hidden])') !== null")
    await page.run("document.querySelector('.use').open = true")
    await page.until(f"{one(name)} !== null")
    await page.run(f"{one(name)}.open = true")


async def fill(page: Page, name: str, field: int, text: str) -> None:
    await page.run(
        f"(() => {{ const e = document.querySelector('[data-action={name}] .form-fields')"
        f".querySelectorAll('input, textarea, select')[{field}]; e.value = {json.dumps(text)};"
        " for (const kind of ['input', 'change'])"
        " e.dispatchEvent(new Event(kind, {bubbles: true})); })()"
    )


async def invoked(page: Page, name: str, said: str) -> str:
    """Invoke an action, wait for a text, and return all of its form."""
    await page.run(f"{one(name, 'form')}.requestSubmit()")
    await page.until(f"{one(name, '[role=status]')}.textContent.includes({json.dumps(said)})")
    return await page.run(f"{one(name, '.answer')}.textContent")


async def elsewhere(page: Page, name: str) -> list[str]:
    """Return an invocation as curl and as Python."""
    await page.run(f"{one(name, 'form > .elsewhere')}.open = true")
    texts = f"[...document.querySelectorAll('[data-action={name}] form > .elsewhere pre')]"
    texts += ".map((e) => e.textContent)"
    return await page.until(f"{texts}.length === 2 && {texts}")


async def printed(python: str) -> list[Any]:
    """Run a program as people copy it; return what it prints."""
    found: list[Any] = []
    names: dict[str, Any] = {"print": found.append}
    exec(python.replace("trio.run(main)", ""), names)
    await names["main"]()
    return found


async def test_a_form_for_an_action(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await opened_form(page, node, "forecast")
        await invoked(page, "forecast", "Answered")  # an empty text is a text
        await fill(page, "forecast", 0, "Köln's")
        await fill(page, "forecast", 1, "x")
        await invoked(page, "forecast", "days: this is no number")
        await fill(page, "forecast", 1, "2")
        await fill(page, "forecast", 2, '"long"')
        await fill(page, "forecast", 3, '{"height": 3}')
        await invoked(page, "forecast", "place: city is missing")
        assert await node.find(Weather, "weather").read(Weather.asked) == 1
        await fill(page, "forecast", 3, '{"city": "x", "height": 3.5}')
        answer = await invoked(page, "forecast", "Answered")
        assert json.loads(answer) == {"city": "Köln's", "days": 2, "kind": "long", "height": 3.5}
        await page.until("document.querySelector('.items').textContent.includes('Köln')")  # the event
        await page.until("document.querySelectorAll('.prop .value')[1].textContent === '2'")  # the property

        curl, python = await elsewhere(page, "forecast")
        done = await trio.run_process(["sh", "-c", curl.replace("curl", "curl -s", 1)], capture_stdout=True)
        assert json.loads(done.stdout) == json.loads(answer)
        assert await printed(python) == [json.loads(answer)]

        await page.run("[...document.querySelectorAll('.prop details')].forEach((e) => { e.open = true; })")
        units = "document.querySelector('.prop textarea')"
        await page.run(f"{units}.value = 'kelvin'; {units}.form.requestSubmit()")
        await page.until("document.querySelector('.prop .value').textContent === '\"kelvin\"'")
        await page.run(
            f"{units}.value = 'it\\'s hot'; {units}.dispatchEvent(new Event('input', {{bubbles: true}}))"
        )
        reads, writes = await page.run(
            "[...document.querySelectorAll('.prop')[0].querySelectorAll('.elsewhere')]"
            ".map((e) => [...e.querySelectorAll('pre')].map((e) => e.textContent))"
        )
        await trio.run_process(["sh", "-c", writes[0].replace("curl", "curl -s", 1)])
        assert await printed(reads[1]) == ["it's hot"]
        await printed(writes[1].replace("hot", "cold"))
        assert await node.find(Weather, "weather").read(Weather.units) == "it's cold"

        await fill(page, "forecast", 0, "Atlantis")
        assert "Athens" in await invoked(page, "forecast", "UNKNOWN_CITY: <script>")
        assert await page.run(SAFE)
        page.problems[:] = [each for each in page.problems if "status of 409" not in each]


async def test_many_windows_of_one_person(browser: str, page: Page) -> None:
    """A browser has six connections for requests to a node, of all its windows."""
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node, AsyncExitStack() as stack:
        windows = [page]
        windows += [await stack.enter_async_context(opened(browser, beside=page)) for _ in range(4)]
        for window in windows:
            await opened_form(window, node, "forecast")
            await fill(window, "forecast", 0, "Rome")
        for count, window in enumerate(windows, 1):
            await invoked(window, "forecast", "Answered")
            for each in windows:  # the property and the event, in all of them
                await each.until(f"document.querySelectorAll('.prop .value')[1].textContent === '{count}'")
                await each.until(f"document.querySelectorAll('.use > div > .items li').length === {count}")
        assert all(window.problems == [] for window in windows)


async def test_events_go_on_after_a_restart_of_the_agent(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0", allow_operations=True) as node:
        await opened_form(page, node, "forecast")
        await fill(page, "forecast", 0, "Rome")
        await invoked(page, "forecast", "Answered")
        await page.until("document.querySelectorAll('.prop .value')[1].textContent === '1'")
        await page.run("document.querySelector('[data-what=restart]').click()")
        await page.run("document.querySelector('dialog .danger').click()")
        await page.until("document.querySelectorAll('.prop .value')[1].textContent === '0'")
        items = "[...document.querySelectorAll('.use > div > .items li')].map((e) => e.textContent)"
        await page.until(f"{items}.length === 2 && {items}[0].includes('missed')")
        await invoked(page, "forecast", "Answered")
        await page.until(f"{items}.length === 3 && {items}[0].includes('Rome')")


async def test_streams_progress_and_cancelling(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        weather = node.find(Weather, "weather")
        await opened_form(page, node, "count")
        await invoked(page, "count", "items so far")
        await page.until(f"{one('count')}.querySelectorAll('.items li').length > 20")
        await page.run(f"{one('count', 'form [type=button]')}.click()")
        await page.until(f"{one('count', '[role=status]')}.textContent.startsWith('Cancelled')")
        await page.run(f"{one('climb')}.open = true")
        await fill(page, "climb", 0, "false")
        await invoked(page, "climb", "half the way")
        assert "at the top" in await invoked(page, "climb", "Answered")
        await fill(page, "climb", 0, "true")
        await invoked(page, "climb", "half the way")
        await page.run(f"{one('climb', 'form [type=button]')}.click()")
        await page.until(f"{one('climb', '[role=status]')}.textContent.startsWith('Cancelled')")
        await page.run(f"{one('climb', '.tools label input')}.value = '0.1'")
        await invoked(page, "climb", "no answer within 0.1 s")
        await fill(page, "total", 0, "2")
        await page.run(f"{one('total', 'textarea.json')}.value = '1\\n2\\nx'")
        await invoked(page, "total", "line 3 of rows is not JSON")
        await page.run(f"{one('total', 'textarea.json')}.value = '1\\n2\\n'")
        assert await invoked(page, "total", "Answered") == "6"
        curl, python = await elsewhere(page, "total")
        assert await printed(python) == [6]
        done = await trio.run_process(["sh", "-c", curl.replace("curl", "curl -s", 1)], capture_stdout=True)
        assert done.stdout == b"6"
        while weather.statistics().running:  # noqa: ASYNC110 -- those that were cancelled end in their own time
            await trio.sleep(0.01)
        page.problems[:] = [each for each in page.problems if "status of 503" not in each]


async def test_only_what_the_rights_of_the_viewer_allow(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S27_ALICE", "secret-of-alice")
    security = Security(
        schemes=(Bearer({"alice": "env:S27_ALICE"}),),
        access={
            "parrot": Access(inspect=("alice",), read=(), invoke=(), write=(), subscribe=()),
            "*": Access(inspect=("alice",), read=("alice",), invoke=(), write=(), subscribe=()),
        },
    )
    async with open_node(TREE, listen="ws://127.0.0.1:0", security=security) as node:
        assert node.page_url is not None
        await page.visit(node.page_url, "html[data-ready=login]")
        await page.run("document.querySelector('#login-token').focus()")
        await page.call("Input.insertText", text="secret-of-alice")
        await page.key("Enter")
        await page.until("document.documentElement.dataset.ready === 'yes'")
        await page.run("location.hash = '#view=tree&agent=weather'")
        await page.until("document.querySelector('.usepart:not([hidden])') !== null")
        await page.run("document.querySelector('.use').open = true")
        await page.until("document.querySelectorAll('.prop').length === 2")
        assert await page.run("document.querySelectorAll('.use .action, .use form').length") == 0
        await page.run("location.hash = '#view=chats&agent=parrot'")
        await page.until("document.querySelector('.chatmain').textContent.includes('no chat agent')")
        assert await page.run("document.querySelector('.usepart').hidden")


async def say(page: Page, text: str) -> None:
    await page.until("document.querySelector('.composer .main').disabled === false")
    await page.run(f"document.querySelector('.composer textarea').value = {json.dumps(text)}")
    await page.run("document.querySelector('.composer').requestSubmit()")


async def press(page: Page, label: str) -> None:
    buttons = "[...document.querySelectorAll('.chatview button')]"
    await page.run(f"{buttons}.find((e) => e.textContent === {json.dumps(label)}).click()")


BUBBLES = "[...document.querySelectorAll('.bubble .words')].map((e) => e.textContent)"


async def test_a_chat(page: Page) -> None:
    Parrot.gate = trio.Event()
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        assert node.page_url is not None
        await page.visit(node.page_url + "#view=chats")
        await page.until("document.querySelector('.chatside select').value === 'parrot'")
        await say(page, f"wait {HOSTILE}")
        await page.until(f"{BUBBLES}[1] === 'I say: '")  # while the turn goes on
        await page.until("document.querySelector('.tool .state').textContent === 'done'")
        assert HOSTILE in await page.run("document.querySelector('.tool').textContent")
        await press(page, "Cancel")
        await page.until(
            "document.querySelector('.chatmain').textContent.includes('nothing of this turn is kept')"
        )
        assert await page.run("document.querySelector('.composer textarea').value") == f"wait {HOSTILE}"
        await press(page, "New conversation")
        await say(page, HOSTILE)
        await page.until(f"{BUBBLES}[1] === {json.dumps(f'I say: {HOSTILE} {HOSTILE}')}")
        await page.until("document.querySelector('.sessionlist [aria-current]') !== null")
        await page.call("Page.reload")
        await page.until(f"document.querySelector('html[data-ready]') && {BUBBLES}.length === 2")
        assert await page.run(SAFE)
        await page.run("document.querySelector('.sessionlist [aria-current] .copy').click()")
        await page.run("document.querySelector('.sessionlist [aria-current] .copy').click()")
        await page.until("document.querySelector('.sessionlist [aria-current]') === null")
        assert await page.run(BUBBLES) == []


async def test_a_turn_survives_a_restart_of_the_node(page: Page) -> None:
    store, Parrot.gate = Mortal(MemoryStore()), trio.Event()
    async with open_node(TREE, listen="ws://127.0.0.1:0", store=store) as node:
        assert node.page_url is not None
        url, port = node.page_url, node.urls[0].rpartition(":")[2]
        await page.visit(url + "#view=chats")
        await page.until("document.querySelector('.chatside select').value === 'parrot'")
        await say(page, "wait for me")
        await page.until(f"{BUBBLES}[1] === 'I say: '")
        store.is_dead = True
        node.force_stop()
    store.is_dead = False
    await page.until("document.querySelector('.chatmain').textContent.includes('was cut off')")
    async with open_node(TREE, listen=f"ws://127.0.0.1:{port}", store=store):
        await page.until("document.documentElement.dataset.link === 'open'")
        Parrot.gate.set()
        await page.until(f"{BUBBLES}[1] === {json.dumps(f'I say: wait for me {HOSTILE}')}")
        await page.until("document.querySelector('.composer .main').disabled === false")
        await say(page, "and again")
        await page.until(f"{BUBBLES}[3] === {json.dumps(f'I say: and again {HOSTILE}')}")
