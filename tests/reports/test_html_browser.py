"""The HTML file in a real browser: quick to open, nothing fetched, nothing complained of, and usable."""

from __future__ import annotations

import json
import math
import random
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.reports import (
    CheckResult,
    Cut,
    FaultResult,
    FileResult,
    Missing,
    NodeRestart,
    SeriesResult,
    StepResult,
    html_page,
)
from tests.chromium import Page, browser as browser, opened, violations
from tests.reports.sample_results import HOSTILE, failed, line, result, run
from tests.reports.test_html import unpacked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

pytestmark = pytest.mark.browser

MESSAGES = 50_000
AGENTS = 1_000
OPENED = 5.0
"""Seconds that a page of so many messages may take to open."""

VIEWS = ("story", "timeline", "messages", "tree", "series")
HEAD = '{"schema":"lmos-actors/trace/v1","seed":1,"python":"cpython 3.11","packages":{"lmos-actors":"1"}}'
ROW = "document.querySelector('.diagram [role=option][aria-selected=true]')"


# ---- pages to look at


class Writing:
    """A message log that is made up."""

    def __init__(self) -> None:
        self.lines = [HEAD]
        self.at = 0.0

    def add(self, kind: str, agent: str, **fields: Any) -> None:
        text = line(len(self.lines), kind, agent, self.at, **fields)
        if not text.isascii() or "\\u" in text:  # as the log of a run has it
            text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
        self.lines.append(text)

    def ask(self, number: int, sender: str, agent: str, trace: int, *, ends: str = "answered") -> None:
        """A message, and what comes of it 0.1 ms later."""
        fields = {"affordance": "rumour", "id": number, "input": {"id": "r1", "hops": number % 9}}
        self.add("sent", agent, **fields, **{"from": sender}, trace=trace, verb="invoke")
        if ends != "dropped":
            self.add("delivered", agent, affordance="rumour", id=number)
        self.at += 0.0001
        self.add(
            ends, agent, affordance="rumour", id=number, **({"value": None} if ends == "answered" else {})
        )

    def crash(self, agent: str, incarnation: int) -> None:
        self.add("crashed", agent, reason="RuntimeError: boom")
        self.add("restarting", agent)
        self.add("started", agent, incarnation=incarnation)


def many() -> tuple[str, ...]:
    """50,000 messages among 1,000 agents, some of them dropped, some agents crashing."""
    log, chance = Writing(), random.Random(1)
    for agent in range(AGENTS):
        log.add("started", f"peer/{agent}", incarnation=1)
    for number in range(1, MESSAGES + 1):
        log.at += 60 / MESSAGES
        one, other = chance.randrange(AGENTS), chance.randrange(AGENTS)
        ends = "dropped" if number % 100 == 0 else "answered"
        log.ask(number, f"peer/{one}", f"peer/{other}", max(1, number - number % 20), ends=ends)
        if number % 500 == 0:
            log.crash(f"peer/{other}", 2)
    return tuple(log.lines)


def few() -> tuple[str, ...]:
    """Three agents: messages 1 to 40 in traces of 4, an event, a crash at 2 s, hostile words."""
    log = Writing()
    for agent in ("crew/first", "crew/second", "lone"):
        log.add("started", agent, incarnation=1)
    for number in range(1, 41):
        log.at = number / 10
        agent = ("crew/first", "crew/second", "lone")[number % 3]
        log.ask(number, "user", agent, number - (number - 1) % 4)
        if number == 20:
            log.add("fault", "crew/second", fault="crash", **{"with": "RuntimeError"})
            log.crash("crew/second", 2)
            log.add("event", "lone", event=HOSTILE, data={"x": f"</script>{HOSTILE}"})
    log.add("dead_letter", "lone", affordance="rumour", reason="stopped", **{"from": "crew/first"})
    log.add("stopped", "lone", reason="shutdown")
    return tuple(log.lines)


def restarted() -> tuple[str, ...]:
    """An agent, asked and restarted with its node, which ends without a record of each agent."""
    log = Writing()
    log.add("started", "bank", incarnation=1)
    log.ask(1, "user", "bank", 1)
    log.at = 2.0
    log.add("fault", "root", fault="restart", id="timeline.0", writes="lost", down=0.5)
    log.at = 2.5
    log.add("started", "bank", incarnation=1)
    log.add("healed", "root", fault="restart", id="timeline.0")
    log.at = 4.0
    log.ask(2, "user", "bank", 2)
    return tuple(log.lines)


