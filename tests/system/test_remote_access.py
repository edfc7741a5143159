"""Access to remote agents of a file: authorities, certificates, tokens and passwords, over real TLS."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from lmos_actors._core import Spelling, refusal_remedy
from lmos_actors.errors import AgentUnavailable, ConfigError, ConnectFailed, Forbidden, Unauthorized
from lmos_actors.files import FileError
from lmos_actors.scenario import scenario_schema
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from lmos_actors.security import credential_of
from lmos_actors.system import RemoteAccess
from tests.commands import called, started
from tests.docs.test_documents import DOCS, Block, agrees, blocks, commands
from tests.scenario.test_remote import CAST

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario.format import Resolved

ALICE, BOB, CAROL = "the-secret-of-alice", "the-secret-of-bob", "the-secret-of-carol"
SECRETS = (ALICE, BOB, CAROL, "hunter2")

RULES = """
schemes:
  - scheme: bearer
    tokens: {alice: file:alice, bob: file:bob}
  - scheme: basic
    users: {carol: file:carol}
  - scheme: certificates
    principals: {eve: "name:eve.example"}
access:
  "*": {write: [alice], invoke: [alice, carol, eve]}
"""

CERTIFICATES_ALONE = """
schemes:
  - scheme: certificates
    principals: {eve: "name:eve.example"}
"""

HEAD = """\
lmos: scenario/v1
name: access
world: websocket
agents:
  clock:
    from: remote
    url: {url}
"""
STEPS = """\
steps:
  - {do: invoke, id: tick, target: clock, action: tick, input: {by: 2}}
  - {do: expect, that: output, of: tick, ge: 2}
"""


class Place:
    """The folder of a project with certificates, secrets and agents; two nodes serve a clock of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.urls: dict[str, str] = {}
        authority, other = trustme.CA(), trustme.CA()
        past = datetime.now(UTC) - timedelta(days=1)
        made = {
            "server.pem": authority.issue_cert("127.0.0.1"),
            "eve.pem": authority.issue_cert("eve.example"),
            "old.pem": authority.issue_cert("eve.example", not_after=past),
            "mallory.pem": other.issue_cert("eve.example"),
        }
        for name, each in made.items():
            (root / name).write_bytes(each.private_key_and_cert_chain_pem.bytes())
        (root / "eve.key").write_bytes(made["eve.pem"].private_key_pem.bytes())
        (root / "eve.crt").write_bytes(made["eve.pem"].cert_chain_pems[0].bytes())
        (root / "other.key").write_bytes(made["mallory.pem"].private_key_pem.bytes())
        (root / "ca.pem").write_bytes(authority.cert_pem.bytes())
        (root / "other-ca.pem").write_bytes(other.cert_pem.bytes())
        for name, text in {"alice": ALICE, "bob": BOB, "carol": CAROL, "wrong": "hunter2"}.items():
            (root / name).write_text(text)
        (root / "pyproject.toml").write_text("")
        (root / "cast_of_remote.py").write_text(CAST.replace("to: int):", "to: int) -> int:"))
        (root / "rules.yaml").write_text(RULES)
        (root / "certificates.yaml").write_text(CERTIFICATES_ALONE)

    def write(self, text: str, *, of: str = "rules") -> Path:
        file = self.root / "access.yaml"
        file.write_text(text.replace("{url}", self.urls.get(of, "https://there.example")))
        return file

    def load(self, entry: str, *, of: str = "rules", more: str = STEPS, run: bool = True) -> Resolved:
        """Read a file whose clock has these lines, with another part after it."""
        lines = "".join(f"    {line}\n" for line in entry.splitlines())
        return load_scenario(self.write(HEAD + lines + more, of=of), access=RemoteAccess() if run else None)

    def run(self, entry: str, *, of: str = "rules", more: str = STEPS) -> RunResult:
        resolved = self.load(entry, of=of, more=more)
        return run_cell(resolved, resolved.cells[0], 1, real_limit=20)


SERVE = [
    "serve",
    "clock=cast_of_remote.py:Clock",
    "--listen",
    "wss://127.0.0.1:0",
    "--cert",
    "server.pem",
    "--client-ca",
    "ca.pem",
]


