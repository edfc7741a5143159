"""The package as text: its modules, their syntax trees and what they import."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "lmos_actors"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The members of a statement that have further statements."""


@dataclass(frozen=True)
class Import:
    """One imported module, the line it stands on, and whether it is there for type checkers only."""

    target: str
    line: int
    types_only: bool


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, whether it is a package's face, and its text."""

    name: str
    is_face: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    def forget(self) -> None:
        """Drop the syntax tree and what was read from it, which are large."""
        for name in ("tree", "nodes", "import_statements"):
            self.__dict__.pop(name, None)

    @property
    def package(self) -> str:
        """The package the file stands in; a face stands in its own."""
        return self.name if self.is_face else self.name.rpartition(".")[0]

    def imports(self, modules: frozenset[str] = frozenset()) -> list[Import]:
        """Everything imported anywhere in the file, relative names made absolute.

        `from p import x` imports the module `p.x` if that is one of `modules` or looks like one, else `p`.
        """
        found: list[Import] = []
        for node, types_only in self.import_statements:
            if isinstance(node, ast.Import):
                found += [Import(alias.name, node.lineno, types_only) for alias in node.names]
                continue
            base = self.base(node)
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                inside = alias.name.startswith("_") and not base.rpartition(".")[2].startswith("_")
                target = deeper if deeper in modules or inside else base
                found.append(Import(target, node.lineno, types_only))
        return found

    @cached_property
    def import_statements(self) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
        """The statements that import, and whether they are there for type checkers only."""
        found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
        todo: list[tuple[ast.AST, bool]] = [(self.tree, False)]
        for node, types_only in todo:  # grows while it is walked
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found.append((node, types_only))
            inside = types_only or for_types(node)
            # statements alone: nearly all nodes are expressions
            todo += [(child, inside) for name in BLOCKS for child in getattr(node, name, ())]
        return found

    def base(self, node: ast.ImportFrom) -> str:
        """What `from` names, made absolute."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        parents = parts[: len(parts) - node.level + 1]
        return ".".join([*parents, node.module] if node.module else parents)


def for_types(node: ast.AST) -> bool:
    """Whether the node is an `if TYPE_CHECKING:` without an else."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    test = node.test
    return (test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")) == "TYPE_CHECKING"


def read(path: Path, root: Path = ROOT) -> Module:
    """Read one source file below `root`."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    is_face = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_face else parts), is_face, path.read_text(encoding="utf-8"))


def package_modules() -> list[Module]:
    """Every module of the package, faces included, by name."""
    return sorted((read(path) for path in (ROOT / PACKAGE).rglob("*.py")), key=lambda module: module.name)