def gossip(seed: int, fanout: int) -> tuple[SeriesResult, ...]:
    times = tuple(n / 30 for n in range(120))
    informed = tuple(1 / (1 + math.exp(seed / 9 - 8 * (time - 4 / fanout))) for time in times)
    depth = tuple(None if time < 0.2 else 9 + seed + 8 * math.sin(3 * time) for time in times)
    return (
        SeriesResult(name="informed", agg="fraction", times=times, values=informed),
        SeriesResult(name="backlog", agg="p99", times=times, values=depth),
    )


def story() -> FileResult:
    """Six runs of a file, the first one failed, with something of everything."""
    steps = (
        StepResult(place="story.yaml:9:3", what="tell lone rumour", ok=True, begin=0.1, end=0.1),
        StepResult(place="story.yaml:12:3", what=f"wait <b>{HOSTILE}</b>", ok=False, begin=0.1, end=3.0),
        StepResult(place="story.yaml:15:3", what="expect an event", ok=None),
    )
    faults = (FaultResult(id="split", kind="pause", targets=("lone",), begin=1.0, end=2.5),)
    check = CheckResult(name="informed", kind="eventually", ok=False, expected="0.99", saw="0.98", at=4.0)
    runs = [
        failed(
            values={"fanout": fanout},
            seed=seed,
            virtual=4.1,
            step_results=steps,
            judged=(check,),
            faults=faults,
            series=gossip(seed, fanout),
            log=few(),
            metrics={"informed.last": 0.98, "ask.p99": None},
        )
        if (fanout, seed) == (2, 1)
        else run(values={"fanout": fanout}, seed=seed, series=gossip(seed, fanout))
        for fanout in (2, 4)
        for seed in (1, 2, 3)
    ]
    faster = CheckResult(name="faster", kind="compare", ok=True, expected="decreasing", saw="60, 30")
    return result(*runs, compared=[faster])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    (made / "story.html").write_text(html_page([story()], title=f"Story {HOSTILE}"), encoding="utf-8")
    restart = result(failed(log=restarted(), virtual=4.0))
    (made / "restarted.html").write_text(html_page([restart], title="restarted"), encoding="utf-8")
    crowd = result(failed(log=many(), virtual=60.0))
    (made / "many.html").write_text(html_page([crowd], title="many"), encoding="utf-8")
    return made


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    """A tab that has nothing to complain of at the end, and that has fetched nothing but the file."""
    async with opened(browser) as tab:
        yield tab
        assert tab.problems == []
        assert tab.requests
        assert [url for url in tab.requests if not url.startswith("file:///")] == []
        assert len(set(tab.requests)) == 1


async def shown(page: Page, folder: Path, view: str) -> None:
    await page.open(folder / "story.html", f"#run=0&view={view}")
    await page.until(f"document.querySelector('#view.view-{view}') !== null")
    await drawn(page)


async def drawn(page: Page) -> None:
    """Wait until what was asked for is in the picture."""
    await page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
async def test_axe_has_nothing_to_object_to(page: Page, folder: Path, width: int, dark: bool) -> None:
    await page.window(width, 800, dark=dark)
    found: list[str] = []
    for view in VIEWS:
        await shown(page, folder, view)
        found += [f"{view}: {each}" for each in await violations(page)]
    await page.open(folder / "story.html")
    found += [f"all runs: {each}" for each in await violations(page)]
    assert not found, "\n".join(found)


async def press(page: Page, words: str) -> None:
    """Press the button that says so."""
    await page.run(
        f"[...document.querySelectorAll('button')].find((one) => one.textContent === {words!r}).click()"
    )


async def rows(page: Page) -> int:
    """How many rows the diagram has, as it says itself."""
    text: str = await page.run("document.querySelector('.tools .count').textContent")
    return int(text.split()[0].replace(",", ""))