@contextmanager
def served(words: list[str], folder: Path) -> Iterator[str]:
    """Serve an agent in another process, for as long as the block lasts; return its URL."""
    url = ""
    with started(words, folder, stderr=2) as serving:
        assert serving.stdout is not None
        for line in serving.stdout:
            said = json.loads(line)
            url = said["url"] if said["event"] == "agent" else url
            if said["event"] == "ready":
                break
        try:
            yield url
        finally:
            serving.terminate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path, modules = list(sys.path), set(sys.modules)
    made = Place(tmp_path_factory.mktemp("access"))
    with ExitStack() as stack:
        for name in ("rules", "certificates"):
            words = [*SERVE, "--security", f"{name}.yaml"]
            made.urls[name] = stack.enter_context(served(words, made.root))
        yield made
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name == "cast_of_remote":
                del sys.modules[name]


@pytest.fixture(autouse=True)
def secrets_in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMOS_TEST_ALICE", ALICE)
    monkeypatch.setenv("LMOS_TEST_CAROL", CAROL)


@pytest.mark.parametrize(
    ("entry", "of"),
    [
        ("ca: ca.pem\nbearer: env:LMOS_TEST_ALICE", "rules"),
        ("ca: ca.pem\nbearer: file:alice", "rules"),
        ("ca: ca.pem\nbasic: carol:env:LMOS_TEST_CAROL", "rules"),
        ("ca: ca.pem\nbasic: carol:file:carol", "rules"),
        ("ca: ca.pem\ncert: eve.pem", "rules"),
        ("ca: ca.pem\ncert: eve.pem", "certificates"),
        ("ca: ca.pem\ncert: eve.crt\nkey: eve.key", "certificates"),
        ("ca: ca.pem\ncert: eve.pem\nbearer: file:alice", "rules"),
    ],
)
def test_an_entry_says_what_is_trusted_and_presented(place: Place, entry: str, of: str) -> None:
    assert place.run(entry, of=of).failures == ()


def test_entries_for_one_server_present_each_their_own(place: Place) -> None:
    """Also where an agent of the file is given them."""
    more = """\
  bob: {from: remote, url: "{url}", ca: ca.pem, bearer: file:bob, use: "cast_of_remote.py:Clock"}
  reader: {from: agent, use: "cast_of_remote.py:Reader", args: {clock: $(agents.bob)}}
steps:
  - {do: write, target: clock, property: ticks, value: 7}
  - {do: write, target: bob, property: ticks, value: 8, error: {is: Forbidden, contains: bob may not write}}
  - {do: invoke, target: bob, action: tick, error: {is: Forbidden}}
  - {do: invoke, id: read, target: reader, action: read}
  - {do: expect, that: output, of: read, equals: 7}
"""
    assert place.run("ca: ca.pem\nbearer: file:alice", more=more).failures == ()


def test_a_matrix_gives_principals(place: Place) -> None:
    more = f"matrix: {{who: [{{name: alice, may: file:alice}}, {{name: bob, may: file:bob}}]}}\n{STEPS}"
    resolved = place.load("ca: ca.pem\nbearer: $(matrix.who.may)", more=more)
    results = [run_cell(resolved, cell, 1, real_limit=20) for cell in resolved.cells]
    assert [result.ended for result in results] == ["passed", "failed"]
    (failure,) = results[1].failures
    assert failure.saw == "Forbidden: bob may not invoke here; its access rules must allow that"
    assert failure.place.endswith("access.yaml:12:5")


REFUSED = [
    ("ca: ca.pem", "rules", "credentials are needed; give credentials with \"bearer: env:NAME\","),
    ("ca: ca.pem\nbearer: file:wrong", "rules", "are not accepted; is \"bearer\" what it accepts?"),
    ("ca: ca.pem\nbasic: carol:file:wrong", "rules", "are not accepted; is \"basic\" what it accepts?"),
    ("ca: ca.pem", "certificates", "wants a client certificate; show a certificate that it accepts"),
    ("ca: ca.pem\ncert: mallory.pem", "certificates", "does not know the authority of the client"),
    ("bearer: file:alice", "rules", "is not accepted: "),
    ("ca: other-ca.pem\nbearer: file:alice", "rules", 'name its authority with "ca: FILE"'),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "of", "said"), REFUSED)
