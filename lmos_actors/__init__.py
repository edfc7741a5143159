"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree
keeps them running. `Agent`, `action`, `prop` and `event` define one, `open_node` runs them, a `Ref` addresses
one.

The public names are in `_public.py`, which is imported when the first of them is used. The command starts
without them: `lmos-actors --version` needs none, and Ctrl-C during imports is handled by the command itself.
Further names are in `lmos_actors.errors`, `lmos_actors.types` and `lmos_actors.facades`, as the error says
if one is expected here.
"""

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take time
if TYPE_CHECKING:
    from ._public import *  # noqa: F403 -- the names are listed there
else:
    del TYPE_CHECKING

    def __getattr__(name: str) -> object:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _public

        public = {each: value for each, value in vars(_public).items() if not each.startswith("_")}
        globals().update(public, __all__=list(public))
        if name in globals():
            return globals()[name]
        place = _module_of(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # `from lmos_actors import X` calls hasattr, which drops an AttributeError and with it the place
        import sys

        importing = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if importing else AttributeError)(f"{name} is in {place}")

    def _module_of(name: str) -> "str | None":  # quoted: macOS has Python 3.9, see `__main__.py`
        """Return the other public module that has the name."""
        from importlib import import_module  # not `from . import types`, which calls `__getattr__` for it

        for place in (f"{__name__}.errors", f"{__name__}.types", f"{__name__}.facades"):
            found = vars(import_module(place)).get(name)
            if getattr(found, "__module__", "").startswith(__name__):
                return place
        return None

    def __dir__() -> list[str]:
        __getattr__("__all__")
        return sorted(globals())
