"""The rules of the house that a machine can check: layers, faces, order of files, sizes, names, purity."""

from __future__ import annotations

import ast
import gc
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from lmos_actors._wings import WINGS, wing_of
from tests.rows import each_row
from tests.source import PACKAGE, ROOT, Import, Module, package_modules, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Rule 1. Top to bottom: a layer imports those below it. Rooms of one row do not know each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("conformance",),
    ("recording",),
    ("scenario",),
    ("reports",),
    ("testing",),
    ("simulation",),
    ("deployment",),
    ("system",),
    ("assembly",),
    ("thinking",),
    ("llm",),
    ("live",),
    ("mcp",),
    ("facades", "directory"),
    ("approvals", "memories"),
    ("node",),
    ("portal",),
    ("observe",),
    ("discovery",),
    ("bindings",),
    ("supervision",),
    ("persistence",),
    ("actors",),
    ("security",),
    ("transport",),
    ("protocol",),
    ("files", "links"),
    ("_core",),
    ("root",),
)

# Rule 1, in the large: the wings in their order (`lmos_actors/_wings.py`). Each uses those before it, so that
# one can be taken away.
# It makes the usual services of a node where an option asks for one, and runs where their wing is away.
ASSEMBLY = "assembly"

# Below it is not enough for these: they may know nothing but the rooms named here.
ONLY: dict[str, frozenset[str]] = {
    "conformance": frozenset({"transport", "protocol", "files", "_core", "root"}),
    "portal": frozenset({"actors", "_core", "root"}),
    "supervision": frozenset({"actors", "_core", "root"}),
    "persistence": frozenset({"actors", "security", "_core", "root"}),
    "actors": frozenset({"protocol", "_core", "root"}),
    "security": frozenset({"protocol", "files", "_core", "root"}),
    "transport": frozenset({"_core", "root"}),
    "protocol": frozenset({"_core", "root"}),
    "files": frozenset({"_core", "root"}),
    "links": frozenset({"_core", "root"}),
}

# A module is imported or run by its name too: these start processes of the command by its words, or say what
# is imported before a process forks.
BY_NAME = frozenset(
    {
        "lmos_actors.deployment.processes._fork_server",
        "lmos_actors.deployment.processes._local_place",
        "lmos_actors.scenario.run.processes._own_processes",
    }
)
NAMES_MODULES = re.compile(rf"[\"']{PACKAGE}[.\"']")
"""What stands in every text that has the name of a module as text."""

# What judges others shares nothing with what it judges: of our own it imports these names, and no WebSocket.
KIT = "lmos_actors.conformance"
SHARED: dict[str, frozenset[str] | None] = {
    "lmos_actors.errors": None,
    "lmos_actors._late": None,
    "lmos_actors._core": frozenset({"HIDDEN", "SecretBytes", "hide", "printable"}),
    "lmos_actors.files": None,
    "lmos_actors.protocol.td": None,
    "lmos_actors.transport": frozenset(
        {"Endpoint", "Listener", "Network", "TcpNetwork", "endpoint_of", "leads_astray", "why_cut"}
    ),
}
WEBSOCKETS = frozenset({"wsproto", "trio_websocket", "websockets"})

# Rule 2. The files and rooms of one package import each other in no circle, not even for type checkers: their
# order follows from that.