async def fill(page: Page, name: str, text: str) -> int:
    """Type into a field of the filter; gives how many rows are left."""
    await page.run(
        f"(() => {{ const e = document.querySelector('[name={name}]'); e.value = {json.dumps(text)};"
        " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    await drawn(page)
    return await rows(page)


# ---- many messages


@pytest.mark.slow
@pytest.mark.parametrize("view", ["story", "messages", "timeline", "tree"])
async def test_a_page_of_50_000_messages_opens_in_time(page: Page, folder: Path, view: str) -> None:
    file = folder / "many.html"
    assert file.stat().st_size < 10_000_000
    took = [await opening(page, file, view)]
    if took[0] > OPENED:  # the machine may have been busy
        took.append(await opening(page, file, view))
    assert min(took) < OPENED
    if view == "messages":
        assert await rows(page) == 2 * MESSAGES + MESSAGES // 500  # answered or dropped each, and the crashes
        assert await page.run("document.querySelectorAll('.diagram *').length") < 1500


@pytest.mark.slow
async def test_a_restart_of_the_node_ends_the_agents(page: Page, folder: Path) -> None:
    async def texts(view: str, where: str) -> list[str]:
        await page.open(folder / "restarted.html", f"#run=0&view={view}")
        await page.until(f"document.querySelector('#view.view-{view}') !== null")
        await drawn(page)
        found: list[str] = await page.run(
            f"[...document.querySelectorAll({where!r})].map((e) => e.textContent)"
        )
        return found

    assert await texts("timeline", ".life rect title") == [
        "bank runs from 0 s to 2 s",
        "bank runs from 2.5 s to 4 s",
    ]
    await texts("tree", ".tree")
    await page.run(
        "(() => { const e = document.querySelector('.scrub input'); e.value = 2;"
        " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    await drawn(page)
    assert "stopped" in await page.run("document.querySelector('.tree').textContent")


async def opening(page: Page, file: Path, view: str) -> float:
    """Open a page and give the seconds that it took, by this clock, until its view was drawn."""
    await page.call("Page.navigate", url="about:blank")
    began = time.perf_counter()
    await page.open(file, f"#run=0&view={view}")
    await drawn(page)
    took = time.perf_counter() - began
    assert await page.run("document.querySelector('#view').childElementCount") > 0
    return took


@pytest.mark.slow
async def test_rows_are_drawn_as_they_come_into_sight(page: Page, folder: Path) -> None:
    await page.open(folder / "many.html", "#run=0&view=messages")
    first = await page.run("document.querySelector('.row .time').textContent")
    await page.run("document.querySelector('.diagram').focus()")
    await page.key("End")
    await page.until(f"{ROW} && {ROW}.id === 'row-100099'")
    assert await page.run("document.querySelector('.row .time').textContent") != first
    assert await page.run("document.querySelectorAll('.diagram .row').length") < 100
    assert await fill(page, "trace", "4000") == 40
    assert await fill(page, "id", "4001") == 2
    assert await fill(page, "trace", "") == 2


@pytest.mark.slow
async def test_a_log_too_long_says_what_is_left_out(page: Page, tmp_path: Path) -> None:
    log = many()[:9001]
    file = tmp_path / "long.html"
    text = html_page([result(failed(log=log))], title="long", most=2000)
    file.write_text(text, encoding="utf-8")
    await page.open(file, "#run=0&view=messages")
    notice = await page.run("document.querySelector('.notice').textContent")
    assert notice.startswith("7,000 of 9,000 records are not in this page")
    gaps: list[str] = []
    for row in range(0, await rows(page), 14):
        await page.run(f"document.querySelector('.diagram').scrollTop = {24 * row}")
        await drawn(page)
        gaps += await page.run("[...document.querySelectorAll('.row.gap')].map((row) => row.id)")
    numbers = [json.loads(one)["n"] for one in unpacked(text, "log-0").split("\n")[1:]]
    missing = sum(later != one + 1 for one, later in pairwise(numbers))
    assert missing >= 2
    assert len(dict.fromkeys(gaps)) == missing


@pytest.mark.slow
async def test_packed_data_is_read_without_help_of_the_browser(page: Page, folder: Path) -> None:
    hide = "delete window.DecompressionStream"
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=hide)
    await shown(page, folder, "messages")
    assert await page.run("'DecompressionStream' in window") is False
    assert await rows(page) == len(few()) - 1 - 40  # all but the begins of turns


# ---- what it shows


@pytest.mark.slow
async def test_a_failed_run_is_what_is_seen_first(page: Page, folder: Path) -> None:
    await page.open(folder / "story.html")
    text = await page.run("document.body.innerText")
    for words in (
        "5 of 6 runs passed",
        "What went wrong",
        "AgentDied: boom",
        "story.yaml:9:3",
        "Cannot be computed",
    ):
        assert words in text
    assert (
        await page.run("document.querySelector('#again').textContent")
        == "lmos-actors run story.yaml --seed 1"
    )
    assert await page.run("document.title.startsWith('Story') && document.title.includes('<b> & ; # 100%')")
    assert await page.run("document.querySelector('b') === null")


@pytest.mark.slow
async def test_the_command_is_copied(page: Page, folder: Path) -> None:
    await page.open(folder / "story.html")
    await page.run("document.querySelector('.command .copy').focus()")
    await page.run("void (navigator.clipboard.writeText = async (text) => { window.copied = text; })")
    await page.key("Enter")
    await page.until("window.copied === 'lmos-actors run story.yaml --seed 1'")
    await page.until("document.querySelector('.command .copy').textContent === 'Copied'")


@pytest.mark.slow
async def test_runs_are_filtered_and_chosen(page: Page, folder: Path) -> None:
    await page.open(folder / "story.html")
    squares = "document.querySelectorAll('.square').length"
    assert await page.run(squares) == 6
    await page.click(".verdicts [type=checkbox]")
    assert await page.run(squares) == 1
    await page.click(".verdicts [type=checkbox]")
    await page.run("document.querySelector('.verdicts [type=search]').focus()")
    for letter in "fanout=4":
        await page.key(letter)
    assert await page.run(squares) == 3
    await page.click(".square")
    await page.until("document.querySelector('.runhead h2').textContent.includes('fanout=4')")
    assert await page.run("location.hash") == "#run=3&view=story"
    assert await page.run("document.querySelectorAll('[aria-current]').length") == 1
    await page.run("history.back()")
    await page.until("document.querySelector('.runhead h2').textContent.includes('fanout=2')")


@pytest.mark.slow
async def test_views_are_reached_by_keys(page: Page, folder: Path) -> None:
    await page.open(folder / "story.html")
    await page.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    for view in (*VIEWS[1:], VIEWS[0]):
        await page.key("ArrowRight")
        await page.until(f"document.activeElement.id === 'tab-{view}'")
        await page.until(f"document.querySelector('#view.view-{view}') !== null")


@pytest.mark.slow  # its lines: test_html.py; the script of a page is no Python
async def test_messages_are_filtered(page: Page, folder: Path) -> None:
    await shown(page, folder, "messages")
    whole = await rows(page)
    assert whole == len(few()) - 1 - 40
    second = sum('"crew/second"' in one and '"delivered"' not in one for one in few())
    for name, text, left in (
        ("agent", "second", second),
        ("agent", "crew/second", second),
        ("agent", "nobody", 0),
        ("trace", "5", 8),
        ("id", "7", 2),
        ("text", "boom", 1),
        ("text", "漢", 1),
    ):
        assert await fill(page, name, text) == left, (name, text)
        assert await fill(page, name, "") == whole


@pytest.mark.slow
async def test_kinds_are_filtered(page: Page, folder: Path) -> None:
    await shown(page, folder, "messages")
    before = await rows(page)
    await page.click("[name=begins]")
    await page.until(f"document.querySelector('.tools .count').textContent.startsWith('{before + 40} ')")
    await page.click("[name=messages]")
    await page.until(f"document.querySelector('.tools .count').textContent.startsWith('{before} ')")


@pytest.mark.slow
async def test_a_click_shows_the_raw_records(page: Page, folder: Path) -> None:
    await shown(page, folder, "messages")
    await fill(page, "id", "7")
    await page.click("#row-0")
    raw = "document.querySelector('.chosen .raw').textContent"
    await page.until(f"document.querySelector('.chosen .raw') !== null && {raw}.length > 0")
    assert (await page.run(raw)).split("\n") == [one for one in few() if '"id":7' in one]
    pretty = json.loads(await page.run("document.querySelector('.chosen .pretty').textContent"))
    assert (pretty["kind"], pretty["id"], pretty["from"]) == ("sent", 7, "user")
    await press(page, "This trace")
    assert await rows(page) == 8
    await press(page, "All")
    assert await rows(page) == len(few()) - 1 - 40


@pytest.mark.slow
async def test_rows_are_reached_by_keys(page: Page, folder: Path) -> None:
    await shown(page, folder, "messages")
    await page.run("document.querySelector('.diagram').focus()")
    for key, row in (
        ("ArrowDown", 0),
        ("ArrowDown", 1),
        ("End", len(few()) - 42),
        ("ArrowUp", len(few()) - 43),
    ):
        await page.key(key)
        active = "document.querySelector('.diagram').getAttribute('aria-activedescendant')"
        await page.until(f"{active} === 'row-{row}'")
        assert await page.run(f"{ROW}.id") == f"row-{row}"


@pytest.mark.slow
async def test_the_diagram_is_zoomed(page: Page, folder: Path) -> None:
    await shown(page, folder, "messages")
    height = "parseFloat(document.querySelector('.diagram > div').style.height)"
    count = "document.querySelectorAll('.message').length"
    before, drawn = await page.run(height), await page.run(count)
    for _ in range(3):
        await page.click(".tools [aria-label='Zoom out']")
    assert await page.run(height) < before / 2
    assert await page.run(count) > drawn
    await page.run("document.querySelector('.diagram').focus()")
    for _ in range(3):
        await page.key("+")
    assert await page.run(height) == before
    await page.key("+")
    assert await page.run(height) > before


@pytest.mark.slow
async def test_the_timeline_is_zoomed_and_leads_to_messages(page: Page, folder: Path) -> None:
    await shown(page, folder, "timeline")
    await page.until("document.querySelector('.timeline .faultband') !== null")
    for part in (".bars", ".step.bad", ".life rect", ".mark.bad", "path.series"):
        assert await page.run(f"document.querySelector('.timeline {part}') !== null"), part
    ticks = "[...document.querySelectorAll('.timeline .tick')].map((tick) => tick.textContent).join()"
    before = await page.run(ticks)
    await page.click(".tools [aria-label='Zoom in']")
    assert await page.run(ticks) != before
    await page.run("document.querySelector('.timeline').focus()")
    await page.key("0")
    assert await page.run(ticks) == before
    left, top, width = await page.run(
        "(({ x, y, width }) => [x, y, width])(document.querySelector('.timeline').getBoundingClientRect())"
    )
    await page.mouse("mousePressed", left + width * 0.6, top + 50)
    await page.mouse("mouseMoved", left + width * 0.8, top + 50)
    await page.mouse("mouseReleased", left + width * 0.8, top + 50)
    await press(page, "Its messages")
    await page.until("document.querySelector('#view.view-messages .diagram') !== null")
    assert 10 < await rows(page) < 40


@pytest.mark.slow
async def test_the_tree_is_told_at_any_time(page: Page, folder: Path) -> None:
    await shown(page, folder, "tree")
    slider, words = (
        "document.querySelector('.scrub input')",
        "document.querySelector('.happening').textContent",
    )
    states = (
        "[...document.querySelectorAll('.node')].map((node) =>"
        " node.firstChild.textContent + ' ' + (node.querySelector('.state') || {}).textContent).join()"
    )
    await page.run(f"{slider}.focus()")
    seen: dict[str, str] = {}
    await page.key("Home")
    await page.until(f"{words} === 'Before anything happened'")
    for _ in range(int(await page.run(f"{slider}.max")) + 1):
        seen[await page.run(words)] = await page.run(states)
        before = await page.run(words)
        await page.click(".scrub [aria-label='The next happening']")
        await drawn(page)
        if await page.run(words) == before:
            break
    fate = {text.partition(": ")[2]: tree for text, tree in seen.items()}
    assert "first not yet started" in seen["Before anything happened"]
    assert "second running" in fate["3 agents started"]
    assert "second crashed" in fate["crew/second crashed: RuntimeError: boom"]
    assert "second restarting" in fate["crew/second restarting"]
    assert "second running" in fate["crew/second started (#2)"]
    assert "lone stopped" in fate["lone stopped: shutdown"]


@pytest.mark.slow
async def test_series_have_bands_over_the_seeds(page: Page, folder: Path) -> None:
    await shown(page, folder, "series")
    await page.until("document.querySelectorAll('.plot path.extremes').length === 2")
    for part in ("path.quartiles", "path.median", "path.series", ".faultband"):
        assert await page.run(f"document.querySelectorAll('.plot {part}').length") == 2, part
    numbers = "document.querySelectorAll('path.{name}')[1].getAttribute('d').match(/[\\d.]+/g).map(Number)"
    widths = []  # a path has the upper edge first and comes back along the lower one
    for name in ("extremes", "quartiles"):
        path = await page.run(numbers.replace("{name}", name))
        widths.append(path[-1] - path[1])
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.05)  # of three seeds, 1 apart
    await page.run("document.querySelector('.plot').focus()")
    await page.key("ArrowRight")
    assert "of 3 runs" in await page.run("document.querySelector('.reading').textContent")
    await page.click("[data-file]")
    await page.until("document.querySelectorAll('.plot path.extremes').length === 4")
    assert "faster" in await page.run("document.querySelector('.overview').textContent")


