"""The kit as a pytest plugin: a test for each case, with and without a test file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import attrs
import pytest

from lmos_actors.conformance import (
    ConformOptions,
    Level,
    Unreachable,
    Verdict,
    _run,
    all_cases,
    pytest_plugin,
)
from tests.conformance.cards import result
from tests.conformance.served_in_thread import near
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lmos_actors.conformance import Case, Result

pytest_plugins = ["pytester"]

NAME = "lmos_actors.conformance.pytest_plugin"
URL = "http://127.0.0.1:8080"
OUTCOMES = {
    "read.value": result("read.value", Verdict.FAILED, "no answer within 2 s"),
    "read.timestamp": result("read.timestamp", Verdict.TOLERATED, "a number"),
    "read.unknown": result("read.unknown"),
    "write.value": result("write.value", Verdict.NOT_OFFERED, "no property is writable"),
    "write.all": result("write.all", Verdict.NOT_RUN, "--allow-unsafe lets it"),
}
KNOWN = tuple(attrs.evolve(all_cases()[0], id=id, title=f"The title of {id}") for id in OUTCOMES)


class Server:
    """A server as the plugin sees it: how often it was looked for, with what, and which cases were run."""

    def __init__(self) -> None:
        self.prepared: list[tuple[str, ConformOptions]] = []
        self.ran: list[str] = []
        self.missing = False

    @property
    def found_by(self) -> Callable[..., Any]:
        async def find(options: ConformOptions, network: object, url: str) -> Any:
            self.prepared.append((url, options))
            if self.missing:
                raise Unreachable(url, "nothing is there")
            return url

        return find

    async def run_case(self, shared: str, case: Case) -> Result:
        self.ran.append(case.id)
        return OUTCOMES[case.id]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(ConformOptions, "find", made.found_by)
    monkeypatch.setattr(pytest_plugin, "run_case", made.run_case)
    monkeypatch.setattr(_run, "all_cases", lambda: KNOWN)
    return made


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run pytest in this process, in a folder of its own."""

    def run(*words: str) -> pytest.RunResult:
        left_out = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
        return pytester.runpytest_inprocess("-p", NAME, *left_out, "-W", "error", *words)

    return run


@pytest.mark.slow
def test_each_case_is_a_test_without_a_test_file(server: Server, run: Callable[..., Any]) -> None:
    ran = run("--lmos-url", URL, "-v", "-rsP")
    ran.assert_outcomes(passed=2, failed=1, skipped=2)
    text = ran.stdout.str()
    assert "collected 5 items\n" in text
    for id, outcome in (("read.value", "FAILED"), ("read.timestamp", "PASSED"), ("write.all", "SKIPPED")):
        assert re.search(rf"^lmos::{id} {outcome}", text, re.MULTILINE)
    assert "not offered: no property is writable" in text
    assert "not run: --allow-unsafe lets it" in text
    failures = text.partition("= FAILURES =")[2].partition("= PASSES =")[0]
    assert "read.value: The title of read.value" in failures
    assert "  expected a propertyReading\n  saw      no answer within 2 s\n" in failures
    assert "pytest_plugin.py" not in failures
    assert re.search(r"Captured tolerated call.*\ntolerated    read.timestamp", text)
    assert "tolerated  read.timestamp: a number\n" in text
    assert "5 cases: 1 passed, 1 tolerated, 1 FAILED, 1 not offered, 1 not run\n" in text
    assert len(server.prepared) == 1, "the description is looked for once"


@pytest.mark.slow
def test_options_say_how_it_is_judged(
    server: Server, run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    pytester.makefile(".yaml", hints="fails: {action: explode}")
    words = ("--lmos-level", "spec", "--lmos-seed", "7", "--lmos-patience", "1500ms", "--lmos-thing", "urn:a")
    more = ("--lmos-allow-unsafe", "--lmos-hints", "hints.yaml", "--lmos-header", "X-Key: secret")
    run("--lmos-url", URL, *words, *more, "--lmos-case", "read.*", "--lmos-case", "write.all")
    ((url, options),) = server.prepared
    assert (url, options.level, options.seed, options.patience) == (URL, Level.SPEC, 7, 1.5)
    assert (options.thing, options.allow_unsafe, options.hints.fails.action) == ("urn:a", True, "explode")
    assert (options.headers(URL), options.headers("ws://elsewhere")) == (((b"X-Key", b"secret"),), ())
    assert server.ran == ["read.value", "read.timestamp", "read.unknown", "write.all"]


@pytest.mark.slow
def test_cases_are_chosen_as_tests_are(server: Server, run: Callable[..., Any]) -> None:
    ran = run("--lmos-url", URL, "-k", "read and not value")
    assert "collected 5 items / 3 deselected / 2 selected" in ran.stdout.str()
    assert server.ran == ["read.timestamp", "read.unknown"]
    ran = run("--lmos-url", URL, "--collect-only", "-q")
    assert len(server.prepared) == 1
    assert [line for line in ran.outlines if "::" in line] == [f"lmos::{case.id}" for case in KNOWN]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lmos-case", "read.vlue"), "--lmos-case: no case is called 'read.vlue'; 'read.value' is"),
        (("--lmos-patience", "soon"), "--lmos: "),
        (("--lmos-patience", "0s"), "patience must be above 0"),
        (("--lmos-hints", "none.yaml"), "none.yaml"),
        (("--lmos-header", "oops"), "--lmos-header is to be NAME:VALUE"),
        (("--lmos-level", "strict"), "invalid choice"),
    ],
)
def test_a_wrong_usage(words: tuple[str, ...], said: str, server: Server, run: Callable[..., Any]) -> None:
    ran = run("--lmos-url", URL, *words)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert said in ran.stderr.str() + ran.stdout.str()
    assert "Traceback" not in ran.stderr.str() + ran.stdout.str()