# Rule 3. Decisions and data formats: no scheduler and no clock.
PURE = (
    "lmos_actors.files",
    "lmos_actors.links",
    "lmos_actors.protocol",
    "lmos_actors.security",
    "lmos_actors.supervision._plan",
    "lmos_actors.supervision._spec",
    "lmos_actors.system.values._values",
    "lmos_actors.scenario.formulas._text",
    "lmos_actors.scenario.formulas._evaluation",
    "lmos_actors.scenario.formulas._formulas",
    "lmos_actors.system.values._dist",
    "lmos_actors.scenario.judge._expect",
    "lmos_actors.scenario.formulas._names",
    "lmos_actors.scenario.judge._judge",
    "lmos_actors.scenario.judge._formula_judges",
    "lmos_actors.scenario.judge._series",
    "lmos_actors.scenario.judge._convergence_judge",
    "lmos_actors.scenario.judge._count_judges",
    "lmos_actors.scenario.judge._trace_judges",
    "lmos_actors.scenario.judge._model_talk",
    "lmos_actors.scenario.judge._model_judges",
    "lmos_actors.scenario.judge._answer_judges",
    "lmos_actors.scenario.judge._judges",
    "lmos_actors.scenario.judge._compare",
    "lmos_actors.scenario.doubles._rules",
    "lmos_actors.scenario.doubles._differences",
    "lmos_actors.system.values._json_schema",
    "lmos_actors.system.model._base",
    "lmos_actors.system.model._agents",
    "lmos_actors.scenario.model._faults",
    "lmos_actors.scenario.model._steps",
    "lmos_actors.scenario.model._checks",
    "lmos_actors.scenario.model._files",
    "lmos_actors.system.model._parts",
)
CLOCKS = frozenset({"trio", "trio_websocket", "time", "random", "secrets"})
FOREIGN = frozenset({"asyncio", "anyio", "threading.Timer", "sched"})
FOREIGN_ALLOWED = frozenset(
    {
        ("lmos_actors.portal._aio", "asyncio"),  # for those who live there
        ("lmos_actors.actors._blocking_work", "anyio"),  # its worker processes, which run on trio
    }
)

# The one file that may import private names of trio (DECISIONS X2); `_core/_scopes.py` reads two of a task.
PRIVATE_TRIO = "lmos_actors.simulation._world"

# Rule 12. Exceptions by name, each for a reason that its file states.
LINES = 600
# Each is one object or one tree; its essay says why it is not parted.
LONG_FILES = frozenset(
    {
        "lmos_actors.actors.slot._slot",
        "lmos_actors.conformance.scripted._connection",
        "lmos_actors.errors",
    }
)
FUNCTION_LINES = 60
# Tests import faces: one that imports a private module breaks when that is renamed. The number only falls.
MOST_TESTS_OF_INSIDES = 70
INSIDES = re.compile(rf"\b(from|import) {PACKAGE}(\.\w+)*\._")
"""The plain search for such an import: `_core` counts too, and programs that stand in a test as text."""
MOST_BY_A_FACE = 15
MAY_NAME_INSIDES = re.compile(rf"\b{PACKAGE}\b[^\n]*( _|\([^)]*\b_)")
"""What stands in every text that imports a private module from the face over it: not all texts are parsed."""
NAMES_OF_NOTHING = frozenset({"utils", "util", "common", "helpers", "misc"})

MODULES = package_modules()
NAMES = frozenset(module.name for module in MODULES)
PACKAGES = frozenset(module.name for module in MODULES if module.is_face)


@pytest.fixture(scope="module", autouse=True)
def _collector_spared() -> Iterator[None]:
    """Have no garbage collection, here or in a later test, go through a million nodes."""
    gc.disable()
    yield
    for module in MODULES:
        module.forget()
    gc.enable()


def layer_of(name: str) -> str:
    """The layer that a module of the package belongs to; its root files are one layer."""
    room = name.removeprefix(PACKAGE).lstrip(".").partition(".")[0]
    layers = {layer for row in LAYERS for layer in row}
    return room if room in layers else "root"


def height(layer: str) -> int:
    return next(n for n, row in enumerate(reversed(LAYERS)) if layer in row)


def ours(module: Module) -> Iterator[Import]:
    for found in module.imports(NAMES):
        if found.target == PACKAGE or found.target.startswith(f"{PACKAGE}."):
            yield found


def named(module: Module) -> Iterator[Import]:
    """Modules whose names stand as text: in `import_module`, in a list of modules, after `-m`."""
    for node in module.nodes if NAMES_MODULES.search(module.text) else ():
        if isinstance(node, ast.Constant) and node.value in NAMES - {PACKAGE}:
            yield Import(str(node.value), node.lineno, False)
        elif isinstance(node, (ast.List, ast.Tuple)):
            words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            if ("-m", PACKAGE) in pairwise(words):
                yield Import(f"{PACKAGE}.cli", node.lineno, False)