async def test_the_multiples_of_a_sweep_share_their_axes(page: Page, tmp_path: Path) -> None:
    runs = [
        run(values={"k": k}, seed=seed, series=(grown(length),))
        for k, length in ((1, 5), (2, 50))
        for seed in (1, 2)
    ]
    (tmp_path / "sweep.html").write_text(html_page([result(*runs)], title="sweep"), encoding="utf-8")
    await page.open(tmp_path / "sweep.html", "#file=0")
    await drawn(page)
    ticks = "[...document.querySelectorAll('.charts.several .plot')].map((one) => one.textContent)"
    first, second = await page.run(ticks)
    assert first == second


def grown(length: int) -> SeriesResult:
    """A series that never falls."""
    numbers = tuple(map(float, range(length)))
    return SeriesResult(name="grown", agg="sum", times=numbers, values=numbers)


async def test_faults_have_labels_that_do_not_lie_upon_each_other(page: Page, tmp_path: Path) -> None:
    faults = tuple(
        FaultResult(id=f"f{n}", kind=kind, targets=("a",), begin=begin, end=begin + 2)
        for n, (kind, begin) in enumerate([("crash", 4.0), ("slow", 4.0), ("pause", 5.0), ("loss", 5.1)])
    )
    made = run(series=(grown(20),), faults=faults)
    (tmp_path / "faults.html").write_text(html_page([result(made)], title="faults"), encoding="utf-8")
    await page.window(390, 844)
    await page.open(tmp_path / "faults.html", "#run=0&view=series")
    await drawn(page)
    boxes = await page.run(
        "[...document.querySelectorAll('.faultband text')].map((one) => one.getBoundingClientRect())"
        ".map((box) => [box.left, box.right])"
    )
    assert len(boxes) == 2
    assert all(one[1] <= other[0] for one, other in pairwise(sorted(boxes)))
    words = await page.run("document.querySelector('.legend.faults').textContent")
    assert [kind for kind in ("crash", "slow", "pause", "loss") if kind not in words] == []