def test_a_wrong_usage_beside_test_files(run: Callable[..., Any], pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_conforms(lmos_case):\n    lmos_case()\n")
    ran = run("--lmos-case", "nothing.*")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert "no case is called 'nothing.*'" in ran.stderr.str()


@pytest.mark.slow
def test_what_is_not_reached_is_looked_for_once(server: Server, run: Callable[..., Any]) -> None:
    server.missing = True
    ran = run("--lmos-url", URL)
    ran.assert_outcomes(failed=5)
    assert f"{URL}: nothing is there" in ran.stdout.str()
    assert len(server.prepared) == 1


@pytest.mark.slow
def test_a_fixture_may_start_the_server(
    server: Server, run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import attrs
        import pytest

        @pytest.fixture(scope="module")
        def lmos_url():
            yield "http://127.0.0.1:9999"

        @pytest.fixture(scope="session")
        def lmos_options(lmos_options):
            return attrs.evolve(lmos_options, seed=3)

        def test_conforms(lmos_case):
            assert lmos_case().id == lmos_case.case.id

        def test_other():
            pass
        """
    )
    ran = run("-v")
    ran.assert_outcomes(passed=3, failed=1, skipped=2)
    assert ran.stdout.str().count("::test_conforms[read.value] FAILED") == 1
    assert [(url, options.seed) for url, options in server.prepared] == [("http://127.0.0.1:9999", 3)]
    run("--lmos-url", URL, "-v", "-k", "timestamp").assert_outcomes(passed=1, deselected=5)
    assert server.prepared[-1][0] == "http://127.0.0.1:9999", "no tests beside those that are written"


@pytest.mark.slow
def test_without_a_url_nothing_is_judged(
    server: Server, run: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    assert run().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    pytester.makepyfile("def test_conforms(lmos_case):\n    lmos_case()\n")
    ran = run("-k", "read.value")
    ran.assert_outcomes(errors=1, deselected=4)
    assert "give --lmos-url URL, or override the fixture lmos_url" in ran.stdout.str()
    assert server.prepared == []


def test_workers_take_turns_at_a_server() -> None:
    def config(run: str) -> Any:
        return SimpleNamespace(workerinput={"testrunuid": run})

    run = uuid4().hex
    order: list[str] = []

    def other() -> None:
        with pytest_plugin._alone(config(run), URL):
            order.append("other")

    thread = threading.Thread(target=other)
    with pytest_plugin._alone(config(run), URL):
        with pytest_plugin._alone(config(run), f"{URL}1"), pytest_plugin._alone(config(f"{run}1"), URL):
            thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


@pytest.mark.slow
def test_a_real_server_in_other_processes(tmp_path: Path) -> None:
    with near() as url:
        words = [
            "-p",
            "xdist",
            "-p",
            NAME,
            "-n",
            "1",
            "--lmos-url",
            url,
            "--lmos-case",
            "handshake.*",
            "-v",
            "-W",
            "error",
        ]
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "PASSED lmos::handshake.accept" in ended.stdout
    assert " cases: " in ended.stdout


ROWS = (
    # the server, its description, who is asked, whether headers go there
    ("http://here:1/a", None, "http://here:2/b", True),
    ("http://here:1/a", None, "http://elsewhere/b", False),
    ("http://here:1/a", "http://elsewhere/td", "ws://elsewhere/ws", True),
    ("ws://here/ws", "td.json", "ws://elsewhere/ws", True),
)


@pytest.mark.parametrize(("url", "description", "asked", "goes"), ROWS)
def test_headers_go_to_those_who_were_named(
    url: str, description: str | None, asked: str, goes: bool
) -> None:
    header = ((b"X-Key", b"secret"),)
    options = ConformOptions(description=description, headers=lambda _: header)
    assert pytest_plugin.to_the_named(options, url).headers(asked) == (header if goes else ())