def wrong_directions(module: Module) -> Iterator[str]:
    """Imports that point up, sideways, or past what `ONLY` allows; the package's own faces are free."""
    if module.name in (PACKAGE, f"{PACKAGE}.types"):
        return
    own = layer_of(module.name)
    for found in (*ours(module), *(() if module.name in BY_NAME else named(module))):
        if found.target == PACKAGE:
            continue  # the own face: `wrong_doors` says so
        other = layer_of(found.target)
        allowed = other == own or (height(other) < height(own) and other in ONLY.get(own, {other}))
        if not allowed:
            yield f"{module.name}:{found.line} ({own}) imports {found.target} ({other})"


def wrong_wings(module: Module) -> Iterator[str]:
    """Imports of a later wing, which could not be taken away."""
    own = layer_of(module.name)
    if own in (ASSEMBLY, "root"):
        return
    for found in ours(module):
        other = layer_of(found.target)
        if place_of_wing(other) > place_of_wing(own):
            yield f"{module.name}:{found.line} imports {found.target}, which is of a later wing"


def place_of_wing(layer: str) -> int:
    """The place of the wing of a layer in their order."""
    return [*WINGS].index(wing_of(f"{PACKAGE}.{layer}"))


def by_a_face(module: Module) -> bool:
    """Whether a test imports a private module from the face over it, which the plain search does not find."""
    return MAY_NAME_INSIDES.search(module.text) is not None and any(
        isinstance(node, ast.ImportFrom)
        and node.module is not None
        and "._" not in node.module
        and any(f"{node.module}.{alias.name}" in NAMES and alias.name[0] == "_" for alias in node.names)
        for node, _ in module.import_statements
    )


def shared_too_much(module: Module) -> Iterator[str]:
    """Imports by which the kit would share the mistakes of those whom it judges."""
    if f"{module.name}.".startswith(f"{KIT}."):
        for node, _ in module.import_statements:
            for room, name in imported(module, node):
                top, inside = room.partition(".")[0], f"{room}.".startswith(f"{KIT}.")
                allowed = SHARED.get(room, frozenset()) if top == PACKAGE and not inside else None
                if top in WEBSOCKETS or (allowed is not None and name not in allowed):
                    yield f"{module.name}:{node.lineno} takes {name} of {room}"