async def test_who_was_cut_off_from_whom_has_lanes(page: Page, tmp_path: Path) -> None:
    crowd = tuple(f"peer/{n}" for n in range(20))
    one_way = {"sides": (("a",), ("b",)), "one_way": True}
    faults = (
        FaultResult(id="split", kind="partition", targets=("a",), begin=2.0, end=8.0, sides=(("a",), crowd)),
        FaultResult(id="deaf", kind="partition", targets=("a",), begin=12.0, end=None, **one_way),
    )
    log = (
        line(1, "network", "b", what="disconnected", to="b", **{"from": "a"}),
        line(9, "network", "b", what="connected", to="b", **{"from": "a"}),
    )
    made = run(series=(grown(20),), faults=faults, log=log, logged=2)
    (tmp_path / "cut.html").write_text(html_page([result(made)], title="cut"), encoding="utf-8")
    await page.open(tmp_path / "cut.html", "#run=0&view=timeline")
    await drawn(page)
    found = await page.run("[...document.querySelectorAll('.cutoff title')].map((one) => one.textContent)")
    assert [each.partition("\n")[0] for each in found] == [
        "a: cut off from peer/0, peer/1, peer/2 and 17 more",
        "a: not heard by b",
        "peer/0, peer/1, peer/2 and 17 more: cut off from a",
        "b: does not hear a",
        "a → b: no connection",
    ]