def test_a_refusal_is_the_verdict_of_the_start_and_names_what_helps(
    place: Place, entry: str, of: str, said: str
) -> None:
    result = place.run(entry, of=of)
    assert result.ended == "could not run"
    (failure,) = result.failures
    assert failure.what == "start clock"
    assert failure.place.endswith("access.yaml:5:3")
    assert said in failure.saw
    assert not any(secret in repr(result) for secret in SECRETS)


MISSING = [
    ("bearer: env:LMOS_TEST_NOBODY", "8:13", "env:LMOS_TEST_NOBODY: the variable is not set"),
    ("bearer: file:none", "8:13", "none: No such file or directory"),
    ("basic: carol:env:LMOS_TEST_NOBODY", "8:12", "env:LMOS_TEST_NOBODY: the variable is not set"),
    ("ca: none.pem", "8:9", "none.pem: cannot be read: No such file or directory"),
    ("ca: alice", "8:9", "alice: holds no certificates of authorities"),
    ("cert: none.pem", "8:11", "none.pem: cannot be read: No such file or directory"),
    ("cert: old.pem", "8:11", "old.pem: the certificate has expired"),
    ("cert: eve.crt", "8:11", "eve.crt: holds no private key: name the file with the key"),
    ("cert: eve.crt\nkey: other.key", "9:10", "other.key: the key does not belong to the certificate in "),
    ("cert: eve.crt\nkey: none.key", "9:10", "none.key: cannot be read: No such file or directory"),
    ("cert: eve.key\nkey: eve.crt", "8:11", "swap the certificate and its key"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "where", "said"), MISSING)
def test_what_is_missing_is_a_mistake_of_a_run_and_a_warning_elsewhere(
    place: Place, entry: str, where: str, said: str
) -> None:
    with pytest.raises(FileError) as caught:
        place.load(entry)
    (mistake,) = caught.value.mistakes
    assert (f"{mistake.line}:{mistake.column}", said in mistake.message) == (where, True), mistake
    notes = place.load(entry, run=False).notes
    (note,) = [each for each in notes if said in each.message]
    assert (f"{note.line}:{note.column}", note.message) == (where, f"{mistake.message}; a run needs it")


WRONG = [
    ("bearer: hunter2", "8:13", "a reference to a secret is needed, env:NAME or file:PATH"),
    ("bearer: 1234", "8:13", "expected a reference to a secret, env:NAME or file:PATH, saw a number"),
    ("bearer: env:hunter2 x", "8:13", "a reference to a secret is needed"),
    ("bearer: [hunter2]", "8:13", "expected a reference to a secret, env:NAME or file:PATH, saw a list"),
    ("basic: carol:hunter2", "8:12", "a reference to a secret is needed, after the user: USER:env:NAME"),
    ("basic: env:hunter2", "8:12", "a reference to a secret is needed, after the user: USER:env:NAME"),
    ("basic: hunter2", "8:12", "a reference to a secret is needed, after the user: USER:env:NAME"),
    ("token: hunter2", "8:5", 'unknown key "token"'),
    ("baerer: hunter2", "8:5", 'unknown key "baerer", did you mean "bearer"?'),
    ("bearer: hunter2\nsee: 1", "9:5", 'unknown key "see"'),
    ("bearer: env:LMOS_TEST_ALICE\nbasic: carol:file:carol", "9:12", 'give "bearer" or "basic", not both'),
    ("bearer: env:LMOS_TEST_ALICE\napikey: file:key", "9:13", 'give "bearer" or "apikey", not both'),
    ("apikey: hunter2", "8:13", "a reference to a secret is needed, env:NAME or file:PATH"),
    ("key: eve.key", "8:10", '"key" goes with "cert"'),
    ("insecure: yes", "8:15", "expected true or false"),
]


