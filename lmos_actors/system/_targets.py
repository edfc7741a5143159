"""Imports of targets: a class, a tree or a function of the project, by module or by file.

Only the project root is put on the import path. The root stays on the path because agents import modules
while they run.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmos_actors.actors import CLASS_PLACE, class_made_by, is_agent_class
from lmos_actors.errors import ConfigError, hint_at, nearest, text_of
from lmos_actors.files import did_you_mean
from lmos_actors.supervision import SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

Accepts: TypeAlias = "Callable[[type], str | None]"
"""Returns why a class cannot be an agent, or None."""

_BY_FILE: Final = "file:"
"""Prefix for the names of modules loaded from files whose paths are not module names."""

_PACKAGE: Final = Path(__file__).resolve().parents[2]


def import_target(target: str, root: Path, accepts: Accepts | None = None) -> type:
    """Import `package.module:Class` or `path/file.py:Class`, relative to `root`. Runs the module's code.

    Raises ConfigError: malformed target, no such module or file, an error in the module (with its line, the
    exception as `__cause__`), no such class, or a class that `accepts` refuses.
    """
    module, place, name = _module_of(target, root, "Class")
    found: object = getattr(module, name, None)
    if not isinstance(found, type):
        if isinstance(found, SupervisorSpec):
            raise ConfigError(
                f'"{name}" in {place} is a tree, not a class: "serve --tree" takes it, and "tree: {{use: …}}"'
            )
        raise ConfigError(_not_found(module, place, name, "class", type))
    reason = accepts(found) if accepts else None
    if reason is not None:
        raise ConfigError(f'"{target}": {reason}')
    _read_types(found, module, root)
    return found


def import_tree(target: str, root: Path) -> tuple[SupervisorSpec, str]:
    """Import a tree, `package.module:tree` or `path/file.py:tree`, relative to `root`.

    Runs the module's code. Returns the tree and the name of its module. Raises ConfigError as `import_target`
    does, and if the target is not a SupervisorSpec.
    """
    module, place, name = _module_of(target, root, "tree")
    found: object = getattr(module, name, None)
    if not isinstance(found, SupervisorSpec):
        raise ConfigError(_not_found(module, place, name, "SupervisorSpec", SupervisorSpec))
    for cls in _classes_below(found):
        _read_types(cls, module, root)
    return found, module.__name__


def import_function(target: str, root: Path) -> Callable[..., Any]:
    """Import a function, `package.module:function` or `path/file.py:function`, relative to `root`.

    Runs the module's code. Raises ConfigError as `import_target` does, and if the target cannot be called.
    """
    module, place, name = _module_of(target, root, "function")
    found: object = getattr(module, name, None)
    if not callable(found) or isinstance(found, type):
        raise ConfigError(_not_found(module, place, name, "function", FunctionType))
    return found


def _classes_below(spec: Any) -> Iterator[type]:
    """Yield the agent classes of a tree, as far as its specs show them."""
    for child in spec.children:
        child = child if hasattr(child, "factory") else getattr(child, "member", child)  # of a BulkSpec
        if hasattr(child, "factory"):
            cls: Any = class_made_by(child.factory)
            if is_agent_class(cls):
                yield cls
        else:
            yield from _classes_below(child)


def _read_types(cls: Any, module: ModuleType, root: Path) -> None:
    """Make a class resolve its annotations. Raises ConfigError, as a failed import of the class would."""
    try:
        getattr(cls, "__contract__", None)
    except TypeError as error:
        file, _, line = str(getattr(error, CLASS_PLACE, "")).rpartition(":")
        place = f"{_relative(file, root)}:{line}" if file else ""
        name = module.__name__
        raise _failed(Path(name).name if name.startswith(_BY_FILE) else name, place, error) from error


def _module_of(target: str, root: Path, example: str) -> tuple[ModuleType, str, str]:
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise ConfigError(f'"{target}" is not package.module:{example} or path/file.py:{example}')
    return (_by_file(place, root) if place.endswith(".py") else _by_name(place, root)), place, name


def _not_found(module: ModuleType, place: str, name: str, what: str, kind: type) -> str:
    found: object = getattr(module, name, None)
    known = [word for word, value in vars(module).items() if isinstance(value, kind)]
    near = nearest(name, known) or (known[0] if len(known) == 1 and what != "class" else None)
    hint = f', did you mean "{near}"?' if near else ""
    if found is None:
        return f'no {what} "{name}" in {place}{hint}'
    return f'"{name}" in {place} is not a {what}{hint}'


def _by_file(place: str, root: Path) -> ModuleType:
    file = (root / place).resolve()
    if not file.is_relative_to(root.resolve()):
        raise ConfigError(f'"{place}" is outside the project root {root}')
    if not file.is_file():
        names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
        near = hint_at(file.name, names, '"')
        raise ConfigError(f'no file "{place}" in {root}{near}')
    parts = file.relative_to(root.resolve()).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        # As a module, so that the class is the same one that the project's own imports give.
        return _by_name(".".join(parts), root, file)
    return _loaded(file, root)


def _loaded(file: Path, root: Path) -> ModuleType:
    """Load a file whose path is not a module name, only once, under a name made from its path."""
    name = _BY_FILE + str(file)
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file.name} cannot be imported")
    module = module_from_spec(spec)
    sys.modules[name] = module
    _on_path(root)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(file.name, root, error) from error
    return module


def _by_name(name: str, root: Path, file: Path | None = None) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f'"{name}" is not a module name')
    _on_path(root)
    _forget_listings()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(f'no module "{name}" in {root}{_near_module(name, root)}') from None
        raise _broken(name, root, error) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(name, root, error) from error
    # A module that was imported earlier from elsewhere may hide the project's own.
    origin = getattr(module, "__file__", None)
    base = root.joinpath(*name.split("."))
    files = (base / "__init__.py", base.with_name(base.name + ".py")) if file is None else (file,)
    own = next((each for each in files if each.is_file()), None)
    if own is not None and origin is not None and Path(origin).resolve() != own.resolve():
        raise ConfigError(f'"{name}" is {own}, but {origin} is already imported under that name')
    return module


def _forget_listings() -> None:
    """Clear cached folder listings, so that new files are found.

    `importlib.invalidate_caches` also does this for installed packages. In newer versions of Python it
    imports modules, and takes longer than reading a scenario file.
    """
    for finder in sys.path_importer_cache.values():
        invalidate = getattr(finder, "invalidate_caches", None)
        if invalidate is not None:
            invalidate()


def _on_path(root: Path) -> None:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def _broken(name: str, root: Path, error: BaseException) -> ConfigError:
    """Return an error for an exception in a module, with the line of the project's code but no traceback."""
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{_relative(error.filename, root)}:{error.lineno}"
    else:
        theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame, root)]
        place = f"{_relative(theirs[-1].filename, root)}:{theirs[-1].lineno}" if theirs else ""
    return _failed(name, place, error)


