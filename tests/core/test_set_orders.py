"""The order of a set differs from process to process, so nothing in the package may depend on it.

What is plainly a set is found by its text: a literal, `set(...)`, a name of the same function or an attribute
of the same file that is declared or made to be one. What a call returns is not known here.
"""

from __future__ import annotations

import ast
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from tests.source import Module, package_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

SET_TYPES = ("set", "frozenset", "abstractset", "mutableset")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# What takes an iterable and gives the same whatever its order, and what shows the order.
ORDER_FREE = frozenset({"sorted", "set", "frozenset", "any", "all", "len"})
ORDERED = frozenset({"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "deque", "chain", "join"})


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def declares_set(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).strip("\"'").lower().startswith(SET_TYPES)


def is_set(node: ast.expr | None, known: frozenset[str]) -> bool:
    """Whether an expression is plainly a set; `known` are names, attributes with their dot in front."""
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Attribute):
        return f".{node.attr}" in known
    if isinstance(node, ast.BinOp):
        return is_set(node.left, known) or is_set(node.right, known)
    made = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )
    return made or isinstance(node, ast.Set | ast.SetComp)


def scopes(tree: ast.Module) -> dict[ast.AST, list[ast.AST]]:
    """The nodes of the module and of each function, without those of the functions in it."""
    found: dict[ast.AST, list[ast.AST]] = {tree: []}
    todo: list[tuple[ast.AST, list[ast.AST]]] = [(tree, found[tree])]
    while todo:
        node, own = todo.pop()
        for child in ast.iter_child_nodes(node):
            own.append(child)
            inner = found.setdefault(child, []) if isinstance(child, FUNCTIONS) else own
            todo.append((child, inner))
    return found


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """What the statement gives a value or a type to, and whether that is a set."""
    if isinstance(node, ast.Assign):
        yield from ((target, is_set(node.value, frozenset())) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        yield node.target, declares_set(node.annotation)


def local_sets(function: ast.AST, nodes: list[ast.AST]) -> frozenset[str]:
    """The names of one function, or of the module itself, that hold sets."""
    found = chain.from_iterable(bindings(node) for node in nodes)
    names = {target.id for target, holds in found if holds and isinstance(target, ast.Name)}
    if isinstance(function, FUNCTIONS):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names |= {argument.arg for argument in arguments if declares_set(argument.annotation)}
    return frozenset(names)


def attribute_sets(nodes: list[ast.AST]) -> frozenset[str]:
    """The attributes that hold sets, assigned anywhere in the file or declared in a class."""
    found = chain.from_iterable(bindings(node) for node in nodes)
    names = {f".{target.attr}" for target, holds in found if holds and isinstance(target, ast.Attribute)}
    for owner in nodes:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            names |= {
                f".{target.id}" for target, holds in bindings(node) if holds and isinstance(target, ast.Name)
            }
    return frozenset(names)


def iterated(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """Every expression whose order may show."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    free = [argument for call in calls if called(call) in ORDER_FREE for argument in call.args]
    for node in nodes:
        if isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in free:
            yield from (generator.iter for generator in node.generators)
    for call in calls:
        if called(call) in ORDERED and call not in free:
            yield from call.args
        if called(call) == "pop" and not call.args and isinstance(call.func, ast.Attribute):
            yield call.func.value


def set_orders(module: Module) -> Iterator[str]:
    """The places of a file where the order of a set may show."""
    found = scopes(module.tree)
    shared = attribute_sets(list(chain.from_iterable(found.values())))
    shared |= local_sets(module.tree, found[module.tree])
    for function, nodes in found.items():
        known = shared | local_sets(function, nodes)
        for expression in iterated(nodes):
            if is_set(expression, known):
                yield f"{module.name}:{expression.lineno} takes the order of a set: {ast.unparse(expression)}"


@pytest.mark.slow
@pytest.mark.timeout(240)  # it does nothing but compute, for seconds on a machine without other work
def test_nothing_takes_the_order_of_a_set() -> None:
    found: list[str] = []
    for module in package_modules():
        found += set_orders(module)
        module.forget()  # no garbage collection is to go through the nodes of all files
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "for x in {1, 2}: pass",
        "y = list(set(x))",
        "y = [a for a in frozenset(x)]",
        "y = {a: 1 for a in {1, 2} | b}",
        "class A:\n    s: set[int]\n    def f(self):\n        for x in self.s: pass",
        "class A:\n    def f(self):\n        self.s = set()\n    def g(self):\n        return tuple(self.s)",
        "def f(s: frozenset[str]):\n    return ','.join(s)",
        "s = set()\ns.pop()",
        "S = {1}\ndef f():\n    return [*S]",
        "f(*{1, 2})",
    ],
)
def test_the_order_of_a_set_is_seen(text: str) -> None:
    assert len(list(set_orders(Module("lmos_actors.actors.slot._slot", False, text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "y = sorted({1, 2})",
        "z = any(a for a in {1, 2})",
        "w = 3 in {3}",
        "n = len(set(x))",
        "b = sorted(a + 1 for a in {1, 2})",
        "for x in [1, 2]: pass",
        "def f():\n    words = {1}\ndef g():\n    words = [1]\n    return list(words)",
        "d = {}\nd.pop()",
        "s = set()\ns.add(1)\nt = {a for a in s}",
    ],
)
def test_what_does_not_depend_on_the_order_is_left_alone(text: str) -> None:
    assert not list(set_orders(Module("lmos_actors.actors.slot._slot", False, text)))
