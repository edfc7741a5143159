"""Whether a spec can be carried to another process: by a file, or by whoever deploys groups of agents."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from lmos_actors._errors import ConfigError

if TYPE_CHECKING:
    from ._spec import Spec


def check_portable(spec: Spec) -> None:
    """Raise ConfigError, naming the child, unless every factory of the spec can be made anew elsewhere.

    A factory travels by its name: a class or function at the top level of a module that can be imported, or
    a `functools.partial` of one with arguments that can be pickled. A lambda has no name to travel by.
    """
    for child in getattr(spec, "children", ()):
        check_portable(child)
    factory = getattr(spec, "factory", None)
    if factory is not None:
        _check_factory(factory, f"{spec.name}.factory")


def _check_factory(factory: Any, where: str) -> None:
    if isinstance(factory, partial):
        _check_factory(factory.func, where)  # pyright: ignore[reportUnknownMemberType]
        for name, value in (*enumerate(factory.args), *factory.keywords.items()):
            _check_argument(value, f"{where}({name})")
        return
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not isinstance(name, str) or not isinstance(module, str):
        raise ConfigError(f"{factory!r} has no name by which another process could import it", where)
    if "<lambda>" in name:
        raise ConfigError(
            "a lambda has no name by which another process could import it; use functools.partial", where
        )
    if "<locals>" in name:
        raise ConfigError(f"{name} is made inside a function: move it to the top level of its module", where)
    if module == "__main__":
        raise ConfigError(f"{name} stands in the script that runs: move it to a module of its own", where)
    if _found(module, name) != factory:  # a bound classmethod is made anew each time
        raise ConfigError(
            f"{module}.{name} is not what the spec holds: another process would find that", where
        )


def _found(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _check_argument(value: Any, where: str) -> None:
    try:
        pickle.dumps(value)
    except Exception as exc:
        raise ConfigError(f"cannot be carried to another process: {exc}", where) from None