@pytest.mark.parametrize(("entry", "where", "said"), WRONG)
def test_mistakes_are_found_without_a_network_and_repeat_no_secret(
    place: Place, entry: str, where: str, said: str
) -> None:
    with pytest.raises(FileError) as caught:
        place.load(entry, run=False)
    found = [(f"{each.line}:{each.column}", each.message) for each in caught.value.mistakes]
    assert any(there == where and said in message for there, message in found), found
    assert "hunter2" not in str(caught.value)
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "where", "said"),
    [
        ("{from: remote, url: 'http://there.example/a', bearer: file:alice}", "5:64",
         "credentials for http://there.example/a would be sent without TLS, readable by anyone on the way: "
         "use https, or insecure: true"),
        ("{from: remote, url: 'ws://there.example/a', basic: 'a:file:alice'}", "5:61",
         "use wss, or insecure: true"),
        ("{from: remote, description: clock.td.json, bearer: file:alice}", "5:61",
         '"bearer" goes with "url": a description may lead anywhere'),
        ("{from: remote, url: 'https://bob:hunter2@there.example/a'}", "5:30",
         "names of users and passwords do not belong in a URL"),
        ("{from: remote, url: 'there.example', bearer: hunter2, us: 1}", "5:64", 'unknown key "us"'),
    ],
)  # fmt: skip
def test_where_credentials_may_go(place: Place, entry: str, where: str, said: str) -> None:
    text = f"lmos: scenario/v1\nname: access\nworld: websocket\nagents:\n  clock: {entry}\n{STEPS}"
    with pytest.raises(FileError) as caught:
        load_scenario(place.write(text))
    found = [(f"{each.line}:{each.column}", each.message) for each in caught.value.mistakes]
    assert any(there == where and said in message for there, message in found), found
    assert "hunter2" not in str(caught.value)


def test_insecure_allows_credentials_without_tls(place: Place) -> None:
    text = HEAD.replace("{url}", "http://there.example/a") + "    bearer: file:alice\n    insecure: true\n"
    assert load_scenario(place.write(text + STEPS), access=RemoteAccess()).cells


# --- the command


def ran(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return called(words, place.root, timeout=60)


@pytest.mark.slow
def test_options_are_for_entries_that_say_nothing(place: Place) -> None:
    place.write(HEAD + STEPS)
    origin = place.urls["rules"].removesuffix("/agents/clock")
    words = ["run", "access.yaml", "--ca", "ca.pem", "--credential", f"{origin}=bearer:file:wrong"]
    refused = ran(place, *words)
    assert refused.returncode == 3
    assert "are not accepted" in refused.stdout
    assert f"--seed 1 --ca ca.pem --credential {origin}=bearer:file:" in refused.stdout
    assert ran(place, *words[:-1], f"{origin}=bearer:file:alice").returncode == 0
    assert (
        ran(place, "run", "access.yaml", "--ca", "ca.pem", "--cert", "eve.crt", "--key", "eve.key").returncode
        == 0
    )
    place.write(HEAD + "    bearer: file:alice\n" + STEPS)
    assert ran(place, *words, "-j", "2").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--key", "eve.key"], "--key: goes with --cert"),
        (["--ca", "none.pem"], "none.pem: cannot be read"),
        (["--cert", "old.pem"], "old.pem: the certificate has expired"),
        (["--credential", "http://there.example=bearer:file:alice"], "or --insecure"),
        (["--credential", "https://there.example=bearer:hunter2"], "a reference to a secret is needed"),
        (["--credential", "https://there.example=bearer:env:LMOS_TEST_NOBODY"], "the variable is not set"),
    ],
)
def test_mistakes_of_the_options(place: Place, words: list[str], said: str) -> None:
    place.write(HEAD + STEPS)
    ended = ran(place, "run", "access.yaml", *words)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout


@pytest.mark.slow
def test_no_secret_is_in_anything_that_is_written(place: Place) -> None:
    steps = STEPS.replace("ge: 2", "ge: 1000000")  # a failed run says most
    place.write(HEAD + "    ca: ca.pem\n    cert: eve.pem\n    bearer: file:alice\n" + steps)
    reports = ["--log", "log.jsonl", "--html", "page.html", "--junit", "junit.xml", "--sequence", "seq.mmd"]
    said = [ran(place, "run", "access.yaml", *more) for more in (["-v", *reports], ["--json"])]
    assert [ended.returncode for ended in said] == [1, 1]
    written = [(place.root / name).read_text() for name in reports[1::2]]
    assert all(written)
    key = (place.root / "eve.key").read_text().splitlines()[1]
    for text in [*written, *(ended.stdout + ended.stderr for ended in said)]:
        assert not any(secret in text for secret in (*SECRETS, key))


