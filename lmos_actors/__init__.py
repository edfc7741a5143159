"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree
keeps them running. `Agent`, `action`, `prop` and `event` define one, `open_node` runs them, a `Ref` addresses
one.

The public names are in `_public.py`, and those that run agents in `_running.py`; each file is imported when
a name in it is used. The command starts without them: `lmos-actors --version` needs none, a file of agents
needs no node, and Ctrl-C during imports is handled by the command itself.
Further names are in `lmos_actors.errors`, `lmos_actors.types` and `lmos_actors.facades`, as the error says
if one is expected here.
"""

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take time
if TYPE_CHECKING:
    from ._public import *  # noqa: F403 -- the names are listed there
    from ._running import *  # noqa: F403
else:
    del TYPE_CHECKING

    def __getattr__(name: str) -> object:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _public

        public = _names_in(_public)
        if name not in public:
            from . import _running

            public |= _names_in(_running)
            public["__all__"] = list(public)
        globals().update(public)
        if name in public:
            return public[name]
        place = _module_of(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # `from lmos_actors import X` calls hasattr, which drops an AttributeError and with it the place
        import sys

        importing = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if importing else AttributeError)(f"{name} is in {place}")

    def _names_in(face: object) -> "dict[str, object]":
        return {each: value for each, value in vars(face).items() if not each.startswith("_")}

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
