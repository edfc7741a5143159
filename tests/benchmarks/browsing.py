"""`python -m tests.benchmarks.browsing [PART...]`: what a browser has of the page of a node, at what cost.

The node has 100,000 agents. Chromium, and what drives it, are in a process of their own.

    first     how long until a browser without anything kept shows the first rows: by the clock, and in
              processor time of the page
    session   somebody scrolls and searches, while the 1,000 agents that are seen first crash as fast as they
              are restarted; what the node loses is measured in its processor time, with nobody looking and
              with somebody in turns. The browser's figures are those of real events: the delay of one is the
              time until its handler runs, a gap is the time between two pictures that it could draw
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, suppress
from io import StringIO
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors import AgentDied, open_node
from lmos_actors.supervision import BulkSpec, ChildSpec
from tests.benchmarks.looking import Crasher, show
from tests.chromium import Page, chromium, opened, running

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from lmos_actors import Node, Ref
    from lmos_actors.supervision import Supervisor

SECONDS: Final = 20.0
"""Of one measurement."""

ROUNDS: Final = 3
AGENTS: Final = 100_000
CRASHERS: Final = 1_000
PAUSE: Final = 0.05
"""Seconds between two events."""

TURNS: Final = 20
"""Events between two searches."""

RECORDER: Final = """(() => {
  const found = window.recorded = {messages: [], taken: 0, looks: 0, rows: 0, delays: [], gaps: [], nodes: 0};
  window.WebSocket = class extends WebSocket {
    constructor(...options) {
      super(...options);
      this.addEventListener('message', ({data}) => {
        const said = JSON.parse(data);
        if (said.type !== 'changes') return;
        found.messages.push(data.length);
        for (const patch of Object.values(said.patches))
          found.rows = Math.max(found.rows, Object.values(patch.rows || {}).filter(Boolean).length);
      });
    }
    send(text) {
      const {type} = JSON.parse(text);
      if (type === 'taken') found.taken += 1;
      if (type === 'look') found.looks += 1;
      super.send(text);
    }
  };
  for (const kind of ['wheel', 'keydown'])
    addEventListener(kind, ({timeStamp}) => found.delays.push(performance.now() - timeStamp), true);
  let last = 0;
  const picture = (now) => {
    if (last) found.gaps.push(now - last);
    last = now;
    requestAnimationFrame(picture);
  };
  requestAnimationFrame(picture);
})()"""
"""What a page notes of itself: sizes of changes, what it sends, delays of events, gaps between pictures."""

FIRST_ROWS: Final = """(() => {
  const picture = (now) => {
    if (document.querySelectorAll('.gridbody .gridrow:not(.loading)').length > 1) window.rowsAt = now;
    else requestAnimationFrame(picture);
  };
  requestAnimationFrame(picture);
})()"""


async def session(page: Page, url: str, seconds: float, turns: int = TURNS) -> dict[str, Any]:
    """Scroll and search in the page of a node; return what it has noted, and the seconds that it took.

    It lasts for so many seconds, and so many events, at least.
    """
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=RECORDER)
    await page.visit(url)
    grid = "document.querySelector('.grid.tree')"
    await page.until(f"{grid}?.querySelectorAll('.gridbody .gridrow:not(.loading)').length > 1")
    await page.run(f"{grid}.focus()")
    await page.key("End")
    await page.key("ArrowRight")  # the last supervisor is that of the crowd
    await page.until(f"Number({grid}.getAttribute('aria-rowcount')) > 1000")
    x, y = await page.run(
        f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({grid}.getBoundingClientRect())"
    )
    began, turn = perf_counter(), 0
    while turn < turns or perf_counter() - began < seconds:
        turn += 1
        if turn % TURNS:
            way = 2_000 if turn // TURNS % 2 else -1_500
            await page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=way)
        else:
            await page.run("document.querySelector('.find input').focus()")
            for letter in f"many/{turn}":
                await page.key(letter)
            found = (
                f"!{grid}.checkVisibility() && document.querySelectorAll('.grid.list .gridrow').length > 1"
            )
            await page.until(found)
            await page.key("Escape")
            await page.until(f"{grid}.checkVisibility()")
        await trio.sleep(PAUSE)
    took = perf_counter() - began
    noted = await page.run("({...recorded, nodes: document.querySelectorAll('*').length})")
    return {**noted, "seconds": took}


async def first_rows(page: Page, url: str) -> dict[str, Any]:
    """Open the page of a node; return the milliseconds until its rows were there, and of processor time."""
    await page.call("Performance.enable", timeDomain="threadTicks")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=FIRST_ROWS)
    await page.call("Page.navigate", url=url)
    rows = await page.until("window.rowsAt")
    metrics = (await page.call("Performance.getMetrics"))["metrics"]
    cpu = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
    return {"first_rows_ms": rows, "page_cpu_ms": 1e3 * cpu}


async def looked(url: str) -> None:
    """Open the page for each line of standard input, `first` or the seconds of a session; answer."""
    with running(chromium()) as browser:
        async for line in trio.wrap_file(sys.stdin):
            async with opened(browser) as page:
                word = line.strip()
                noted = await (first_rows(page, url) if word == "first" else session(page, url, float(word)))
                print(json.dumps(noted | {"problems": page.problems}), flush=True)


async def storm(refs: list[Ref[Crasher]]) -> None:
    """Crash agents again and again, as fast as they are restarted, until cancelled."""
    while refs:
        for ref in refs:
            with suppress(AgentDied):
                await ref.invoke(Crasher.crash)
        for ref in refs:
            await ref.ready()


@asynccontextmanager
async def stormy(agents: int = AGENTS, crashers: int = CRASHERS) -> AsyncGenerator[tuple[Node, Supervisor]]:
    """Have a node with a crowd, the first of which crash; yield it and the supervisor of all."""
    async with open_node(listen="ws://127.0.0.1:0") as node, trio.open_nursery() as nursery:
        crowd = BulkSpec("many", member=ChildSpec("one", Crasher), count=agents, max_restarts=10**9)
        group = await node.start_supervisor(crowd)
        refs = [node.find(Crasher, f"many/{number}") for number in range(crashers)]
        with redirect_stderr(StringIO()):
            nursery.start_soon(storm, refs)
            yield node, group
            nursery.cancel_scope.cancel()


@contextmanager
def other(url: str) -> Iterator[Callable[[str], str]]:
    """Start the process of the browser; yield what sends it a line, and returns its answer."""
    words = [sys.executable, "-m", "tests.benchmarks.browsing", "--at", url]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, answers = process.stdin, process.stdout

        def ask(line: str) -> str:
            print(line, file=lines, flush=True)
            return answers.readline()

        try:
            yield ask
        finally:
            lines.close()  # it ends its browser


def ranked(values: list[float], part: float) -> float:
    """Return the value that this part of all is below."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