def test_validate_needs_neither_network_nor_secrets(place: Place) -> None:
    text = HEAD.replace("{url}", "https://there.example/a") + "    bearer: env:LMOS_TEST_NOBODY\n" + STEPS
    place.write(text)
    ended = ran(place, "validate", "access.yaml")
    assert ended.returncode == 0
    assert (
        "access.yaml:8:13: note: env:LMOS_TEST_NOBODY: the variable is not set; a run needs it"
        in ended.stderr
    )
    refused = ran(place, "run", "access.yaml", "--json")
    assert refused.returncode == 2
    (mistake,) = json.loads(refused.stdout)["mistakes"]
    assert (mistake["file"], mistake["line"], mistake["column"]) == ("access.yaml", 8, 13)


# --- the guide


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Block], Path, str]]:
    """The blocks of the guide, a folder with its files and certificates, and the port of its agent."""
    found = blocks((DOCS / "guides/test-running-agents.md").read_text(encoding="utf-8"))
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    for name, host in {"server": "127.0.0.1", "alice": "alice.example"}.items():
        made = authority.issue_cert(host)
        (tmp_path / f"{name}.pem").write_bytes(made.cert_chain_pems[0].bytes())
        (tmp_path / f"{name}.key").write_bytes(made.private_key_pem.bytes())
    for block in found:
        if block.title:
            (tmp_path / block.title).write_text(block.body, encoding="utf-8")
    monkeypatch.setenv("BOB_TOKEN", BOB)
    (serve,) = [command for block in found for command in commands(block) if command.arguments[0] == "serve"]
    words = [word.replace(":8443", ":0") for word in serve.arguments]
    with served(words, tmp_path) as url:
        port = url.removeprefix("https://127.0.0.1:").partition("/")[0]
        for file in tmp_path.glob("*.yaml"):
            file.write_text(file.read_text().replace("8443", port))
        yield found, tmp_path, port


@pytest.mark.slow
def test_the_commands_of_the_guide_that_need_its_agent(guide: tuple[list[Block], Path, str]) -> None:
    found, folder, port = guide
    examples = [block for block in found if "test_remote_access.py runs it" in block.marker]
    for block in examples:
        for command in commands(block):
            words = tuple(word.replace("8443", port) for word in command.arguments)
            ended = called(words, folder, timeout=60)
            assert (ended.returncode, agrees(command.listing, ended.stdout)) == (0, True), ended
    assert len(examples) == 2


# --- the parts


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bearer", "env:TOKEN"),
        ("bearer", "file:../token"),
        ("bearer", "env:1"),
        ("bearer", "token"),
        ("basic", "bob:env:BOB"),
        ("basic", "bob:file:a b"),
        ("basic", "env:BOB"),
        ("basic", ":env:BOB"),
    ],
)
def test_the_schema_of_editors_takes_what_the_reader_takes(kind: str, text: str) -> None:
    import jsonschema_rs

    schema: Any = scenario_schema()["$defs"]["Remote"]["properties"][kind]
    try:
        credential_of(kind, text)
        takes = True
    except ConfigError:
        takes = False
    assert jsonschema_rs.is_valid(schema, text) is takes


def test_access_is_plain_data_and_reads_no_secret() -> None:
    access = RemoteAccess(ca="ca.pem", credentials=[["https://a.example", "bearer:env:LMOS_TEST_NOBODY"]])
    assert access == RemoteAccess(
        ca="ca.pem", credentials=(("https://a.example", "bearer:env:LMOS_TEST_NOBODY"),)
    )
    assert "LMOS_TEST_NOBODY" in repr(access)


def broken(failure: ConnectFailed) -> AgentUnavailable:
    error = AgentUnavailable("clock", "no connection")
    error.__cause__ = failure
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unauthorized("who?"), "credentials"),
        (Forbidden("no"), "rules"),
        (ConnectFailed("wss://a", "401", status=401), "credentials"),
        (ConnectFailed("wss://a", "the server wants one", certificate="client"), "certificate"),
        (ConnectFailed("wss://a", "self-signed", certificate="server"), "authority"),
        (broken(ConnectFailed("wss://a", "401", status=401)), "credentials"),
        (broken(ConnectFailed("wss://a", "the server wants one", certificate="client")), "certificate"),
        (broken(ConnectFailed("wss://a", "refused")), ""),
        (AgentUnavailable("clock", "stopped"), ""),
    ],
)
def test_what_helps_against_a_refusal(error: Exception, said: str) -> None:
    assert refusal_remedy(error, Spelling("credentials", "certificate", "authority", "rules")) == said
