"""Secrets by reference: read, read again where they change, revoked by removal; never taken literally."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.errors import Unauthorized
from lmos_actors.security import (
    Admission,
    Basic,
    BasicAuth,
    Bearer,
    BearerToken,
    ClientCertificates,
    Credentials,
    Guard,
    Jwt,
    Reference,
    SecretBytes,
    SecretSource,
    Security,
)
from tests.security.sample_credentials import basic, guard_of, request, who, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "kind", "ending"),
    [("env:TOKEN", "env", "TOKEN"), ("env:_a9", "env", "_a9"), ("file:/etc/x", "file", "/etc/x"),
     ("file:a b:c", "file", f"{os.sep}a b:c")],
)  # fmt: skip
def test_a_reference_has_a_kind_and_a_place(text: str, kind: str, ending: str) -> None:
    found = Reference.parse(text)
    assert found.kind == kind
    assert found.place.endswith(ending)
    assert Reference.parse(str(found)) == found


def test_a_relative_path_is_one_where_it_is_written(tmp_path: Path) -> None:
    assert Reference.parse("file:a/../b", tmp_path).place == str(tmp_path / "b")
    assert Reference.parse("file:/a", tmp_path).place == "/a"


LITERALS = ["hunter2", "", "env:", "env:9x", "env:a-b", "env:A B", "ENV:A", "file:", "file:a\nb", "file:a\0b",
            "vault:a", "env", "Bearer hunter2", " env:A", "https://hunter2"]  # fmt: skip


@pytest.mark.parametrize("text", [*LITERALS, None, 7, b"hunter2", ["env:A"], {"env": "A"}])
def test_a_secret_in_place_of_a_reference_is_refused_and_not_repeated(text: Any) -> None:
    for make in (
        Reference.parse,
        BearerToken,
        lambda given: BasicAuth("alice", given),
        lambda given: Bearer({"alice": (given,)}),
        lambda given: Basic({"alice": ("env:A", given)}),
        lambda given: Jwt(keys=given, issuer="i", audience="a"),
    ):
        with pytest.raises(ConfigError, match="the secret itself does not belong here") as caught:
            make(text)
        assert "hunter2" not in str(caught.value)


@given(st.text(min_size=6))
def test_no_text_is_repeated(text: str) -> None:
    for make in (Reference.parse, lambda given: ClientCertificates({"alice": given})):
        assert text not in refusal(make, text)


def refusal(make: Any, text: str) -> str:
    try:
        make(text)
    except ConfigError as error:
        return str(error)
    return ""


# ---- rotation and revocation


def bearer(guard: Guard, token: str, now: float) -> str | int | None:
    return who(guard.admit(request(f"Bearer {token}"), now))


def test_a_secret_is_replaced_without_a_restart_and_without_a_gap(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    security = Security(schemes=(Bearer({"alice": (write(old, "token-1\n"), write(new, "token-2\n"))}),))
    guard = guard_of(security)
    assert (bearer(guard, "token-1", 0.0), bearer(guard, "token-2", 0.0)) == ("alice", "alice")
    old.unlink()
    assert (bearer(guard, "token-1", 0.99), bearer(guard, "token-2", 0.99)) == ("alice", "alice")
    assert (bearer(guard, "token-1", 1.0), bearer(guard, "token-2", 1.0)) == (401, "alice")
    write(old, "token-3")
    assert (bearer(guard, "token-3", 2.0), bearer(guard, "token-2", 2.0)) == ("alice", "alice")


def test_several_secrets_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    guard = guard_of(Security(schemes=(Bearer({"alice": write(path, "token-1\r\n\ntoken-2\n")}),)))
    assert (bearer(guard, "token-1", 0.0), bearer(guard, "token-2", 0.0)) == ("alice", "alice")
    write(path, "token-2\r")
    assert (bearer(guard, "token-1", 1.0), bearer(guard, "token-2", 1.0)) == (401, "alice")


def test_who_is_in_stays_in_as_long_as_the_secret_does(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "alice"
    monkeypatch.setenv("S1_PASSWORD", "first")
    schemes = (Bearer({"alice": write(path, "token-1\ntoken-2")}), Basic({"bob": "env:S1_PASSWORD"}))
    guard = guard_of(Security(schemes=schemes))
    given = ("Bearer token-1", "Bearer token-2", basic("bob", "first"))
    found = [guard.admit(request(each), 0.0) for each in given]
    first, second, bob = (each for each in found if isinstance(each, Admission))
    before = guard.generation
    assert all(each.valid(1.0) for each in (first, second, bob))
    assert guard.generation == before
    write(path, "token-2")
    assert [each.valid(2.0) for each in (first, second, bob)] == [False, True, True]
    with pytest.raises(Unauthorized, match="not accepted"):
        first.check("desk", "read", 2.0)
    monkeypatch.setenv("S1_PASSWORD", "second")
    assert [each.valid(3.0) for each in (first, second, bob)] == [False, True, False]
    monkeypatch.delenv("S1_PASSWORD")
    assert who(guard.admit(request(basic("bob", "second")), 4.0)) == 401
    write(path, "token-1")
    assert [each.valid(5.0) for each in (first, second, bob)] == [True, False, False]


def test_a_file_changed_in_place_within_one_tick_of_its_clock_is_seen(tmp_path: Path, monkeypatch) -> None:
    """As long as before, and no later as far as the file system tells."""
    path, stat = tmp_path / "alice", os.stat
    guard = guard_of(Security(schemes=(Bearer({"alice": write(path, "token-1")}),)))
    seen = stat(path)
    monkeypatch.setattr(os, "stat", lambda at, **how: seen if at == str(path) else stat(at, **how))
    path.write_text("token-2")
    assert (bearer(guard, "token-1", 1.0), bearer(guard, "token-2", 1.0)) == (401, "alice")


def test_a_file_that_stays_as_it_is_is_not_read_again(tmp_path: Path) -> None:
    source = SecretSource(Reference.parse(write(tmp_path / "alice", "token-1")))
    looks = [source.may_have_changed() for _ in range(6)]
    assert looks == [True, True, True, False, False, False]
    write(tmp_path / "alice", "token-1")
    assert source.may_have_changed()


@pytest.mark.parametrize("which", ["missing", "empty", "blank", "directory", "large", "pipe"])
def test_unreadable_secrets_fail_the_start_and_admit_no_client_later(tmp_path: Path, which: str) -> None:
    path = tmp_path / "alice"
    said: list[str] = []
    guard = guard_of(Security(schemes=(Bearer({"alice": write(path, "token-1")}),)), report=said.append)
    path.unlink()
    if which == "directory":
        path.mkdir()
    elif which == "pipe":
        os.mkfifo(path)  # reading one would wait for ever
    elif which != "missing":
        path.write_text({"empty": "", "blank": " \n\n", "large": "x" * (1 << 18) + "y"}[which])
    for now in (1.0, 2.0, 3.0, 4.0):
        assert bearer(guard, "token-1", now) == 401
    assert len(said) == 1
    assert said[0].startswith(f"file:{path}: ")
    with pytest.raises(ConfigError) as caught:
        guard_of(guard.security)
    assert str(caught.value) == said[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    reference = write(tmp_path / "alice", "token-1")
    (tmp_path / "alice").chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        guard_of(Security(schemes=(Bearer({"alice": reference}),)))


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set(monkeypatch, value: str | None) -> None:
    monkeypatch.delenv("S1_NONE", raising=False)
    if value is not None:
        monkeypatch.setenv("S1_NONE", value)
    with pytest.raises(ConfigError, match=r"env:S1_NONE: (the variable is not set|is empty)"):
        guard_of(Security(schemes=(Bearer({"alice": "env:S1_NONE"}),)))


def test_all_missing_secrets_are_reported_at_once(tmp_path: Path) -> None:
    schemes = (Bearer({"a": "env:S1_X", "b": f"file:{tmp_path}/b"}), Basic({"c": "env:S1_Y"}))
    with pytest.raises(ConfigError, match=r"env:S1_X: .*/b: .*env:S1_Y: "):
        guard_of(Security(schemes=schemes))


# ---- what travels


def test_a_source_travels_without_its_secret(monkeypatch) -> None:
    monkeypatch.setenv("S1_TOKEN", "hunter2")
    source = SecretSource(Reference.parse("env:S1_TOKEN"))
    assert source.read() == b"hunter2"
    raw = pickle.dumps(source)
    assert b"hunter2" not in raw
    assert pickle.loads(raw).reference == source.reference
    assert repr(source) == "SecretSource('env:S1_TOKEN')"


def test_security_travels_as_references(monkeypatch) -> None:
    monkeypatch.setenv("S1_TOKEN", "hunter2")
    security = Security(schemes=(Bearer({"alice": "env:S1_TOKEN"}),))
    guard_of(security)
    raw = pickle.dumps(security)
    assert b"hunter2" not in raw
    assert pickle.loads(raw) == security
    assert "env" in repr(security)
    assert "hunter2" not in repr(security)
    with pytest.raises(TypeError):
        pickle.dumps(guard_of(security, wall=len))
    credentials = Credentials({"https://a.example": BearerToken("env:S1_TOKEN")})
    headers = credentials.headers_for("https://a.example/x", 0.0)
    with pytest.raises(TypeError):
        pickle.dumps(headers)
    for each in (credentials, headers, guard_of(security), request("Bearer hunter2")):
        assert "hunter2" not in repr(each)


def test_secret_bytes_are_bytes_and_not_shown() -> None:
    secret = SecretBytes(b"hunter2")
    assert secret == b"hunter2"
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>5}",
        f"{secret:>4}",
        repr((secret, [secret])),
    ]
    assert not any("hunter2" in each for each in [*shown, repr([secret]), repr({"a": (secret,)})])
