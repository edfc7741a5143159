"""Children that nobody named: started one by one by the thousand, named by their class and a number."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors import Agent, ChildSpec, ConfigError, NotFound, Ref, StartFailed, action, open_node, sibling
from lmos_actors.errors import NameTaken
from lmos_actors.testing import open_test_node

from .world import Boom, Worker, child, crash, run, statuses

BYTES = 480  # those of an idle agent in a crowd of one spec are 400 by this count


class Holder(Agent):
    other: Ref[Any] | None = None


class Echo(Agent):
    @action
    def same(self, value: int) -> int:
        return value


def test_an_agent_started_by_its_class_takes_no_more_memory_than_one_of_many():
    async def main() -> float:
        async with open_node() as node:
            await node.start(Echo)
            refs = [await node.start(Echo) for _ in range(10)]
            tracemalloc.start()
            try:
                refs += [await node.start(Echo) for _ in range(1_000)]
                return tracemalloc.get_traced_memory()[0] / 1_000
            finally:
                tracemalloc.stop()

    assert run(main) < BYTES


def test_they_are_found_stopped_and_restarted_by_their_names():
    async def main() -> None:
        async with open_test_node() as node:
            root = node.root
            refs = [await node.start(Worker) for _ in range(4)]
            assert [ref.path for ref in refs] == ["worker", "worker-2", "worker-3", "worker-4"]
            assert [info.name for info in root.which_children()] == [ref.path for ref in refs]
            assert root.child("worker-3") == refs[2] == node.find(Worker, "worker-3")
            with pytest.raises(NameTaken):
                await root.start_child(child("worker-3"))
            await crash(refs[1])
            assert statuses(root)["worker-2"] == ("running", 2)
            await root.terminate_child("worker-3")
            await root.delete_child("worker-3")
            for gone in ("worker-3", "worker-5", "worker-0", "worker-" + "9" * 5_000):
                with pytest.raises(NotFound):
                    root.child(gone)
            named = await root.start_child(child("worker-3"))
            assert root.child("worker-3") == named != refs[2]
            assert (await node.start(Worker)).path == "worker-5"

    run(main)


def test_with_arguments_each_has_its_own():
    async def main() -> None:
        class Adder(Agent):
            more: int = 0

            @action
            def add(self, value: int) -> int:
                return self.more + value

        async with open_test_node() as node:
            refs = [await node.start(Adder, more=more) for more in (1, 2, 3)]
            refs.append(await node.start(Adder))
            assert [await ref.invoke(Adder.add, 10) for ref in refs] == [11, 12, 13, 10]
            assert [ref.path for ref in refs] == ["adder", "adder-2", "adder-3", "adder-4"]

    run(main)


def test_one_whose_start_fails_leaves_nothing():
    class Fussy(Agent):
        error: BaseException | None = None

        def started(self) -> None:
            if self.error is not None:
                raise self.error

    async def main() -> None:
        async with open_test_node() as node:
            await node.start(Fussy)
            with pytest.raises(StartFailed, match="fussy-2"):
                await node.start(Fussy, error=Boom("now"))
            assert list(statuses(node.root)) == ["fussy"]
            assert node.root.statistics().failed_starts == 1
            assert (await node.start(Fussy)).path == "fussy-3"

    run(main)


def test_a_sibling_that_is_not_there_is_refused_as_in_a_spec():
    async def main() -> None:
        async with open_test_node() as node:
            await node.start(Holder)
            with pytest.raises(ConfigError, match="no agent 'nobody'"):
                await node.start(Holder, other=sibling("nobody"))
            assert list(statuses(node.root)) == ["holder"]

    run(main)


def test_one_of_many_finds_those_before_it_while_they_start():
    found: list[str] = []

    class Chained(Agent):
        root: object = None

        def started(self) -> None:
            before = len(found)
            if before:
                found.append(self.root.child(f"chained-{before}").path)  # type: ignore[attr-defined]
            else:
                found.append("")

    async def main() -> None:
        async with open_test_node() as node:
            spec = ChildSpec("chained", partial(Chained, root=node.root))
            await node.root.start_many(spec, 20)
            assert node.root.child("chained-20").path == "chained-20"

    run(main)
    assert found == ["", *(f"chained-{number}" for number in range(1, 20))]


verbs = st.sampled_from(["start", "with", "many", "spec", "pick", "stop"])


@given(st.lists(st.tuples(verbs, st.integers(1, 6)), max_size=30))
def test_no_two_have_one_name_and_each_is_found_by_its_own(steps: list[tuple[str, int]]):
    async def main() -> None:
        async with open_test_node() as node:
            root, there = node.root, dict[str, object]()
            for verb, number in steps:
                if verb == "start":
                    refs = [await node.start(Worker)]
                elif verb == "with":
                    refs = [await root.start_named(Worker, partial(Worker))]
                elif verb == "many":
                    try:
                        refs = await root.start_many(child("worker"), number)
                    except NameTaken:
                        refs = []
                elif verb in ("spec", "pick"):
                    name = f"worker-{number}" if verb == "spec" else "worker"
                    try:
                        refs = [await root.start_child(child(name))]
                        assert name not in there
                    except NameTaken:
                        assert name in there
                        refs = []
                else:
                    refs = []
                    name = f"worker-{number}"
                    if verb == "stop" and name in there:
                        await root.terminate_child(name)
                        await root.delete_child(name)
                        del there[name]
                for ref in refs:
                    assert ref.path not in there
                    there[ref.path] = ref
                assert [info.name for info in root.which_children()] == list(there)
                for name in (*there, "worker-7"):
                    if name in there:
                        assert root.child(name) == there[name]
                    else:
                        with pytest.raises(NotFound):
                            root.child(name)

    run(main)