def away() -> RunResult:
    """A run with a node of two agents that restarts behind a cut; one of them has crashed before."""
    log = Writing()
    for agent in ("shop", "tills/till-1", "customer"):
        log.add("started", agent, incarnation=1)
    log.at = 1.0
    log.add("crashed", "shop", reason="RuntimeError")
    log.add("restarting", "shop")
    log.add("started", "shop", incarnation=2)
    for log.at, ends in ((2.0, 6.0), (8.0, 9.0)):
        log.add("fault", "mall", fault="restart", id="away", targets=1, down=ends - log.at)
        log.at = ends
        log.add("started", "shop", incarnation=3)
        log.add("started", "tills/till-1", incarnation=2)
        log.add("healed", "mall", fault="restart", id="away")
    mall = partial(NodeRestart, node="mall", agents=("shop", "tills"))
    mine = NodeRestart(node="customer", agents=("customer",), end=None)
    two = {"id": "away", "kind": "restart", "targets": ("mall",), "sides": (("mall",),)}
    cut = FaultResult(
        id="cut", kind="partition", targets=("mall",), begin=1.5, end=3.0, sides=(("mall",), ("customer",))
    )
    faults = (
        cut,
        FaultResult(**two, begin=2.0, end=6.0, restarted=(mall(end=6.0),)),
        FaultResult(**two, begin=8.0, end=None, restarted=(mall(end=9.0), mine)),
    )
    return run(faults=faults, log=tuple(log.lines), logged=len(log.lines), virtual=10.0)


