"""Security as a file: what can be said in it, and where its mistakes are; nothing secret is repeated."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from lmos_actors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.security import (
    ANYONE,
    AUTHENTICATED,
    Access,
    Basic,
    Bearer,
    ClientCertificates,
    Jwt,
    NoSec,
    Rate,
    Reference,
    Security,
)
from tests.matrix import examples

if TYPE_CHECKING:
    from lmos_actors.files import Mistake

YAML = """
schemes:
  - scheme: nosec
  - scheme: basic
    users: {bob: env:BOB_PASSWORD}
  - scheme: bearer
    tokens:
      alice: [env:ALICE_OLD, file:alice.token]
  - scheme: jwt
    keys: file:keys.json
    issuer: https://login.example
    audience: weather
    algorithms: [ES256, RS256]
    leeway: 5s
    principal: client_id
    scopes: roles
  - scheme: certificates
    principals: {eve: "name:eve.example"}
access:
  desk.weather: {read: anyone, invoke: [alice, "scope:weather.write"]}
  "*": {read: authenticated, write: []}
origins: ["https://app.example"]
hosts: [weather.example]
rate: {per_second: 50, burst: 100}
failures: {per_second: 0.1, burst: 3}
public_descriptions: true
crash_details: true
"""
TOML = """
origins = ["https://app.example"]
hosts = ["weather.example"]
public_descriptions = true
crash_details = true
rate = {per_second = 50, burst = 100}

[[schemes]]
scheme = "nosec"

[[schemes]]
scheme = "basic"
users.bob = "env:BOB_PASSWORD"

[[schemes]]
scheme = "bearer"
tokens.alice = ["env:ALICE_OLD", "file:alice.token"]

[[schemes]]
scheme = "jwt"
keys = "file:keys.json"
issuer = "https://login.example"
audience = "weather"
algorithms = ["ES256", "RS256"]
leeway = "5s"
principal = "client_id"
scopes = "roles"

[[schemes]]
scheme = "certificates"
principals.eve = "name:eve.example"

[access."desk.weather"]
read = "anyone"
invoke = ["alice", "scope:weather.write"]

[access."*"]
read = "authenticated"
write = []

