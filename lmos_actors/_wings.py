"""The wings of this package, each of which need not be installed, and the versions of all packages."""

from __future__ import annotations

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
    """Return the wing of a module, given by its full name; "runtime" for a module in no wing."""
    package, _, inside = module.partition(".")
    room = inside.partition(".")[0] if package == "lmos_actors" else ""
    return next((wing for wing, rooms in WINGS.items() if room in rooms), "runtime")


def is_away(error: ImportError) -> bool:
    """Return whether an import has failed because a wing is not installed."""
    return (error.name or "").count(".") == 1 and wing_of(error.name or "") != "runtime"


class WingFinder:
    """The last module finder that Python tries; its error names the wing of a missing package."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for a wing's package that no other finder has found; else return None."""
        if name.count(".") == 1 and (wing := wing_of(name)) != "runtime":
            raise ModuleNotFoundError(f"{name} is not installed: it is part of the wing {wing}", name=name)


def installed_versions(path: list[str]) -> dict[str, str]:
    """Return the versions of the packages installed in folders, by name; the first folder wins.

    `importlib.metadata` finds the same versions, but it reads the files, which takes longer than many runs
    do.
    """
    import os

    found: dict[str, str] = {}
    for folder in path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            name, dash, version = entry.removesuffix(".dist-info").partition("-")
            if dash and entry.endswith(".dist-info"):
                found.setdefault(name.replace("_", "-").replace(".", "-").lower(), version)
    return found