@pytest.mark.slow  # its lines: test_html.py; the script of a page is no Python
async def test_a_node_that_is_away_is_shown_with_its_agents(page: Page, tmp_path: Path) -> None:
    (tmp_path / "away.html").write_text(html_page([result(away())], title="away"), encoding="utf-8")

    async def texts(where: str) -> list[str]:
        found: list[str] = await page.run(
            f"[...document.querySelectorAll({where!r})].map((e) => e.textContent)"
        )
        return found

    await page.open(tmp_path / "away.html", "#run=0&view=timeline")
    await drawn(page)
    assert await texts(".cutoff title") == [
        "mall: cut off from customer\n1.5 s to 3 s",
        "mall: away with shop, tills\n2 s to 6 s",
        "mall: away with shop, tills\n8 s to 9 s",
        "customer: cut off from mall\n1.5 s to 3 s",
        "customer: away\n8 s to 10 s",
    ]
    assert [each.partition("\n")[0] for each in await texts(".faultband title")] == [
        "partition cut: mall",
        "restart away: mall (shop, tills)",
        "restart away: mall (shop, tills), customer",
    ]
    assert [each for each in await texts(".life rect title") if each.startswith("tills")] == [
        "tills/till-1 runs from 0 s to 2 s",
        "tills/till-1 runs from 6 s to 8 s",
        "tills/till-1 runs from 9 s to 10 s",
    ]
    await page.open(tmp_path / "away.html", "#run=0&view=tree")
    await page.until("document.querySelector('#view.view-tree') !== null")
    await drawn(page)
    words = " ".join(await texts(".node"))
    assert "1 restart · 2 comebacks with its node" in words
    assert words.count("restart of its node mall") == 2
    assert "till-1running2 comebacks with its node" in words


@pytest.mark.slow
async def test_an_interrupted_page_says_so(page: Page, tmp_path: Path) -> None:
    missing = [
        Missing(label=f"seed={seed}", values={}, seed=seed, trial=1, begun=seed == 2) for seed in (2, 3)
    ]
    cut = result(run(), cells=3, missing=missing, cut=Cut("interrupted", 143, "SIGTERM"))
    (tmp_path / "cut.html").write_text(html_page([cut], title="cut"), encoding="utf-8")
    await page.open(tmp_path / "cut.html")
    await drawn(page)
    text = await page.run("document.body.innerText")
    assert "✗ interrupted" in text
    assert "✓ passed" not in await page.run("document.querySelector('.banner').textContent")
    assert text.count("interrupted (SIGTERM), 1 of 3 runs, exit code 143") == 2
    assert "seed=2, begun, not ended" in text
    assert await page.run("document.querySelectorAll('.square.none').length") == 2
    assert "1/3" in text


