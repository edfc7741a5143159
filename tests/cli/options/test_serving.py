"""Security on the command line: what `serve` and those who call are told, and what they say of mistakes."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pytest
import trustme

from lmos_actors.cli import main
from lmos_actors.cli.options._serving import ListenOptions, SecurityOptions, misfits
from tests.cli.test_serve import project as project, serving

if TYPE_CHECKING:
    from pathlib import Path

RULES = """
schemes:
  - scheme: bearer
    tokens: {alice: file:alice, bob: env:BOB_TOKEN}
access:
  slow: {invoke: [alice], read: anyone}
"""

CERTIFICATES = """
schemes:
  - scheme: certificates
    principals: {alice: "name:alice.example"}
"""


@cache
def certificates() -> dict[str, bytes]:
    """Certificates with their keys, by the names of files; `ca.pem` holds their authority."""
    authority, past = trustme.CA(), datetime.now(UTC) - timedelta(days=1)
    made = {
        "good.pem": authority.issue_cert("127.0.0.1"),
        "old.pem": authority.issue_cert("127.0.0.1", not_after=past),
        "alice.pem": authority.issue_cert("alice.example"),
    }
    held = {name: each.private_key_and_cert_chain_pem.bytes() for name, each in made.items()}
    return {**held, "ca.pem": authority.cert_pem.bytes()}


def ended(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return caught.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "ws://0.0.0.0:0"], "--listen: 'ws://0.0.0.0:0' is reached from other machines"),
        (["--listen", "ws://0.0.0.0:0"], "access rules by --security FILE"),
        (["--listen", "ws://0.0.0.0:0", "--security", "rules.yaml"], "use wss, with --cert FILE"),
        (["--listen", "ws://0.0.0.0:0", "--security", "rules.yaml"], "or say --insecure"),
        (["--security", "certificates.yaml"], "--cert FILE and --client-ca FILE"),
        (["--security", "none.yaml"], "none.yaml"),
        (["--security", "wrong.yaml"], "wrong.yaml:3:5"),
        (["--security", "literal.yaml"], "a reference to a secret is needed"),
        (["--security", "rules.yaml"], "BOB_TOKEN: the variable is not set"),
        (["--client-ca", "ca.pem"], "--client-ca: goes with --cert"),
        (["--cert", "good.pem"], "--cert: goes with an address that begins with wss://"),
        (["--present-key", "good.pem"], "--present-key: goes with --present-cert"),
        (["--present-cert", "old.pem"], "old.pem: the certificate has expired"),
        (["--cert", "old.pem"], "old.pem: the certificate has expired"),
        (
            ["--cert", "good.pem", "--key", "old.pem"],
            "old.pem: the key does not belong to the",
        ),
        (["--cert", "wrong.yaml"], "holds no certificate"),
        (["--origin", "*"], "is not an origin"),
        (["--ca", "none.pem"], "none.pem: cannot be read"),
        (["--register", "localhost:8080"], "--register: a directory needs an http or https URL"),
        (["--lookup", "ws://127.0.0.1:1"], "--lookup: a directory needs an http or https URL"),
        (["--announce"], "--announce: 127.0.0.1 cannot be reached from the network"),
        (["--credential", "https://a.example=token"], "URL=bearer:REF, URL=basic:USER:REF or URL=apikey:REF"),
        (["--credential", "https://a.example=bearer:abc"], "--credential: a reference to a secret is needed"),
        (["--credential", "http://a.example=bearer:file:alice"], "or --insecure"),
    ],
)
def test_mistakes_of_serve(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (project / "rules.yaml").write_text(RULES)
    (project / "certificates.yaml").write_text(CERTIFICATES)
    for name, blob in certificates().items():
        (project / name).write_bytes(blob)
    (project / "alice").write_text("the-secret-of-alice")
    (project / "wrong.yaml").write_text("schemes:\n  - scheme: bearer\n    tokns: {}\n")
    (project / "literal.yaml").write_text(
        "schemes:\n  - scheme: bearer\n    tokens: {alice: the-secret-of-alice}\n"
    )
    assert ended("serve", "served.py:Slow", "--listen", "ws://127.0.0.1:0", *words) == 2
    printed = capsys.readouterr()
    assert said.lower() in printed.err.lower()
    assert "the-secret-of-alice" not in printed.err + printed.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bearer", "abc"], "--bearer: a reference to a secret is needed"),
        (["--basic", "alice:abc"], "--basic: a reference to a secret is needed"),
        (["--basic", "env:ALICE"], "--basic: a reference to a secret is needed"),
        (["--bearer", "env:NOBODY_HAS_THIS"], "the variable is not set"),
        (["--bearer", "file:alice", "--basic", "a:file:alice"], "give one of --bearer, --basic"),
        (["--key", "key.pem"], "--key: goes with --cert"),
        (["--cert", "old.pem"], "old.pem: the certificate has expired"),
        (["--ca", "alice"], "holds no certificates"),
        (["--cert", "none.pem"], "none.pem: cannot be read"),
    ],
)
def test_mistakes_of_those_who_call(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (project / "alice").write_text("the-secret-of-alice")
    (project / "old.pem").write_bytes(certificates()["old.pem"])
    assert ended("read", "https://127.0.0.1:1/agents/slow", *words) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert "abc" not in printed.err
    assert "the-secret" not in printed.err + printed.out


def test_a_token_is_for_a_server_and_not_for_what_a_file_says(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "alice").write_text("token-a")
    (project / "slow.td.json").write_text("{}")
    assert ended("read", "slow.td.json", "--bearer", "file:alice") == 2
    assert "goes with a URL" in capsys.readouterr().err
    assert ended("read", "http://agents.example/agents/slow", "--bearer", "file:alice") == 2
    assert "or --insecure" in capsys.readouterr().err


@pytest.mark.slow
def test_served_with_security_and_called_with_a_token(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path("both.pem")
    authority.cert_pem.write_to_path("ca.pem")
    (project / "rules.yaml").write_text(RULES)
    (project / "alice").write_text("token-a")
    monkeypatch.setenv("BOB_TOKEN", "token-b")
    words = ("--cert", "both.pem", "--security", "rules.yaml")
    with serving("served.py:Slow", *words, listen="wss://127.0.0.1:0") as served:
        port = next(each["url"] for each in served.said if each["event"] == "listening").split(":")[2]
        url = f"https://127.0.0.1:{port.removesuffix('/ws')}/agents/slow"
        work = ("call", url, "work", "seconds=0", "--raw", "--ca", "ca.pem")
        assert ended(*work, "--bearer", "file:alice") == 0
        assert capsys.readouterr().out == "celsius 3\n"
        assert ended(*work, "--bearer", "env:BOB_TOKEN") == 1
        assert "bob may not invoke here" in capsys.readouterr().err
        known = ("--ca", "ca.pem", "--bearer", "file:alice")
        assert ended("describe", url, *known, "--against", "served.py:Slow") == 0
        assert "nothing differs" in capsys.readouterr().out
        (project / "nobody").write_text("token-c")
        assert ended("describe", url, "--ca", "ca.pem", "--bearer", "file:nobody") == 3
        assert "401" in capsys.readouterr().err
        assert ended("read", url, "units", "--raw", "--ca", "ca.pem") == 0
        assert capsys.readouterr().out == "celsius\n"
        served.process.send_signal(signal.SIGTERM)
        assert served.end() == (0, ["draining", "stopped"])
        assert "token-" not in served.errors


@pytest.mark.slow
def test_client_certificates_and_the_error_without_one(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, blob in certificates().items():
        (project / name).write_bytes(blob)
    (project / "certificates.yaml").write_text(CERTIFICATES)
    words = ("--cert", "good.pem", "--client-ca", "ca.pem", "--security", "certificates.yaml")
    known, mine = ("--ca", "ca.pem"), ("--ca", "ca.pem", "--cert", "alice.pem")
    with serving("served.py:Slow", *words, listen="wss://127.0.0.1:0") as served:
        url = next(each["url"] for each in served.said if each["event"] == "agent")
        place = url.partition("://")[2]
        for scheme in ("https", "wss"):
            asked = ("read", f"{scheme}://{place}", "units", "--raw")
            assert ended(*asked, *mine) == 0
            assert capsys.readouterr().out == "celsius\n"
            assert ended(*asked, *known) == 3
            said = capsys.readouterr().err
            assert "the server wants a client certificate" in said
            assert said.endswith("show a certificate that it accepts, with --cert FILE and --key FILE\n")
            assert ended(*asked) == 3
            said = capsys.readouterr().err
            assert "the certificate of the server is not accepted: self-signed certificate" in said
            assert said.endswith("to trust it, name its authority with --ca FILE\n")
        assert ended("read", url.replace("127.0.0.1", "localhost"), "units", *mine) == 3
        assert capsys.readouterr().err.endswith("ask for it by a name that its certificate has\n")
        assert ended("read", url.replace("https", "http"), "units") == 3
        assert capsys.readouterr().err.endswith("this port speaks TLS: use https:// or wss://\n")
        assert ended("discover", url, *mine) == 0
        assert "Slow" in capsys.readouterr().out
        assert ended("discover", url, *known) == 3
        assert "with --cert FILE and --key FILE" in capsys.readouterr().err
        assert ended("serve", "served.py:Guide", "--arg", f"slow={url}", "--ca", "ca.pem") == 3
        assert "with --present-cert FILE and --present-key FILE" in capsys.readouterr().err
        shown = ("--arg", f"slow={url}", "--ca", "ca.pem", "--present-cert", "alice.pem")
        with serving("served.py:Guide", *shown) as guide:
            there = next(each["url"] for each in guide.said if each["event"] == "agent")
            assert ended("call", there, "work", "--raw") == 0
            assert capsys.readouterr().out == "guided: celsius 3\n"
        served.process.send_signal(signal.SIGTERM)
        assert served.end()[0] == 0
    assert "TLS: 127.0.0.1:" in served.errors
    assert ": the client showed no certificate\n" in served.errors


def test_an_order_listens_over_tls_where_there_is_a_certificate() -> None:
    for cert, scheme in ((None, "ws"), ("a.pem", "wss")):
        listening = ListenOptions(security=SecurityOptions(cert=cert))
        assert listening.addresses() == (f"{scheme}://127.0.0.1:8080",)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("weather", ""),
        ("w*", ""),
        ("*", ""),
        ("metrics", ""),
        ("directory", ""),
        ("desk.later", ""),  # a child that may yet come
        ("desk.*", ""),
        ("wether", "'wether' fits no agent that is served, did you mean 'weather'?"),
        ("desks.*", "'desks.*' fits no agent that is served"),
        ("weather/x", "'weather/x' fits no agent"),
    ],
)
def test_a_pattern_that_matches_no_agent_is_reported(pattern: str, said: str) -> None:
    told = list(misfits([pattern], ["weather", "desk", "desk.clerk"]))
    assert len(told) == bool(said)
    assert said in "".join(told)