def _failed(name: str, place: str, error: BaseException) -> ConfigError:
    said = error.msg if isinstance(error, SyntaxError) else text_of(error)
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return ConfigError(f'importing "{name}" failed{f" at {place}" if place else ""}: {what}')


def _is_theirs(frame: traceback.FrameSummary, root: Path) -> bool:
    """Return whether a frame is in a project file: not installed, not generated, not in this package."""
    file = Path(frame.filename)
    return (
        file.is_file()
        and file.resolve().is_relative_to(root.resolve())
        and not file.resolve().is_relative_to(_PACKAGE)
        and "site-packages" not in frame.filename
    )


def _relative(filename: str, root: Path) -> str:
    path = Path(filename).resolve()
    return str(path.relative_to(root.resolve())) if path.is_relative_to(root.resolve()) else filename


def _near_module(name: str, root: Path) -> str:
    """Return the first part of a dotted name that does not exist, with the most similar existing name."""
    folder = root
    for part in name.split("."):
        inside = list(folder.iterdir()) if folder.is_dir() else []
        known = sorted(
            {e.stem for e in inside if e.stem.isidentifier() and (e.is_dir() or e.suffix == ".py")}
        )
        if part not in known:
            return did_you_mean(part, known) if nearest(part, known) else ""
        folder = folder / part
    return ""
