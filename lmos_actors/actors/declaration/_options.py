"""Options in the class statement of an agent, and its behaviours: the names for `when=` and `become()`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import hint_at
from lmos_actors.protocol.td import (
    Description,
    DescriptionError,
    Link,
    Metadata,
    ModelInfo,
    Vendor,
    dump,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..messages._operation import Operation


_TEXT: Final = str | None
_WORD: Final = re.compile(r"[!-~\u00a1-\U0010ffff]{1,200}")


def _words(words: Any) -> tuple[str, ...]:
    return () if words is None else (words,) if isinstance(words, str) else tuple(words)


def _links(links: Iterable[Link]) -> tuple[Link, ...]:
    return tuple(links)


def _written(link: Link) -> Link:
    """Return a link with its languages as an array, as TD 1.1 allows and kotlin-wot requires."""
    own = link.hreflang if link.hreflang is not None else link.extra.get("hreflang")
    if not isinstance(own, str):
        return link
    rest = {name: value for name, value in link.extra.items() if name != "hreflang"}
    return attrs.evolve(link, hreflang=(own,), extra=rest)


@attrs.frozen(kw_only=True)
class About:
    """Members of an agent's description beside its contract: `class X(Agent, about=About(...))`.

    `vendor` and `model` become members of `lmos:metadata` (LMOS Agent Description Format). `more` holds
    further members of it, as plain data under their names there: `{"lmos:compliance": {...}}`. `version` (of
    the class), `support` (a URI) and `links` are members of a Thing Description (TD 1.1, 5.3.1.1).
    `capabilities` are words for what the agent can do, in the member `lmosx:capabilities`, and `types` join
    its `@type`. Others find the agent by both; no word contains blanks. A subclass inherits whatever it
    leaves out; `more` is inherited member by member.

    Raises:
        TypeError: a value is of a wrong type, or is no plain data.
    """

    vendor: Vendor | None = None
    model: ModelInfo | None = None
    version: str | None = None
    support: str | None = None
    links: tuple[Link, ...] = attrs.field(default=(), converter=_links)
    capabilities: tuple[str, ...] = attrs.field(default=(), converter=_words)
    types: tuple[str, ...] = attrs.field(default=(), converter=_words)
    more: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    def __attrs_post_init__(self) -> None:
        kinds = {"vendor": Vendor | None, "model": ModelInfo | None, "version": _TEXT, "support": _TEXT}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                words = str(kind).replace("lmos_actors.protocol.td._model.", "")
                raise TypeError(f"About: {name} must be {words}, not {getattr(self, name)!r}")
        for name in ("capabilities", "types"):
            for word in getattr(self, name):
                if not isinstance(word, str) or not _WORD.fullmatch(word):
                    raise TypeError(f"About: {name} are words without blanks, and {word!r} is none")
        try:
            load(self.members())
        except DescriptionError as exc:
            raise TypeError(f"About: {exc}") from None

    def members(self) -> dict[str, Any]:
        """Return the members for a description, as plain data."""
        metadata = Metadata(vendor=self.vendor, model=self.model, extra=dict(self.more))
        return dump(
            Description(
                context=None,
                version={"instance": self.version} if self.version is not None else None,
                support=self.support,
                metadata=metadata if metadata != Metadata() else None,
                links=tuple(map(_written, self.links)) or None,
                type=self.types or None,
                capabilities=self.capabilities or None,
            )
        )

    def over(self, base: About | None) -> About:
        """Return these values, completed by those of the base class where this class gives none."""
        if base is None:
            return self
        given = attrs.asdict(self, recurse=False, filter=lambda _, value: bool(value))
        return attrs.evolve(base, **{**given, "more": {**base.more, **self.more}})


@attrs.frozen(kw_only=True)
class ClassOptions:
    """The options in an agent's class statement; an option that is not given is None."""

    about: About | None = None
    tool: bool | None = None
    serial: bool | None = None
    mailbox: Any = None
    behaviours: tuple[str, ...] | None = None
    trap_exits: bool | None = None
    history: int | None = None
    durable: Any = None
    durability: Any = None
    formerly: Any = None
    snapshot_every: Any = None
    private: bool | None = None

    def over(self, base: ClassOptions | None) -> ClassOptions:
        """Return these options, completed by those of the base class where this class gives none."""
        if base is None:
            return self
        given = attrs.asdict(self, recurse=False, filter=lambda _, value: value is not None)
        if self.about is not None:
            given["about"] = self.about.over(base.about)
        return attrs.evolve(base, **given)


def check_said(title: str, about: Any, tool: Any, private: Any, body: Mapping[str, Any]) -> None:
    """Raise TypeError for wrong values in a class statement, and for an `About` in a class body."""
    if isinstance(body.get("about"), About):
        raise TypeError(f"{title}.about: it belongs in the head, class {title}(Agent, about=About(...))")
    if about is not None and not isinstance(about, About):
        raise TypeError(f"{title}: about must be an About, not {about!r}")
    if tool is not None and not isinstance(tool, bool):
        raise TypeError(f"{title}: tool must be True or False, not {tool!r}")
    if private is not None and not isinstance(private, bool):
        raise TypeError(f"{title}: private must be True or False, not {private!r}")


_DURABLE: Final = (None, True, False, "journal")
_DURABILITIES: Final = (None, "process", "power")


def check_durable(title: str, options: ClassOptions) -> None:
    """Raise TypeError for invalid options of a durable class."""
    if options.durable not in _DURABLE:
        raise TypeError(f"{title}: durable must be True, False or 'journal', not {options.durable!r}")
    if options.durability not in _DURABILITIES:
        hint = hint_at(str(options.durability), ("process", "power"))
        raise TypeError(
            f"{title}: durability must be 'process' (kept when the process is killed) or 'power' (kept when "
            f"the power fails), not {options.durability!r}{hint}"
        )
    if options.durability and not options.durable:
        raise TypeError(f"{title}: durability goes with durable=True")
    every = options.snapshot_every
    if every is not None and (type(every) is not int or every < 1 or options.durable != "journal"):
        raise TypeError(
            f"{title}: snapshot_every is a whole number of at least 1, and goes with durable='journal'"
        )
    names = options.formerly
    if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
        raise TypeError(f"{title}: formerly must be a tuple of names such as 'package.module:Class'")


def behaviours_of(
    title: str, table: Mapping[str, Operation], declared: Iterable[str] | None
) -> tuple[str, ...]:
    """Return the behaviours that a class declares, or else those that its actions name, or ().

    Raises TypeError for an invalid declaration, and for an action whose behaviour is not declared.
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
    """Raise ValueError unless the class has the behaviour."""
    if name not in known or not name:
        raise ValueError(_unknown(name, title, known))


def _unknown(name: str, title: str, known: tuple[str, ...]) -> str:
    hint = hint_at(name, known) or f"; name it in class {title}(Agent, behaviours=(...))"
    return f"{title} has no behaviour {name!r}{hint}"
