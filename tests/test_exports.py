"""The public names: every one documented, every face nothing but a face."""

from __future__ import annotations

import ast
import importlib
import inspect
import types

import pytest

from tests.source import PACKAGE, Module, package_modules

LATE = f"from {PACKAGE}._late import late"
TYPES = f"{PACKAGE}.types"
AT_ONCE = {f"{PACKAGE}.testing"}
"""Faces that import some names at once; each says why."""
FACES = [module for module in package_modules() if module.name == TYPES or module.is_face]
TOP = next(face for face in FACES if face.name == PACKAGE)


def strangers(face: Module) -> list[str]:
    """What stands in a face beside its docstring and the block of `late` with its re-exports."""
    docstring, *rest = face.tree.body or [ast.Pass()]
    odd: list[ast.stmt] = (
        [] if isinstance(docstring, ast.Expr) and ast.get_docstring(face.tree) else [docstring]
    )
    if rest and ast.unparse(rest[0]) == LATE:
        rest = rest[1:]
    rest = [statement for statement in rest if not (face.name in AT_ONCE and re_exports(statement))]
    odd += [statement for statement in rest if not is_late(statement)]
    odd += [statement for statement in noted(face) if not re_exports(statement)]
    return [f"{face.name}: {ast.unparse(statement)}" for statement in odd]


def is_late(statement: ast.stmt) -> bool:
    """`with late(__name__):`, for the face of the package with one argument more."""
    return isinstance(statement, ast.With) and ast.unparse(statement.items[0]).startswith("late(__name__")


def noted(face: Module) -> list[ast.stmt]:
    """The statements in the block of `late`."""
    blocks = [statement for statement in face.tree.body if is_late(statement)]
    return [each for block in blocks if isinstance(block, ast.With) for each in block.body]


def re_exports(statement: ast.stmt) -> bool:
    """`from ._x import Y as Y` or the same from a package below; the name stays the same."""
    return isinstance(statement, ast.ImportFrom) and all(a.asname == a.name for a in statement.names)


def exported(face: Module) -> list[str]:
    """The names that the face re-exports, in the order in which they stand."""
    at_once = [node for node in face.tree.body if re_exports(node)] if face.name in AT_ONCE else []
    found = [node for node in (*at_once, *noted(face)) if isinstance(node, ast.ImportFrom)]
    return [alias.asname or alias.name for node in found for alias in node.names]


def undocumented(name: str, thing: object) -> list[str]:
    """The public name itself and, of a class of ours, its public functions that have no docstring."""
    if isinstance(thing, types.ModuleType) or not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return []  # an instance or an alias of types: its comment stands where it is defined
    found = [] if own_doc(thing) else [name]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            value = (
                value.fget
                if isinstance(value, property)
                else inspect.unwrap(getattr(value, "__func__", value))
            )
            if inspect.isfunction(value) and not member.startswith("_") and not documented(thing, member):
                found.append(f"{name}.{member}")
    return found


def own_doc(thing: object) -> bool:
    """Whether the docstring is the thing's own, not one that a class inherits or attrs or typing made up."""
    return (
        bool(vars(thing).get("__doc__")) if inspect.isclass(thing) else bool(getattr(thing, "__doc__", None))
    )


def documented(owner: type, member: str) -> bool:
    """Whether the member says its contract, or a base of its owner says it for the same name."""
    values = (vars(base).get(member) for base in owner.__mro__)
    return any(value.__doc__ for value in values if value is not None)  # since 3.13 None has one, too


def test_faces_only_re_export() -> None:
    assert len(FACES) > 20
    assert [odd for face in FACES for odd in strangers(face)] == []


def test_a_face_exports_each_name_once_and_private_ones_never() -> None:
    for face in FACES:
        names = exported(face)
        assert len(names) == len(set(names)), face.name
        assert [name for name in names if name.startswith("_")] == [], face.name


def test_no_name_of_a_face_is_the_name_of_a_module_in_it() -> None:
    """Importing the module would bind it to the name, and hide what the face exports."""
    modules = {module.name for module in package_modules()}
    assert [
        f"{face.name}.{name}" for face in FACES for name in exported(face) if f"{face.name}.{name}" in modules
    ] == []


def test_all_names_what_the_face_exports() -> None:
    for face in FACES:
        listed = getattr(importlib.import_module(face.name), "__all__", None)
        assert listed is None or sorted(listed) == sorted(exported(face)), face.name


