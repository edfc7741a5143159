"""The conformance kit in pytest: each case is a test.

`pytest -p lmos_actors.conformance.pytest_plugin --lmos-url URL` judges a server, and needs no test file. To
start the server in a fixture, override the fixture `lmos_url` and write

    def test_conforms(lmos_case):
        lmos_case()

which is run for each case. pytest does not rewrite the assertions of this module: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
import trio

from lmos_actors.errors import ConfigError
from lmos_actors.files import Duration
from lmos_actors.transport import TcpNetwork, endpoint_of

from ._run import ConformOptions, chosen
from .card import LMOS_LEVELS, Level, Verdict, case_lines, counted, cut
from .session import run_case
from .target import Hints
from .wire import Unreachable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from .card import Result
    from .session import Case, CaseContext, LmosServer
    from .wire import Headers

WHERE: Final = "lmos"
"""The beginning of the ids of tests without a test file: `lmos::letter.reading`."""

_FIXTURE: Final = "lmos_case"
_ID, _VERDICT, _SEEN = "lmos_case", "lmos_verdict", "lmos_seen"
_ALONE: Final = (
    "give --lmos-url URL, or override the fixture lmos_url to give the URL of a server that you start"
)


# --- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lmos-url`, and the options for judging the server."""
    group = parser.getgroup("lmos_conformance", "conformance of LMOS servers")
    levels = [level.value for level in LMOS_LEVELS]
    group.addoption("--lmos-url", metavar="URL", help="judge this server: a test for each case")
    group.addoption("--lmos-level", choices=levels, default="lenient", help="how strictly (lenient)")
    text = "only cases with this id, such as 'letter.*'; may be given several times"
    group.addoption("--lmos-case", metavar="PATTERN", action="append", default=[], help=text)
    text = "invoke actions that are not safe, too, and write other values to properties"
    group.addoption("--lmos-allow-unsafe", action="store_true", help=text)
    group.addoption("--lmos-hints", metavar="FILE", help="what the description does not have")
    group.addoption("--lmos-seed", metavar="N", type=int, default=0, help="what inputs are drawn with (0)")
    group.addoption("--lmos-patience", metavar="2s", default="2s", help="how long an answer may take (2s)")
    group.addoption("--lmos-thing", metavar="ID", help="the id of the thing, where there are several")
    group.addoption("--lmos-description", metavar="FILE|URL", help="where the description is")
    text = "send this header along; may be given several times"
    group.addoption("--lmos-header", metavar="NAME:VALUE", action="append", default=[], help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Validate the options before tests are collected. Raises pytest.UsageError."""
    _cases(config)
    options_of(config)


def options_of(config: pytest.Config) -> ConformOptions:
    """Return the command line's options for judging. Blocks on the disk. Raises pytest.UsageError."""
    given: Any = config.getoption
    try:
        hints = given("--lmos-hints")
        headers = tuple(map(_header, given("--lmos-header")))
        return ConformOptions(
            level=Level(given("--lmos-level")),
            patience=float(Duration.parse(given("--lmos-patience"))),
            seed=given("--lmos-seed"),
            allow_unsafe=given("--lmos-allow-unsafe"),
            hints=Hints() if hints is None else Hints.load(hints),
            thing=given("--lmos-thing"),
            description=given("--lmos-description"),
            headers=lambda _: headers,
        )
    except (ConfigError, ValueError) as error:
        raise pytest.UsageError(f"--lmos: {error}") from None


def _header(text: str) -> tuple[bytes, bytes]:
    name, colon, value = text.partition(":")
    if not (colon and name.isascii() and value.isascii() and value.isprintable() and name.isprintable()):
        raise ValueError("--lmos-header is to be NAME:VALUE, in printable ASCII")
    return name.strip().encode(), value.strip().encode()


def _cases(config: pytest.Config) -> tuple[Case[CaseContext], ...]:
    given: Any = config.getoption("--lmos-case")
    try:
        return chosen(given)
    except ConfigError as error:
        raise pytest.UsageError(f"--lmos-case: {error}") from None


# --- judging


@attrs.define(eq=False)
class _Known:
    """The result of the search for a server: the server, or the reason why it was not found.

    `options` are those for judging the server.
    """

    options: ConformOptions
    server: LmosServer | None = None
    why: str = ""


_known: Final = pytest.StashKey[dict[str, _Known]]()
_options: Final = pytest.StashKey[ConformOptions]()


def _judged(config: pytest.Config, url: str, options: ConformOptions, case: Case[CaseContext]) -> Result:
    """Run a case against a server, and return the result. Raises pytest.fail.Exception.

    The server is searched for only once.
    """
    servers = config.stash.setdefault(_known, {})
    known = servers.get(url)
    if known is None or known.options is not options:
        known = servers[url] = _Known(options)

    async def judge() -> Result:
        if known.server is None:
            known.server = await to_the_named(options, url).find(TcpNetwork(), url)
        return await run_case(known.server, case)

    if not known.why:
        try:
            with _alone(config, url):
                return trio.run(judge)
        except (Unreachable, ConfigError) as error:
            known.why = str(error)
    pytest.fail(known.why, pytrace=False)


def to_the_named(options: ConformOptions, url: str) -> ConformOptions:
    """Return options whose headers go only to the hosts that the user names.

    A description may lead to other hosts. If a file is named, the headers go to every host. Raises
    ConfigError.
    """
    named = (url, options.description or url)
    if not all("://" in place for place in named):
        return options
    hosts = frozenset(endpoint_of(place).host for place in named)

    def headers(asked: str) -> Headers:
        return options.headers(asked) if endpoint_of(asked).host in hosts else ()

    return attrs.evolve(options, headers=headers)


@contextmanager
def _alone(config: pytest.Config, url: str) -> Generator[None]:
    """Let only one process of pytest-xdist use a server at a time, as events of one case reach the others."""
    run: Any = getattr(config, "workerinput", {}).get("testrunuid")
    if run is None:
        yield
        return
    name = hashlib.sha256(f"{run} {url}".encode()).hexdigest()
    path = Path(tempfile.gettempdir(), f"lmos-conform-{name[:32]}")
    descriptor = _locked(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # a process that waits for it sees that it is gone
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Open a file and lock it, waiting until no other process holds the lock."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _report(item: pytest.Item, result: Result) -> None:
    """End the test according to the verdict. Raises pytest.fail.Exception and pytest.skip.Exception."""
    item.user_properties += [(_ID, result.id), (_VERDICT, result.verdict.value), (_SEEN, result.seen)]
    text = "\n".join(line.removeprefix("   ") for line in case_lines(result))
    if result.verdict is Verdict.FAILED:
        pytest.fail(text, pytrace=False)
    if result.verdict is Verdict.TOLERATED:
        item.add_report_section("call", "tolerated", text)
    if result.verdict in (Verdict.NOT_OFFERED, Verdict.NOT_RUN):
        pytest.skip(f"{result.verdict.value}: {result.seen}")


# --- tests without a test file


class CaseItem(pytest.Item):
    """The test of a case."""

    case: Case[CaseContext]

    def runtest(self) -> None:
        """Run the case. Raises pytest.fail.Exception and pytest.skip.Exception."""
        url: Any = self.config.getoption("--lmos-url")
        _report(self, _judged(self.config, url, self.config.stash[_options], self.case))

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the place and the name of the test for reports."""
        return self.config.rootpath / WHERE, None, f"{self.case.id}: {self.case.title}"


class Cases(pytest.Collector):
    """The collector of the tests of cases."""

    cases: Sequence[Case[CaseContext]] = ()

    def collect(self) -> Iterator[CaseItem]:
        """Return a test for each case."""
        for case in self.cases:
            item: CaseItem = _made(CaseItem, self, name=case.id)
            item.case = case
            yield item


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each case if a URL is given, unless tests use the fixture `lmos_case`.

    Raises pytest.UsageError.
    """
    is_taken = any(_FIXTURE in getattr(item, "fixturenames", ()) for item in items)
    if config.getoption("--lmos-url") is None or is_taken:
        return
    config.stash[_options] = options_of(config)
    found: Cases = _made(Cases, session, name=WHERE, nodeid=WHERE)
    found.cases = _cases(config)
    items += session.genitems(found)


def _made(cls: Any, parent: pytest.Collector, **facts: Any) -> Any:
    return cls.from_parent(parent, **facts)  # pytest leaves its types open


# --- tests in a test file


@attrs.frozen
class Trial:
    """A case to be tried on the server at `url`: the value of the fixture `lmos_case`."""

    case: Case[CaseContext]
    url: str
    options: ConformOptions
    item: pytest.Item

    def __call__(self) -> Result:
        """Run the case, and return its result.

        Blocks until it is over; if the server runs in an event loop of the test itself, call this in a
        thread. Raises pytest.fail.Exception if the case failed, pytest.skip.Exception if it was not offered
        or not run.
        """
        result = _judged(self.item.config, self.url, self.options, self.case)
        _report(self.item, result)
        return result


@pytest.fixture(scope="session")
def lmos_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the server to judge, from `--lmos-url`.

    Test files that start a server override this fixture.
    """
    url: Any = request.config.getoption("--lmos-url")
    if url is None:
        pytest.fail(_ALONE, pytrace=False)
    return str(url)


@pytest.fixture(scope="session")
def lmos_options(request: pytest.FixtureRequest) -> ConformOptions:
    """Return the options of the command line. Tests may override this, for instance with attrs.evolve."""
    return options_of(request.config)


@pytest.fixture
def lmos_case(request: pytest.FixtureRequest, lmos_url: str, lmos_options: ConformOptions) -> Trial:
    """Return a case to call; the test is run once for each case."""
    return Trial(request.param, lmos_url, lmos_options, request.node)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that uses `lmos_case` with the chosen cases."""
    if _FIXTURE in metafunc.fixturenames:
        cases = _cases(metafunc.config)
        metafunc.parametrize(_FIXTURE, cases, ids=[case.id for case in cases], indirect=True)


# --- the sum


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of cases by verdict, and the tolerated cases."""
    stats: Any = terminalreporter.stats
    reported_cases = [
        dict(report.user_properties) for reports in stats.values() for report in reports if _is_told(report)
    ]
    if not reported_cases:
        return
    numbers = {verdict: sum(one[_VERDICT] == verdict.value for one in reported_cases) for verdict in Verdict}
    terminalreporter.section("conformance of LMOS servers")
    for one in reported_cases:
        if one[_VERDICT] == Verdict.TOLERATED.value:
            terminalreporter.line(f"tolerated  {one[_ID]}: {cut(one[_SEEN], 160)}")
    terminalreporter.line(f"{len(reported_cases)} case{'s' * (len(reported_cases) != 1)}: {counted(numbers)}")


def _is_told(report: Any) -> bool:
    return getattr(report, "when", "") == "call" and _VERDICT in dict(getattr(report, "user_properties", ()))
