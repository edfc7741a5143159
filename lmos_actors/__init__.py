"""A Trio-based actor runtime for multi-agent systems.

Each agent is a structured-concurrency actor with its own nursery, mailbox and state; a supervisor tree
keeps them running. `Agent`, `action`, `prop` and `event` make one, `open_node` runs some, a `Ref` is how
to talk to one.

The names stand in `_public.py`, which is imported when the first of them is used: the command has its own
start, and needs none of them to say its version, or to be interrupted.
"""

TYPE_CHECKING = False  # as type checkers know it: to import `typing` takes a while
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