def imported(module: Module, node: ast.AST) -> Iterator[tuple[str, str]]:
    """The rooms and names that a statement imports; of `import room` the name is empty."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((module.base(node), alias.name) for alias in node.names)


def top_level(name: str) -> str:
    """The top-level package that a name lies in; the whole package for its root files."""
    first = name.removeprefix(PACKAGE).lstrip(".").partition(".")[0]
    return f"{PACKAGE}.{first}" if f"{PACKAGE}.{first}" in PACKAGES else PACKAGE


def wrong_doors(module: Module) -> Iterator[str]:
    """Imports of the insides of another top-level package, and of a face from inside its package."""
    for found in ours(module):
        room, _, last = found.target.rpartition(".")
        if not module.is_face and f"{module.package}.".startswith(f"{found.target}."):
            yield f"{module.name}:{found.line} imports its own face {found.target}"
        elif last.startswith("_") and top_level(room) not in (PACKAGE, top_level(module.name)):
            yield f"{module.name}:{found.line} imports the inside {found.target}, not the face {room}"


def circles(modules: Iterable[Module]) -> list[list[str]]:
    """The files and rooms of a package that import each other in a circle, each circle sorted."""
    found: list[list[str]] = []
    imports: dict[str, dict[str, set[str]]] = {}
    for module in modules:
        for found_import in ours(module):
            package, own, other = parted(module.name, found_import.target)
            if package != PACKAGE and own and other:  # the rooms of the whole package are the layers
                imports.setdefault(package, {}).setdefault(own, set()).add(other)
    for package, edges in sorted(imports.items()):
        found += [[f"{package}.{room}" for room in circle] for circle in knots(edges)]
    return found


def parted(name: str, other: str) -> tuple[str, str, str]:
    """The innermost package that holds two modules, and what of it leads to each; empty for its face."""
    ours, theirs = name.split("."), other.split(".")
    same = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if same is None:
        same = min(len(ours), len(theirs))
    return ".".join(ours[:same]), "".join(ours[same : same + 1]), "".join(theirs[same : same + 1])


def knots(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges.get(start, ()))
        while todo:
            if (room := todo.pop()) not in seen:
                seen.add(room)
                todo += edges.get(room, ())
        return seen

    reach = {room: reached(room) for room in edges}
    tied = {room: frozenset(o for o in reach[room] if room in reach.get(o, ())) for room in edges}
    return [sorted(group) for group in sorted({group for group in tied.values() if group}, key=sorted)]


def impure(module: Module) -> Iterator[str]:
    """Clocks and schedulers where only decisions are made, and other event loops anywhere."""
    pure = any(module.name == name or module.name.startswith(f"{name}.") for name in PURE)
    for found in module.imports():
        top = found.target.partition(".")[0]
        if pure and top in CLOCKS:
            yield f"{module.name}:{found.line} is pure and imports {found.target}"
        if top in FOREIGN and (module.name, top) not in FOREIGN_ALLOWED:
            yield f"{module.name}:{found.line} imports {found.target}"


PRIVATE_NAME = re.compile(r"\btrio\b[\w.\s]*\._")


def private_trio(module: Module) -> Iterator[str]:
    """Uses of trio's private names outside the one file that may."""
    if module.name == PRIVATE_TRIO:
        return
    for found in module.imports():
        if found.target.startswith("trio.") and "._" in found.target:
            yield f"{module.name}:{found.line} imports {found.target}"
    for node in module.nodes if PRIVATE_NAME.search(module.text) else ():
        if type(node) is ast.Attribute and node.attr.startswith("_") and not node.attr.endswith("__"):
            root: ast.expr = node
            while type(root) is ast.Attribute:
                root = root.value
            if type(root) is ast.Name and root.id == "trio":
                yield f"{module.name}:{node.lineno} uses {ast.unparse(node)}"


def functions(module: Module) -> Iterator[tuple[str, int, int]]:
    """Every function: qualified name, line, and its lines without the docstring."""
    todo: list[tuple[str, ast.AST]] = [(module.name, module.tree)]
    while todo:
        name, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, HOLDERS):
                continue
            inner = name
            if isinstance(child, (ast.ClassDef, *FUNCTIONS)):
                inner = f"{name}.{child.name}"
            if isinstance(child, FUNCTIONS):
                doc = ast.get_docstring(child, clean=False)
                size = (child.end_lineno or child.lineno) - child.lineno + 1
                yield inner, child.lineno, size - (doc.count("\n") + 1 if doc else 0)
            todo.append((inner, child))


def oversized(module: Module) -> Iterator[str]:
    """Files and functions over their limit, and files named after nothing."""
    lines = module.text.count("\n")
    if lines > LINES and module.name not in LONG_FILES:
        yield f"{module.name} has {lines} lines"
    for name, line, size in functions(module):
        if size > FUNCTION_LINES:
            yield f"{module.name}:{line} {name} has {size} lines"
    if module.name.rpartition(".")[2].strip("_") in NAMES_OF_NOTHING:
        yield f"{module.name} is named after nothing"


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)
"""What a function may stand in: never an expression."""

CHECKS = (
    wrong_directions,
    wrong_wings,
    shared_too_much,
    wrong_doors,
    impure,
    private_trio,
    oversized,
)


def test_the_package_keeps_the_rules() -> None:
    """All in one test, as each worker of xdist that has one of them would parse the package."""
    assert MODULES, "no module was read"
    assert [complaint for check in CHECKS for module in MODULES for complaint in check(module)] == []


def test_few_tests_import_private_modules() -> None:
    tests = [read(path) for path in sorted((ROOT / "tests").rglob("*.py"))]
    plain = [module.name for module in tests if INSIDES.search(module.text)]
    faces = [module.name for module in tests if by_a_face(module)]
    assert len(plain) <= MOST_TESTS_OF_INSIDES, "\n".join(plain)
    assert len(faces) <= MOST_BY_A_FACE, "\n".join(faces)


