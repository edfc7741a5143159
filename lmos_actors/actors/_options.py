"""What is said in the head of an agent class, and its behaviours: the names for `when=` and `become()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors._errors import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._operation import Operation


@attrs.frozen(kw_only=True)
class ClassOptions:
    """What is said about an agent class in its head; None where nothing is said."""

    serial: bool | None = None
    mailbox: Any = None
    behaviours: tuple[str, ...] | None = None
    trap_exits: bool | None = None
    history: int | None = None

    def over(self, base: ClassOptions | None) -> ClassOptions:
        """Give the options of a subclass: what it does not say is as its base says."""
        if base is None:
            return self
        said = attrs.asdict(self, recurse=False, filter=lambda _, value: value is not None)
        return attrs.evolve(base, **said)


def behaviours_of(
    title: str, table: Mapping[str, Operation], declared: Iterable[str] | None
) -> tuple[str, ...]:
    """Give the behaviours a class declares, or else those that its actions name; none: ().

    Raises TypeError for a declaration that is none, and for an action whose behaviour is not declared.
    """
    named = {name: op for op in table.values() for name in op.when or ()}
    if declared is None:
        return ("", *named) if named else ()
    known = _checked(title, declared)
    for name, op in named.items():
        if name not in known:
            raise TypeError(f"{op.label}: {_unknown(name, title, known)}")
    return known


def _checked(title: str, declared: Any) -> tuple[str, ...]:
    names = () if isinstance(declared, str) else tuple(declared)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"{title}: behaviours must be a tuple of names, not {declared!r}")
    if len(dict.fromkeys(names)) < len(names):
        raise TypeError(f"{title}: a behaviour is named twice in {declared!r}")
    return names


def check_behaviour(name: str, title: str, known: tuple[str, ...]) -> None:
    """Raise ValueError unless the class has that behaviour."""
    if name not in known or not name:
        raise ValueError(_unknown(name, title, known))


def _unknown(name: str, title: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    hint = f", did you mean {near!r}?" if near else f"; name it in class {title}(Agent, behaviours=(...))"
    return f"{title} has no behaviour {name!r}{hint}"
