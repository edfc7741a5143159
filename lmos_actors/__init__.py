"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree
keeps them running. `Agent`, `action`, `prop` and `event` define one, `open_node` runs them, a `Ref` addresses
one.

The public names are in `_public.py`, which is imported when the first of them is used. The command starts
without them: `lmos-actors --version` needs none, and Ctrl-C during imports is handled by the command itself.
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
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        __getattr__("__all__")
        return sorted(globals())