@pytest.mark.parametrize(
    ("text", "plain", "face"),
    [
        (f"from {PACKAGE}.actors.slot._slot import Slot", True, False),
        (f"import {PACKAGE}.cli._main as first", True, False),
        (f"if TYPE_CHECKING:\n    from {PACKAGE}._core._entropy import Entropy", True, False),
        (f"from {PACKAGE}._core import Entropy", True, False),
        (f"code = 'import {PACKAGE}.cli._main'", True, False),
        (f"from {PACKAGE}.actors import Ref, _tally", False, True),
        (f"from {PACKAGE}.actors import (\n    Ref,\n    _tally,\n)", False, True),
        (f"from {PACKAGE} import Agent", False, False),
        ("from trio._core import _run", False, False),
    ],
)
def test_an_import_of_a_private_module_is_seen(text: str, plain: bool, face: bool) -> None:
    assert (INSIDES.search(text) is not None) == plain
    assert by_a_face(Module("tests.test_x", False, text)) == face


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(MODULES) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        ({"actors._a": "from ._b import b", "actors._b": "from ._c import c"}, []),
        ({"actors._a": "from ._b import b", "actors._b": "from ._a import a"}, ["actors._a", "actors._b"]),
        (
            {"actors._a": "if TYPE_CHECKING:\n    from ._b import b", "actors._b": "from ._a import a"},
            ["actors._a", "actors._b"],
        ),
        (
            {"td.x._a": "from lmos_actors.td.y import b", "td.y._b": "from lmos_actors.td.x import a"},
            ["td.x", "td.y"],
        ),
        ({"actors._a": "from lmos_actors.td import b", "td._b": "from lmos_actors.actors import a"}, []),
    ],
)
def test_circles_are_found(files: dict[str, str], circle: list[str]) -> None:
    found = circles(sample(name, text) for name, text in files.items())
    assert found == ([[f"{PACKAGE}.{name}" for name in circle]] if circle else [])


def test_layers_are_written_once() -> None:
    layers = [layer for row in LAYERS for layer in row]
    assert len(layers) == len(set(layers))
    assert sorted(layer for wing in WINGS.values() for layer in wing) == sorted({*layers} - {"root"})
    assert {*ONLY, *(name for names in ONLY.values() for name in names)} <= set(layers)


def test_exceptions_are_still_needed() -> None:
    """An exception that nothing needs any more would let the next one through."""
    long_files = {module.name for module in MODULES if module.text.count("\n") > LINES}
    assert long_files >= LONG_FILES
    foreign = {(m.name, found.target.partition(".")[0]) for m in MODULES for found in m.imports()}
    assert foreign >= FOREIGN_ALLOWED
    assert {module.name for module in MODULES if any(named(module))} >= BY_NAME


def long_function(lines: int) -> str:
    return "\n".join(["def long():", *["    x()"] * (lines - 1)])


