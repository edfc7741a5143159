"""The wings of the house: which packages belong together, and which can be taken away."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would take time
if TYPE_CHECKING:
    from collections.abc import Generator

WINGS: dict[str, tuple[str, ...]] = {
    "runtime": (
        "actors", "assembly", "bindings", "discovery", "files", "links", "node", "observe", "persistence",
        "portal", "protocol", "security", "supervision", "transport", "_core",
    ),
    "consent": ("approvals", "memories"),
    "services": ("directory", "facades", "live", "mcp"),
    "minds": ("llm", "thinking"),
    "deployment": ("deployment", "system"),
    "lab": ("reports", "scenario", "simulation", "testing"),
    "recording": ("recording",),
    "kit": ("conformance",),
    "command": ("cli", "__main__"),
}  # fmt: skip
"""The packages of each wing. A wing uses those before it."""


def wing_of(module: str) -> str:
    """Return the wing of a module by its full name; all others belong to the runtime."""
    package, _, inside = module.partition(".")
    room = inside.partition(".")[0] if package == "lmos_actors" else ""
    return next((wing for wing, rooms in WINGS.items() if room in rooms), "runtime")


def away(error: ImportError, name: str) -> ModuleNotFoundError | None:
    """Return the error that says which wing `name` needs; None if what is missing is no wing."""
    missing = error.name or ""
    if not isinstance(error, ModuleNotFoundError) or wing_of(missing) == "runtime":
        return None
    room = ".".join(missing.split(".")[:2])
    text = f"{name} is part of the wing {wing_of(room)} ({room}), which is not installed"
    return ModuleNotFoundError(text, name=room)


@contextmanager
def wing(needed_by: str) -> Generator[None]:
    """Import modules of a wing in a block. Raise ImportError that names the wing where it is away."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (error := away(missing, needed_by)) is None:
            raise
        raise error from None
