"""The wings of the house: which packages belong together, and which can be taken away."""

from __future__ import annotations

WINGS: dict[str, tuple[str, ...]] = {
    "runtime": (
        "actors", "bindings", "discovery", "files", "links", "node", "observe", "persistence", "portal",
        "protocol", "security", "supervision", "transport", "_core",
    ),
    "consent": ("approvals", "memories"),
    "services": ("directory", "facades", "live", "mcp"),
    "minds": ("llm", "thinking"),
    "deployment": ("deployment", "system"),
    "lab": ("reports", "scenario", "simulation", "testing"),
    "recording": ("recording",),
    "kit": ("conformance",),
    "command": ("cli",),
}  # fmt: skip
"""The packages of each wing. A wing uses those before it."""


def wing_of(module: str) -> str:
    """Return the wing of a module by its full name; the files beside the packages belong to the runtime."""
    _, _, inside = module.partition(".")
    room = inside.partition(".")[0]
    return next((wing for wing, rooms in WINGS.items() if room in rooms), "runtime")


def away(missing: ModuleNotFoundError, name: str) -> ImportError | None:
    """Return the error that says which wing `name` needs; None if what is missing is no wing."""
    parts = (missing.name or "").split(".")
    if parts[0] != "lmos_actors" or wing_of(missing.name or "") == "runtime":
        return None
    room = ".".join(parts[:2])
    wing = wing_of(room)
    return ImportError(f"{name} is part of the wing {wing} ({room}), which is not installed", name=room)