async def first(rounds: int = 9) -> None:
    """Open the page again and again, each time in a browser without anything kept."""
    async with stormy(crashers=0) as (node, _):
        with other(str(node.page_url)) as ask:
            found = [json.loads(await trio.to_thread.run_sync(ask, "first")) for _ in range(rounds)]
    for name in ("first_rows_ms", "page_cpu_ms"):
        values = [each[name] for each in found]
        show(agents=AGENTS, case=name, median=median(values), least=min(values), most=max(values))


async def browse(seconds: float = SECONDS, rounds: int = ROUNDS) -> None:
    """Measure pauses and sessions in turns, and print what both cost."""
    async with stormy() as (node, group):
        with other(str(node.page_url)) as ask:
            await trio.to_thread.run_sync(ask, "0")  # until the browser is there
            paces: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * rounds):
                looks = turn % 2 == 1
                before, began, cpu = group.statistics().restarts, perf_counter(), process_time()
                if looks:
                    noted = json.loads(await trio.to_thread.run_sync(ask, str(seconds)))
                else:
                    await trio.sleep(seconds)
                done, took = group.statistics().restarts - before, perf_counter() - began
                used = process_time() - cpu
                paces[looks].append(done / used)
                figures: dict[str, object] = {
                    "looks": looks,
                    "restarts_a_second": done / took,
                    "restarts_a_cpu_second": done / used,
                }
                show(**figures, **(of_session(noted) if looks else {}))
        show(agents=AGENTS, ratio=median(paces[True]) / median(paces[False]))


def of_session(noted: dict[str, Any]) -> dict[str, object]:
    """Return the figures of a session."""
    sizes, seconds = noted["messages"], noted["seconds"]
    return {
        "bytes_a_second": sum(sizes) / seconds,
        "messages_a_second": len(sizes) / seconds,
        "largest_bytes": max(sizes),
        "delay_ms_median": median(noted["delays"]),
        "delay_ms_95": ranked(noted["delays"], 0.95),
        "gap_ms_95": ranked(noted["gaps"], 0.95),
        "gap_ms_longest": max(noted["gaps"]),
        "elements": noted["nodes"],
        "problems": noted["problems"],
    }


PARTS: Final[dict[str, Callable[[], Awaitable[None]]]] = {"first": first, "session": browse}


def main(arguments: list[str]) -> None:
    """Measure the parts that are named, or all; or be the other process."""
    if arguments[:1] == ["--at"]:
        trio.run(looked, arguments[1])
    else:
        for name in arguments or PARTS:
            trio.run(PARTS[name])


if __name__ == "__main__":
    main(sys.argv[1:])