def test_the_package_has_the_names_of_its_faces_and_no_others() -> None:
    package = importlib.import_module(PACKAGE)
    names = exported(TOP)
    assert sorted(package.__all__) == sorted(names)
    assert set(names) <= set(dir(package))
    starred: dict[str, object] = {}
    exec(f"from {PACKAGE} import *", starred)
    assert starred.keys() - {"__builtins__"} == set(names)
    with pytest.raises(ImportError, match="cannot import name 'Agnt'"):
        exec(f"from {PACKAGE} import Agnt")


def test_the_names_most_programs_need_are_few() -> None:
    package = importlib.import_module(PACKAGE)
    assert 60 <= len(package.__all__) <= 68
    errors = [name for name in package.__all__ if hasattr(importlib.import_module(f"{PACKAGE}.errors"), name)]
    assert len(errors) == 13


@pytest.mark.parametrize(
    ("name", "place"), [("WrongState", "errors"), ("SlowTurnWarning", "errors"), ("Waiting", "types")]
)
def test_a_name_of_another_module_says_where_it_is(name: str, place: str) -> None:
    package = importlib.import_module(PACKAGE)
    said = f"{name} is in {PACKAGE}.{place}"
    with pytest.raises(AttributeError, match=said):
        getattr(package, name)
    with pytest.raises(ImportError, match=said):
        exec(f"from {PACKAGE} import Agent, {name}")
    assert not hasattr(package, name)


@pytest.mark.parametrize("name", ["Agnt", "chain", "Any", "_HERE"])  # two that `errors` imports for itself
def test_a_name_that_is_nowhere_has_no_place(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{PACKAGE}' has no attribute '{name}'"):
        getattr(importlib.import_module(PACKAGE), name)


def test_no_name_is_at_the_top_and_among_the_types() -> None:
    package, types = importlib.import_module(PACKAGE), importlib.import_module(TYPES)
    assert [name for name in package.__all__ if hasattr(types, name)] == []


@pytest.mark.parametrize(
    "face", [face for face in FACES if face.name in (PACKAGE, TYPES)], ids=lambda face: face.name
)
def test_every_public_name_is_documented(face: Module) -> None:
    package = importlib.import_module(face.name)
    public = {name: getattr(package, name) for name in exported(face)}
    assert [gap for name, thing in public.items() for gap in undocumented(name, thing)] == []


def test_nothing_else_looks_public() -> None:
    """What stands on the package beside its exports is a subpackage, or private."""
    package = importlib.import_module(PACKAGE)
    public = set(exported(TOP))
    more = [name for name in dir(package) if not name.startswith("_") and name not in public]
    assert [name for name in more if not isinstance(getattr(package, name), types.ModuleType)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('"""Face."""', False),
        (f'"""Face."""\n{LATE}\nwith late(__name__):\n    from ._x import Y as Y', False),
        ('"""Face."""\nfrom ._x import Y as Y', True),
        ("with late(__name__):\n    from ._x import Y as Y", True),
        ('"""Face."""\nwith late(__name__):\n    from ._x import Y', True),
        ('"""Face."""\nwith late(__name__):\n    from ._x import Y as Z', True),
        ('"""Face."""\nwith late(__name__):\n    import os', True),
        ('"""Face."""\nimport os', True),
        ('"""Face."""\nlimit = 3', True),
    ],
)
def test_a_face_with_more_in_it_is_seen(text: str, wrong: bool) -> None:
    assert bool(strangers(Module("lmos_actors.room", True, text))) == wrong


class Undocumented:
    def bare(self) -> None: ...


class Documented:
    """Says it."""

    def told(self) -> None:
        """Says it."""

    def _private(self) -> None: ...


class Inherits(Documented):
    """Says it."""

    def told(self) -> None: ...


class Silent(Documented):
    pass


@pytest.mark.parametrize(
    ("thing", "gaps"),
    [
        (Undocumented, ["it", "it.bare"]),
        (Documented, []),
        (Inherits, []),
        (Silent, ["it"]),
        (Undocumented.bare, ["it"]),
        (Documented.told, []),
        (3, []),
    ],
)
def test_a_missing_docstring_is_seen(thing: object, gaps: list[str]) -> None:
    assert undocumented("it", thing) == gaps
