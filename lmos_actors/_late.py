"""Names in the faces of packages, imported on first use.

The face of a package lists what others may use of it. If it imported all of that at once, a program that
wants one name would load the whole package. In the block of `late` the import statements of a face are noted
and not executed:

    with late(__name__):
        from ._writer import Writer as Writer

The first use of `Writer` then imports `_writer.py`. Linters, type checkers and packagers read these import
statements like any others. Python 3.15 has `lazy from ._writer import Writer` for this.

What this file keeps true: a name is bound in the face once it has been looked up, so that a second use costs
nothing. All other imports work as usual, also in other threads meanwhile.
"""

from __future__ import annotations

import builtins
import sys
from _thread import RLock  # not `threading`, which takes time: this file comes before all others

from ._wings import WingFinder

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take time
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

_Namespace = type(sys.implementation)  # `types.SimpleNamespace`, as importing `types` would take time
_ONE_BLOCK = RLock()
"""Two threads that import two faces must not each restore the other's `__import__`.

A signal handler may import a face amid the block of another one.
"""


class late:
    """Note the imports of a block at the top of a face; import each name on its first use.

    `others` are modules to search for a name that the face lacks; the error then names the module.
    """

    def __init__(self, face: str, *, others: Sequence[str] = ()) -> None:
        self._face = face
        self._names: dict[str, Any] = vars(sys.modules[face])
        self._others = others
        self._modules: dict[str, tuple[str, int]] = {}
        """The module of each name, and how many packages up it is: 0 for an absolute one."""

    def __enter__(self) -> None:
        _ONE_BLOCK.acquire()
        self._at_once = [name for name in self._names if name[0] != "_" and name != late.__name__]
        self._import = builtins.__import__
        builtins.__import__ = self._note  # type: ignore[assignment]

    def __exit__(self, *exception: object) -> None:
        builtins.__import__ = self._import
        _ONE_BLOCK.release()
        for name in self._modules:
            del self._names[name]
        self._names.update(
            __getattr__=self._find, __dir__=self._all, __all__=[*self._at_once, *self._modules]
        )

    def _note(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        """Note which module has the imported names if the face is the importer; otherwise import as usual."""
        if globals is not self._names:
            return self._import(name, globals, locals, fromlist, level)
        self._modules.update(dict.fromkeys(fromlist, (name, level)))
        return _Namespace(**dict.fromkeys(fromlist))  # no module: the names are None for the block

    def _find(self, name: str) -> object:
        """Import a name of the face. Raise AttributeError if the face has no such name."""
        if name not in self._modules:
            self._refuse(name)
        place, level = self._modules[name]
        try:
            module = __import__(place, self._names, None, (name,), level)
        except AttributeError as error:  # who asks for a name would take it for one that is not there
            raise ImportError(f"{self._face}.{name} cannot be imported: {error}", name=self._face) from error
        value = self._names[name] = getattr(module, name)
        found = vars(module)  # pyright: ignore[reportUnknownVariableType]
        for other, where in self._modules.items():  # what comes with it costs nothing any more
            if where == (place, level) and other in found:
                self._names.setdefault(other, found[other])  # pyright: ignore[reportUnknownArgumentType]
        return value

    def _refuse(self, name: str) -> NoReturn:
        for other in self._others if not name.startswith("_") else ():
            if getattr(_value_in(other, name), "__module__", "").startswith("lmos_actors"):
                # `from lmos_actors import X` calls hasattr, which drops an AttributeError and its text
                caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] # documented by CPython
                importing = caller.f_code.co_name == "_handle_fromlist"
                raise (ImportError if importing else AttributeError)(f"{name} is in {other}")
        raise AttributeError(f"module {self._face!r} has no attribute {name!r}")

    def _all(self) -> list[str]:
        return sorted({*self._names, *self._modules} - {late.__name__})


def _value_in(module: str, name: str) -> object:
    from importlib import import_module

    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None  # its wing is away


sys.meta_path.append(WingFinder)
