"""Who may do what with which agent, and what descriptions say about it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import ConfigError
from lmos_actors.errors import Forbidden, Unauthorized
from lmos_actors.protocol.td import Description, check, dump
from lmos_actors.security import (
    ANYONE,
    AUTHENTICATED,
    Access,
    Admission,
    Basic,
    Bearer,
    ClientCertificates,
    Jwt,
    NoSec,
    Principal,
    Security,
)
from tests.security.sample_credentials import guard_of, request

if TYPE_CHECKING:
    from lmos_actors.security import AllowList, Guard, Scheme, Verb

MAX_REMEMBERED_NAMES = 4096  # names of agents whose list is remembered
VERBS: tuple[Verb, ...] = ("read", "write", "invoke", "subscribe")

BEARER = Bearer({"alice": "env:S1_ALICE", "bob": "env:S1_BOB"})
JWT = Jwt(keys="file:keys.json", issuer="i", audience="a")


@pytest.fixture(autouse=True)
def secrets_of_the_test(monkeypatch) -> None:
    monkeypatch.setenv("S1_ALICE", "alice-token")
    monkeypatch.setenv("S1_BOB", "bob-token")


def admitted(guard: Guard, name: str | None) -> Admission:
    found = guard.admit(request(*([] if name is None else [f"Bearer {name}-token"])), 0.0)
    assert isinstance(found, Admission)
    return found


@pytest.mark.parametrize(
    ("who", "nobody", "alice", "bob"),
    [
        (ANYONE, True, True, True),
        (AUTHENTICATED, False, True, True),
        (None, False, True, True),
        (("alice",), False, True, False),
        (["bob", "alice"], False, True, True),
        ((), False, False, False),
    ],
)
@pytest.mark.parametrize("verb", VERBS)
def test_each_list_is_for_its_verb(verb: Verb, who: Any, nobody: bool, alice: bool, bob: bool) -> None:
    others = tuple(each for each in VERBS if each != verb)
    security = Security(
        schemes=(NoSec(), BEARER),
        access={"desk": Access(**{verb: who, **dict.fromkeys(others, () if alice else ANYONE)})},
    )
    guard = guard_of(security)
    for name, allowed in ((None, nobody), ("alice", alice), ("bob", bob)):
        found = admitted(guard, name)
        assert found.allows("desk", verb) == allowed
        if allowed:
            found.check("desk", verb, 0.0)
        else:
            with pytest.raises(Unauthorized if name is None else Forbidden):
                found.check("desk", verb, 0.0)


def test_the_first_pattern_that_fits_counts() -> None:
    security = Security(
        schemes=(BEARER,),
        access={
            "desk.weather": Access(read=("alice",)),
            "desk.*": Access(read=("bob",)),
            "[ab]?": Access(read=()),
            "*": Access(read=ANYONE),
        },
    )
    guard = guard_of(security)
    alice, bob = admitted(guard, "alice"), admitted(guard, "bob")
    for agent, first, second in [
        ("desk.weather", True, False),
        ("desk.weather2", False, True),
        ("desk.", False, True),
        ("desk", True, True),
        ("Desk.weather", True, True),
        ("a1", False, False),
        ("c1", True, True),
        ("", True, True),
        ("x\ny", True, True),
        ("desk.weather\n", False, True),
    ]:
        assert (alice.allows(agent, "read"), bob.allows(agent, "read")) == (first, second), agent


def test_agents_without_a_list_are_open_to_authenticated_clients() -> None:
    guard = guard_of(Security(schemes=(BEARER,), access={"desk": Access(read=ANYONE)}))
    assert not admitted(guard, None).allows("other", "read")
    assert admitted(guard, "alice").allows("other", "read")
    assert guard_of(Security(access={"desk": Access(read=())})).admits(None, "other", "read")
    assert not guard_of(Security(access={"desk": Access(read=())})).admits(None, "desk", "read")


def test_a_scope_allows_those_whose_token_has_it() -> None:
    security = Security(schemes=(JWT,), access={"*": Access(invoke=("scope:weather.write", "root"))})
    for principal, allowed in [
        (Principal("alice", "jwt", ("weather.read", "weather.write")), True),
        (Principal("alice", "jwt", ("weather.read",)), False),
        (Principal("alice", "jwt", ("scope:weather.write",)), False),
        (Principal("alice", "jwt"), False),
        (Principal("weather.write", "jwt"), False),
        (Principal("scope:weather.write", "jwt"), False),
        (Principal("root", "jwt"), True),
        (None, False),
    ]:
        assert security.rules.rule("desk", "invoke").admits(principal) == allowed


def test_the_memory_of_unknown_agent_names_is_bounded() -> None:
    security = Security(schemes=(BEARER,), access={"desk.*": Access(read=())})
    for n in range(3 * MAX_REMEMBERED_NAMES):
        assert security.rules.rule(f"desk.{n}", "read").names == frozenset()
    assert len(security.rules._rules_by_agent) <= MAX_REMEMBERED_NAMES
    security.rules.rule("desk." + "x" * 10_000, "read")
    assert max(map(len, security.rules._rules_by_agent)) < 300


WHO = st.sampled_from([None, ANYONE, AUTHENTICATED, (), ("alice",), ("bob", "alice")])


@given(
    st.lists(st.tuples(st.from_regex(r"[ab.*?]{0,4}", fullmatch=True), WHO), max_size=4),
    st.from_regex(r"[ab.]{0,4}", fullmatch=True),
    st.sampled_from([None, "alice", "bob"]),
)
def test_lists_against_a_plainer_reading(
    lists: list[tuple[str, AllowList | None]], agent: str, name: str | None
) -> None:
    security = Security(schemes=(BEARER,), access={pattern: Access(read=who) for pattern, who in lists})
    principal = None if name is None else Principal(name, "bearer")
    kept = dict(lists)
    first = next((who for pattern, who in kept.items() if fits(pattern, agent)), None)
    expected = first == ANYONE or (
        name is not None and (first in (None, AUTHENTICATED) or (isinstance(first, tuple) and name in first))
    )
    for _ in range(2):  # found, and remembered
        assert security.rules.rule(agent, "read").admits(principal) == expected


def fits(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and fits(pattern[1:], text[1:])


@pytest.mark.parametrize(
    ("schemes", "who", "why"),
    [
        (
            (BEARER,),
            ("alcie",),
            r"access\['desk'\].read\[0\]: no scheme knows 'alcie', did you mean 'alice'\?",
        ),
        ((BEARER,), ("alice", "zoe"), r"access\['desk'\].read\[1\]: no scheme knows 'zoe'$"),
        ((), ("alice",), "no scheme knows 'alice'"),
        ((BEARER,), ("scope:x",), "needs a scheme with scopes: add the scheme jwt"),
    ],
)
def test_unknown_principals_are_refused(schemes: Any, who: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Security(schemes=schemes, access={"desk": Access(read=who)})


def test_possible_principals_are_accepted() -> None:
    for scheme in (JWT, ClientCertificates("file:people")):
        Security(schemes=(BEARER, scheme), access={"desk": Access(read=("whoever",))})
    Security(schemes=(BEARER, JWT), access={"desk": Access(read=("scope:x",))})


# ---- descriptions

SCHEMES: tuple[Scheme, ...] = (
    NoSec(),
    Basic({"bob": "env:S1_BOB"}),
    BEARER,
    JWT,
    ClientCertificates({"eve": "name:eve"}),
)


@pytest.mark.parametrize("chosen", [c for n in range(6) for c in itertools.combinations(SCHEMES, n)])
@pytest.mark.parametrize("access", [{}, {"desk": Access(read=ANYONE)}])
def test_what_a_description_says_can_be_read_by_others(chosen: Any, access: dict[str, Access]) -> None:
    security = Security(schemes=chosen, access=access)
    definitions, demands = security.definitions(), security.demands()
    description = Description(title="desk", security_definitions=definitions, security=demands)
    wrong = [each for each in check(dump(description)) if each.severity == "error"]
    assert wrong == []
    assert set(demands) <= set(definitions)
    assert len(demands) == 1
    for verb in VERBS:
        assert set(security.demands("desk", verb)) <= set(definitions)
    asked = [each for each in chosen if not isinstance(each, NoSec)]
    assert ("nosec_sc" in definitions) == security.admits_anonymous or not asked
    assert demands == (("nosec_sc",) if not asked else ("any_sc",) if len(asked) > 1 else (asked[0].name,))
    assert security.demands("desk", "read") == (("nosec_sc",) if access else demands)
    assert security.needs_tls == any(isinstance(each, Basic | Bearer | Jwt) for each in chosen)
    assert security.is_open == (not asked)


def test_the_words_of_each_scheme() -> None:
    security = Security(schemes=SCHEMES)
    told = dump(Description(title="desk", security_definitions=security.definitions()))["securityDefinitions"]
    assert told == {
        "basic_sc": {"scheme": "basic", "in": "header"},
        "bearer_sc": {"scheme": "bearer", "in": "header", "format": "opaque"},
        "jwt_sc": {"scheme": "bearer", "in": "header", "format": "jwt", "alg": "ES256"},
        "certificate_sc": {"scheme": "auto", "description": "A client certificate, presented to TLS."},
        "any_sc": {"scheme": "combo", "oneOf": ["basic_sc", "bearer_sc", "jwt_sc", "certificate_sc"]},
        "nosec_sc": {"scheme": "nosec"},
    }