# ---- windows and colours


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1366, 768)])
async def test_nothing_sticks_out_of_the_window(page: Page, folder: Path, width: int, height: int) -> None:
    await page.window(width, height)
    await page.open(folder / "story.html", "#file=0")
    await drawn(page)
    tables = (
        "[...document.querySelectorAll('.overview .wide')].map((one) => one.scrollWidth - one.clientWidth)"
    )
    assert set(await page.run(tables)) == {0}
    for view in VIEWS:
        await shown(page, folder, view)
        for element in ("document.documentElement", "document.querySelector('#view')"):
            whole, inside = await page.run(f"[{element}.scrollWidth, {element}.clientWidth]")
            assert whole <= inside <= width, (view, element)


@pytest.mark.slow
async def test_all_runs_fold_away_in_a_narrow_window(page: Page, folder: Path) -> None:
    await page.window(390, 844)
    await shown(page, folder, "story")
    assert await page.run("document.querySelector('.runs').open") is False
    await page.click(".runs summary")
    await page.click("[data-run='4']")
    await page.until("document.querySelector('.runhead h2').textContent.includes('fanout=4')")
    assert await page.run("document.querySelector('.runs').open") is False


CONTRASTS = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((n) => n / 255)
    .map((n) => (n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4))
    .reduce((sum, n, i) => sum + n * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const [r, g, b, a = 1] = parse(getComputedStyle(element).backgroundColor);
    return a === 1 ? [r, g, b] : ground(element.parentElement);
  };
  const found = {};
  for (const element of document.querySelectorAll('#app *')) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (element.ownerSVGElement || !says || !element.checkVisibility()) continue;
    const both = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    both.sort((one, other) => other - one);
    const ratio = (both[0] + 0.05) / (both[1] + 0.05);
    if (ratio < 4.5) found[element.tagName + '.' + element.className] = ratio;
  }
  return found;
})()"""


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_text_can_be_read_on_its_ground(page: Page, folder: Path, dark: bool) -> None:
    await page.window(1366, 768, dark=dark)
    for view in VIEWS:
        await shown(page, folder, view)
        ground = await page.run(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        )
        assert (ground < 60) is dark
        assert await page.run(CONTRASTS) == {}, view


@pytest.mark.slow
async def test_everything_to_press_has_a_name(page: Page, folder: Path) -> None:
    for view in VIEWS:
        await shown(page, folder, view)
        nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        roles = ("button", "textbox", "searchbox", "checkbox", "slider", "tab", "img", "listbox", "combobox")
        wanted = [node for node in nodes if node.get("role", {}).get("value") in roles]
        assert wanted
        assert [node for node in wanted if not node.get("name", {}).get("value")] == []


@pytest.mark.slow
async def test_what_models_are_asked_and_say_is_told_in_few_words(page: Page, tmp_path: Path) -> None:
    messages = [{"role": "user", "text": "Where?"}, {"role": "model"}]
    got = {"role": "tool", "name": "look_up", "result": "shipped"}
    call = {"type": "tool_request", "name": "look_up", "arguments": {"number": 17}}
    of = {"affordance": "generate", "id": 1}
    asks = {**of, "verb": "invoke", "from": "desk", "trace": 1}
    log = (
        line(1, "sent", "model", input={"messages": messages[:1]}, **asks),
        line(2, "item", "model", value=call, **of),
        line(3, "item", "model", value={"type": "end", "reason": "tools"}, **of),
        line(4, "sent", "model", input={"messages": [*messages, got]}, **asks),
        line(5, "item", "model", value={"type": "text", "text": "Here."}, **of),
        line(6, "item", "model", value={"type": "other"}, **of),
    )
    made = run(log=log, logged=len(log))
    (tmp_path / "talk.html").write_text(html_page([result(made)], title="talk"), encoding="utf-8")
    await page.open(tmp_path / "talk.html", "#run=0&view=messages")
    await page.until("document.querySelectorAll('.diagram [role=option]').length >= 6")
    found = await page.run("document.querySelector('.diagram').textContent")
    for text in (
        'generate "Where?"',
        'generate calls look_up {"number":17}',
        "generate ends: tools",
        'generate look_up = "shipped"',
        'generate says "Here."',
        'generate gives {"type":"other"}',
    ):
        assert text in found, found