SAMPLES = [
    (wrong_directions, "actors._runtime", "from lmos_actors.supervision import Plan", True),
    (wrong_directions, "actors._runtime", f"def f():\n    import {PACKAGE}.node._node", True),
    (wrong_directions, "actors._runtime", "if TYPE_CHECKING:\n    from ..supervision import Plan", True),
    (wrong_directions, "actors._runtime", "from lmos_actors.transport import Network", True),
    (wrong_directions, "actors._runtime", "from lmos_actors.protocol.td import schema_of", False),
    (wrong_directions, "facades._chat", "from lmos_actors.directory import ThingDirectory", True),
    (wrong_directions, "conformance._kit", "from lmos_actors.actors import Ref", True),
    (wrong_wings, "actors._runtime", "from lmos_actors.memories import Memories", True),
    (wrong_wings, "node._node", "if TYPE_CHECKING:\n    from lmos_actors.facades import OmniaOptions", True),
    (wrong_wings, "facades._chat", "from lmos_actors.thinking import Budget", True),
    (wrong_wings, "thinking._agent", "from lmos_actors.facades import ChatAgent", False),
    (wrong_wings, "assembly._options", "from lmos_actors.facades import OmniaOptions", False),
    (shared_too_much, "conformance._kit", "from lmos_actors.protocol.lmos import Message", True),
    (shared_too_much, "conformance._kit", "from lmos_actors.protocol import lmos", True),
    (shared_too_much, "conformance._kit", "from ..protocol.lmos import Message", True),
    (shared_too_much, "conformance._kit", "import lmos_actors.protocol.lmos", True),
    (shared_too_much, "conformance._kit", "from lmos_actors.transport import connect", True),
    (shared_too_much, "conformance._kit", "from lmos_actors import Agent", True),
    (shared_too_much, "conformance._kit", "def f():\n    import wsproto.frame_protocol", True),
    (shared_too_much, "conformance._kit", "from lmos_actors.transport import Network", False),
    (shared_too_much, "conformance._kit", "from lmos_actors.protocol.td import load", False),
    (shared_too_much, "conformance._kit", "from ._letter import hear", False),
    (shared_too_much, "bindings.lmos._peer", "from lmos_actors.protocol.lmos import Message", False),
    (wrong_directions, "errors", "from .node import Node", True),
    (wrong_directions, "deployment._x", "import_module('lmos_actors.cli').main([])", True),
    (wrong_directions, "deployment._x", "modules = ['lmos_actors.cli.serve._group']", True),
    (wrong_directions, "deployment._x", "words = [sys.executable, '-P', '-m', 'lmos_actors', *more]", True),
    (wrong_directions, "deployment._x", "sys.modules.get('lmos_actors.llm')", False),
    (wrong_directions, "deployment._x", "from lmos_actors.scenario import Scenario", True),
    (wrong_directions, "deployment._x", "from lmos_actors.simulation import simulate", True),
    (wrong_directions, "scenario._x", "from lmos_actors.deployment.files import load_deployment", False),
    (wrong_directions, "node._node", "from lmos_actors.supervision import Plan", False),
    (wrong_doors, "supervision._plan", f"from {PACKAGE}.actors.slot._slot import Slot", True),
    (wrong_doors, "supervision._plan", "from ..actors import _slot", True),
    (wrong_doors, "supervision._plan", "from lmos_actors.supervision import Plan", True),
    (wrong_doors, "protocol.td._schema", "import lmos_actors.protocol", True),
    (wrong_doors, "supervision._plan", "from lmos_actors import Agent", True),
    (wrong_doors, "supervision._plan", "from . import _spec", False),
    (private_trio, "actors._runtime", "from trio import _core", True),
    (wrong_doors, "supervision._plan", "from ..errors import NotFound", False),
    (impure, "supervision._plan", "import trio", True),
    (impure, "files._yaml", "from time import monotonic", True),
    (impure, "actors._runtime", "import trio", False),
    (impure, "actors._runtime", "import asyncio", True),
    (private_trio, "actors._runtime", "from trio._core import _run", True),
    (private_trio, "actors._runtime", "import trio\ntrio._core._run._r.shuffle()", True),
    (private_trio, "simulation._world", "from trio._core import _run", False),
    (private_trio, "actors._runtime", "import trio\ntrio.lowlevel.current_task()", False),
    (oversized, "actors._ref", "x = 1\n" * 601, True),
    (oversized, "actors._ref", "x = 1\n" * 600, False),
    (oversized, "actors._ref", long_function(61), True),
    (oversized, "actors._ref", long_function(60), False),
    (oversized, "actors._utils", "", True),
]  # fmt: skip


@each_row(("check", "name", "text", "wrong"), SAMPLES)
def test_a_check_sees_what_it_is_for(check, name: str, text: str, wrong: bool) -> None:
    assert bool(list(check(sample(name, text)))) == wrong


def sample(name: str, text: str) -> Module:
    return Module(f"{PACKAGE}.{name}", False, text)


def test_what_a_file_imports_is_read_in_full() -> None:
    text = "import a.b\nfrom . import _x, y\nfrom ..c import d\nfrom .e import f\n"
    module = sample("room._here", text)
    modules: Iterable[str] = {"lmos_actors.room._x"}
    assert [found.target for found in module.imports(frozenset(modules))] == [
        "a.b",
        "lmos_actors.room._x",
        "lmos_actors.room",
        "lmos_actors.c",
        "lmos_actors.room.e",
    ]