[failures]
per_second = 0.1
burst = 3
"""


def write(folder: Path, text: str, suffix: str = "yaml") -> Path:
    path = folder / f"security.{suffix}"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "suffix"), [(YAML, "yaml"), (TOML, "toml"), (json.dumps(yaml.safe_load(YAML)), "json")]
)
def test_all_that_a_file_can_say(tmp_path: Path, text: str, suffix: str) -> None:
    loaded = Security.load(write(tmp_path, text, suffix))
    assert loaded == Security(
        schemes=(
            NoSec(),
            Basic({"bob": "env:BOB_PASSWORD"}),
            Bearer({"alice": ("env:ALICE_OLD", f"file:{tmp_path / 'alice.token'}")}),
            Jwt(
                keys=f"file:{tmp_path / 'keys.json'}",
                issuer="https://login.example",
                audience="weather",
                algorithms=("ES256", "RS256"),
                leeway=5.0,
                principal="client_id",
                scopes="roles",
            ),
            ClientCertificates({"eve": "name:eve.example"}),
        ),
        access={
            "desk.weather": Access(read=ANYONE, invoke=("alice", "scope:weather.write")),
            "*": Access(read=AUTHENTICATED, write=()),
        },
        origins=("https://app.example",),
        hosts=("weather.example",),
        rate=Rate(50.0, 100),
        failures=Rate(0.1, 3),
        public_descriptions=True,
        crash_details=True,
    )
    assert list(loaded.access) == ["desk.weather", "*"]  # the first that fits counts


def test_the_least_that_a_file_can_say(tmp_path: Path) -> None:
    assert Security.load(write(tmp_path, "schemes: []\n")) == Security()
    text = "schemes: [{scheme: certificates, principals: 'file:people'}]\n"
    (scheme,) = Security.load(write(tmp_path, text)).schemes
    assert scheme == ClientCertificates(Reference("file", str(tmp_path / "people")))


MISTAKES: dict[str, tuple[str, list[tuple[int, int, str]]]] = {
    "unknown key": ("scheme: []\n", [(1, 1, 'unknown key "scheme", did you mean "schemes"?')]),
    "unknown scheme": (
        "schemes: [{scheme: bearerr, tokens: {}}]\n",
        [(1, 20, 'unknown scheme "bearerr", did you mean "bearer"?')],
    ),
    "no scheme": ("schemes: [{tokens: {}}]\n", [(1, 11, 'missing key "scheme"')]),
    "key of a scheme": (
        "schemes: [{scheme: bearer, token: {a: hunter2}}]\n",
        [(1, 28, 'unknown key "token", did you mean "tokens"?')],
    ),
    "literal token": (
        "schemes:\n- scheme: bearer\n  tokens:\n    alice: hunter2\n",
        [(4, 12, "a reference to a secret is needed")],
    ),
    "literal tokens": (
        "schemes:\n- scheme: bearer\n  tokens:\n    alice: [env:A, hunter2]\n"
        "    bob: 12345\n    carol: {x: hunter2}\n",
        [
            (4, 20, "a reference to a secret"),
            (5, 10, "a reference to a secret"),
            (6, 12, "a reference to a secret"),
        ],
    ),
    "tokens as text": (
        "schemes: [{scheme: bearer, tokens: hunter2}]\n",
        [(1, 36, "expected a mapping of principals")],
    ),
    "tokens as a list": ("schemes: [{scheme: bearer, tokens: [hunter2]}]\n", [(1, 36, "expected a mapping")]),
    "literal password": (
        "schemes: [{scheme: basic, users: {bob: hunter2}}]\n",
        [(1, 40, "a reference to a secret")],
    ),
    "literal keys": (
        "schemes: [{scheme: jwt, keys: hunter2, issuer: i, audience: a}]\n",
        [(1, 31, "a reference to a secret")],
    ),
    "keys in the file": (
        "schemes: [{scheme: jwt, keys: {keys: [hunter2]}, issuer: i, audience: a}]\n",
        [(1, 31, "a reference to a secret")],
    ),
    "no audience": (
        "schemes: [{scheme: jwt, keys: 'file:k', issuer: i}]\n",
        [(1, 11, 'missing key "audience"')],
    ),
    "algorithm": (
        "schemes: [{scheme: jwt, keys: 'file:k', issuer: i, audience: a, algorithms: [ES265]}]\n",
        [(1, 11, "the algorithm 'ES265' is not accepted, did you mean 'ES256'?")],
    ),
    "leeway": (
        "schemes: [{scheme: jwt, keys: 'file:k', issuer: i, audience: a, leeway: 30}]\n",
        [(1, 73, "the unit is missing")],
    ),
    "nobody": (
        "schemes: [{scheme: bearer, tokens: {alice: []}}]\n",
        [(1, 44, "an empty list admits no client")],
    ),
    "name": (
        "schemes: [{scheme: bearer, tokens: {anyone: env:A}}]\n",
        [(1, 45, "a principal cannot be named 'anyone'")],
    ),
    "two of a kind": (
        "schemes:\n- {scheme: bearer, tokens: {a: env:A}}\n- {scheme: bearer, tokens: {b: env:A}}\n",
        [(3, 3, "a scheme of that kind exists already")],
    ),
    "certificate": (
        "schemes: [{scheme: certificates, principals: {eve: eve.example}}]\n",
        [(1, 52, "write a certificate as sha256: and 64")],
    ),
    "who": ("access: {a: {read: alice}}\n", [(1, 20, 'unknown word "alice" (known: anyone, authenticated)')]),
    "verb": ("access: {a: {reed: anyone}}\n", [(1, 14, 'unknown key "reed", did you mean "read"?')]),
    "stranger": (
        "schemes: [{scheme: bearer, tokens: {alice: env:A}}]\naccess: {desk: {read: [alice, alcie]}}\n",
        [(2, 31, "no scheme knows 'alcie', did you mean 'alice'?")],
    ),
    "scope": (
        "schemes: [{scheme: bearer, tokens: {alice: env:A}}]\naccess: {desk: {read: ['scope:x']}}\n",
        [(2, 24, "needs a scheme with scopes")],
    ),
    "word in a list": ("access: {desk: {read: [anyone]}}\n", [(1, 16, "'anyone' is no principal")]),
    "origin": ("origins: ['https://a.example', app.example]\n", [(1, 32, "'app.example' is not an origin")]),
    "any origin": ("origins: ['*']\n", [(1, 11, "write each as")]),
    "host": ("hosts:\n- https://a.example\n", [(2, 3, "is not a host name")]),
    "rate": ("rate: {per_second: 0, burst: 1}\n", [(1, 20, "expected more than 0")]),
    "burst": ("failures: {per_second: 1, burst: 0}\n", [(1, 34, "expected at least 1")]),
    "no burst": ("rate: {per_second: 1}\n", [(1, 1, 'missing key "burst"')]),
    "several": (
        "origins: [x]\nhosts: ['a b']\nschemes: [{scheme: bearer, tokens: {alice: hunter2}}]\n",
        [(1, 11, "not an origin"), (2, 9, "not a host name"), (3, 44, "a reference to a secret")],
    ),
    "not YAML": ("schemes: [hunter2\n", [(2, 1, "")]),
    "an alias": ("schemes: [{scheme: bearer, tokens: {alice: *hunter2}}]\n", [(1, 44, "")]),
    "a tag": ("schemes: [{scheme: bearer, tokens: {alice: !hunter2 x}}]\n", [(1, 44, "")]),
    "given twice": (
        "schemes: [{scheme: bearer, tokens: {hunter2: x, hunter2: y}}]\n",
        [(1, 49, "is given twice")],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_has_its_place_and_repeats_no_secret(tmp_path: Path, name: str) -> None:
    text, expected = MISTAKES[name]
    path = write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        Security.load(path)
    found = caught.value.mistakes
    assert [places(each) for each in found] == [(line, column) for line, column, _ in expected]
    for mistake, (_, _, words) in zip(found, expected, strict=True):
        assert words in mistake.message
    assert "hunter2" not in str(caught.value) + repr(found)
    assert "12345" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{expected[0][0]}:{expected[0][1]}: ")


def places(mistake: Mistake) -> tuple[int, int]:
    return mistake.line, mistake.column


@pytest.mark.parametrize(
    "text", ["", "- a\n", "hunter2\n", "7\n", "schemes: 7\n", "schemes: hunter2\n", "\x00", "a: b: c\n"]
)
@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_what_is_no_such_file_at_all(tmp_path: Path, text: str, suffix: str) -> None:
    with pytest.raises(FileError) as caught:
        Security.load(write(tmp_path, text, suffix))
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, YAML)
    with pytest.raises(FileError, match=r'no such file, did you mean "security.yaml"\?'):
        Security.load(tmp_path / "securty.yaml")


def test_a_file_of_the_right_shape_is_still_checked_as_code_is(tmp_path: Path) -> None:
    text = "schemes: [{scheme: jwt, keys: 'file:k', issuer: '', audience: a}]\n"
    with pytest.raises(ConfigError, match="issuer must be text, and not empty"):
        Security.load(write(tmp_path, text))


SECRET = st.from_regex(r"[!-~][ -~]{6,20}[!-~]", fullmatch=True)
PLAIN = st.sampled_from([None, 1, True, "env:A", "x", "bearer", "anyone", ["env:A"], {}, []])
SHAPES = ("{0}", "[{0}]", "[env:A, {0}]", "{{x: {0}}}", '"{0}"', "'{0}'", "|\n  {0}", "{0}: {0}", "")


@given(SECRET, st.sampled_from(SHAPES), st.sampled_from(["tokens", "users", "keys"]), st.booleans())
@settings(max_examples=examples(100))
def test_wherever_and_however_a_secret_stands_it_is_not_repeated(
    secret: str, shape: str, key: str, inside: bool
) -> None:
    """As people write it, without looking whether a sign in it means something to YAML or TOML."""
    written = shape.format(secret)
    value = f"{{alice: {written}}}" if inside else written
    texts = {
        "yaml": f"schemes:\n- scheme: bearer\n  {key}: {value}\nhosts: [a b]\n",
        "toml": f"hosts = ['a b']\n[[schemes]]\nscheme = 'bearer'\n{key}{'.alice' * inside} = {written}\n",
        "json": f'{{"schemes": [{{"scheme": "bearer", "{key}": {value}}}], "hosts": ["a b"]}}',
    }
    for suffix, text in texts.items():
        with pytest.raises(ConfigError) as caught, TemporaryDirectory() as folder:
            Security.load(write(Path(folder), text, suffix))
        assert secret not in str(caught.value).replace(folder, "")
        assert secret.strip("'\"") not in str(caught.value).replace(folder, "")


@given(SECRET, st.data())
@settings(max_examples=examples(60))
def test_other_mistakes_beside_a_secret_do_not_repeat_it(secret: str, data: st.DataObject) -> None:
    whole: Any = yaml.safe_load(YAML)
    spot: Any = whole
    while isinstance(spot, dict | list) and spot:
        key = data.draw(st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot))))
        if not isinstance(spot[key], dict | list) or data.draw(st.booleans()):
            spot[key] = data.draw(PLAIN)
            break
        spot = spot[key]
    whole["schemes"] = [{"scheme": "bearer", "tokens": {"alice": secret}}, whole["schemes"]]
    with pytest.raises(ConfigError) as caught, TemporaryDirectory() as folder:
        Security.load(write(Path(folder), yaml.safe_dump(whole)))
    assert secret not in str(caught.value).replace(folder, "")
