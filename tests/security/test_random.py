"""Secrets come and go at random, people come and stay: against a model in a few lines."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings, strategies as st

from lmos_actors.security import Admission, Bearer, Security
from tests.matrix import examples
from tests.security.sample_credentials import OFTEN, guard_of, request, who, write

NAMES = ("alice", "bob")
TOKENS = ("t1", "t2", "t3")
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.lists(st.sampled_from(TOKENS), unique=True)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.5, 1.0, 7.0]), st.just(())),
    st.tuples(st.just("come"), st.sampled_from(TOKENS), st.just(())),
    st.tuples(st.just("stay"), st.just(""), st.just(())),
)


class Model:
    """What a node should know: files as they were when somebody looked last."""

    def __init__(self) -> None:
        self.files = {"alice": ["t1"], "bob": ["t2"]}
        self.seen = {"t1": "alice", "t2": "bob"}
        self.now = 100.0
        self.looked: float | None = None

    def look(self) -> None:
        if self.looked is None or self.now >= self.looked + 1.0:
            self.looked = self.now
            # whoever is named first has a secret that two have
            self.seen = {token: name for name in reversed(NAMES) for token in self.files[name]}


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=examples(60))
def test_who_is_in_is_who_should_be(steps: list[tuple[str, object, list[str]]]) -> None:
    with TemporaryDirectory() as folder:
        model, inside = Model(), list[tuple[str, str, Admission]]()
        files = {name: Path(folder) / name for name in NAMES}
        references = {name: write(files[name], model.files[name][0]) for name in NAMES}
        guard = guard_of(Security(schemes=(Bearer(references),), failures=OFTEN))
        for step, what, tokens in steps:
            if step == "write":
                model.files[str(what)] = tokens
                write(files[str(what)], "\n".join(tokens))
            elif step == "wait":
                model.now += float(str(what))
            elif step == "come":
                found = guard.admit(request(f"Bearer {what}", peer=f"p{len(inside)}:1"), model.now)
                model.look()
                assert who(found) == model.seen.get(str(what), 401)
                if isinstance(found, Admission):
                    inside.append((str(what), model.seen[str(what)], found))
            else:
                for token, name, admission in inside:
                    stays = admission.valid(model.now)
                    model.look()
                    assert stays == (model.seen.get(token) == name)
