"""Tools for tests of agents: a node on virtual time with seeded chance, probes, fakes and planned faults.

With pytest-trio, put `pytest_plugins = ["lmos_actors.testing"]` into the topmost `conftest.py`; a test that
names the fixture `virtual_clock` then runs on that clock:

    async def test_greeting(virtual_clock):
        async with open_test_node() as node:
            greeter = await node.start(Greeter)
            assert await greeter.invoke(Greeter.greet, "Ada") == "Hello Ada"

pytest need not rewrite the assertions in here: PYTEST_DONT_REWRITE.
"""

from lmos_actors._late import late

# at once: pytest looks for hooks in the module itself, and asks no `__getattr__`
from ._plugin import (
    node as node,
    pytest_addoption as pytest_addoption,
    pytest_generate_tests as pytest_generate_tests,
    pytest_runtest_makereport as pytest_runtest_makereport,
    pytest_runtest_setup as pytest_runtest_setup,
    virtual_clock as virtual_clock,
)

with late(__name__):
    from ._approvals import answer_approval as answer_approval
    from ._fakes import NotFaked as NotFaked, fake as fake, in_turn as in_turn
    from ._faults import Fault as Fault, FaultPlan as FaultPlan
    from ._probe import Probe as Probe, Received as Received
    from ._seeds import SEED_VARIABLE as SEED_VARIABLE
    from ._test_node import TestNode as TestNode, open_test_node as open_test_node, run_test as run_test
    from ._world import settle as settle
