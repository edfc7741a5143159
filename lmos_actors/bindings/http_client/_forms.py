"""Forms and operations: LMOS over a WebSocket where a form offers it, else HTTP."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from lmos_actors.errors import ConfigError, InvalidInput, NotAllowed
from lmos_actors.protocol.td import (
    SUBPROTOCOL,
    DescriptionError,
    PropertyAffordance,
    choose,
    effective_forms,
    expand,
    method_of,
    resolve,
    variables_of,
)
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.protocol.td import AnyAffordance, Description, Form

ASKED: Final = ("https", "http")
LISTENED: Final = ("https+sse", "http+sse", "https+longpoll", "http+longpoll", "https", "http")
STREAMED: Final = ("https+sse", "http+sse", "https", "http")

OPS: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("readproperty",),
    "write": ("writeproperty",),
    "observe": ("observeproperty",),
    "invoke": ("invokeaction",),
    "subscribe": ("subscribeevent",),
    "read all": ("readallproperties",),
    "write many": ("writemultipleproperties", "writeallproperties"),
    "subscribe to all": ("subscribeallevents",),
}
"""The operations of a description that carry out a verb, best first."""

_OF_THING: Final = ("read all", "write many", "subscribe to all")
_KINDS: Final = {"invoke": "actions", "subscribe": "events"}
_METHODS: Final = {"cancelaction": "DELETE"}


class HttpOperation(NamedTuple):
    """A form of a description, with the one of its operations that carries out a verb."""

    form: Form
    op: str
    declared: Mapping[str, Mapping[str, Any]]
    """The variables of the form's URL that the description declares, by name."""

    @property
    def method(self) -> str:
        """The HTTP method of the request."""
        return method_of(self.form, self.op) if self.is_named else _METHODS.get(self.op, self._usual)

    @property
    def is_named(self) -> bool:
        """Whether the form itself names its method."""
        return isinstance(self.form.extra.get("htv:methodName"), str)

    @property
    def _usual(self) -> str:
        return method_of(self.form, self.op)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables in the form's URL, declared or not."""
        return tuple(dict.fromkeys((*self.declared, *variables_of(self.form.href))))

    def url(self, values: Mapping[str, Any]) -> str:
        """Return the URL, with its variables filled in.

        Raises InvalidInput if a required variable has no value, and for a value without a variable.
        """
        for name in values:
            if name not in self.variables:
                known = f"; there is {', '.join(self.variables)}" if self.variables else ""
                raise InvalidInput(f"the URL has no variable {name!r}{known}", f"$.{name}")
        href = self.form.href.partition("#")[0]
        if "{" not in href:
            return href
        try:
            given = {name: in_url(name, value) for name, value in self._filled(values).items()}
            return expand(self.form.href, given).partition("#")[0]
        except DescriptionError as error:
            raise InvalidInput(f"the URL cannot be filled in: {error.message}") from None

    def _filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in variables_of(self.form.href):
            if values.get(name) is not None:
                found[name] = values[name]
            elif "default" in self.declared.get(name, {}):
                found[name] = self.declared[name]["default"]
            elif not _is_optional(self.form.href, name):
                raise InvalidInput(f"the URL needs a value for {name!r}", f"$.{name}")
        return found


def in_url(name: str, value: Any) -> str | float | bool:
    """Return the value of a variable in the form used in URLs. Raises InvalidInput for an object."""
    if isinstance(value, list | tuple) and all(isinstance(each, str | int | float) for each in value):  # pyright: ignore[reportUnknownVariableType]
        return ",".join(str(each) for each in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(value, str | int | float):
        raise InvalidInput(f"{name!r} goes into the URL, as a text, a number or a boolean", f"$.{name}")
    return value


def _is_optional(href: str, name: str) -> bool:
    """Return whether a URL may omit a variable, because it is in the query or the fragment."""
    for part in href.split("{")[1:]:
        sign, names = part[:1], part.partition("}")[0].lstrip("+#./;?&").split(",")
        if name in [each.partition(":")[0].rstrip("*") for each in names]:
            return sign in ("?", "&", "#", ";") or "?" in href.partition("{" + part)[0]
    return True


def has_address(href: str) -> bool:
    """Return whether an absolute URL, or a template of one, can be connected to."""
    try:
        endpoint_of(href.partition("{")[0])
    except ConfigError:
        return False
    return True


class HttpOperations:
    """The operations of a thing over HTTP.

    The argument `url` is the URL from which the description was fetched, None if it was not fetched.
    """

    def __init__(self, description: Description, url: str | None) -> None:
        base = description.base
        self.description = attrs.evolve(description, base=resolve(url, base) if base and url else base or url)
        self._found: dict[tuple[str, str], HttpOperation | None] = {}

    # ---- one by one

    def way(self, verb: str, name: str) -> HttpOperation | None:
        """Return the operation for a verb over HTTP; None if no form offers it."""
        key = (verb, name)
        if key not in self._found:
            self._found[key] = self._look(verb, name)
        return self._found[key]

    def _look(self, verb: str, name: str) -> HttpOperation | None:
        if verb in ("observe", "subscribe", "subscribe to all"):
            preference: Sequence[str] = LISTENED
        elif verb == "invoke" and self.description.streams_of(name) is not None:
            preference = STREAMED
        else:
            preference = ASKED
        return self._chosen(verb, name, preference)

    def _chosen(self, verb: str, name: str, preference: Sequence[str]) -> HttpOperation | None:
        owner = self._owner(verb, name)
        if owner is None and verb not in _OF_THING:
            return None
        if isinstance(owner, PropertyAffordance):  # it may forbid what one of its forms offers
            is_forbidden = owner.read_only if verb == "write" else owner.write_only
            if is_forbidden:
                return None
        forms = [form for form in effective_forms(self.description, owner) if has_address(form.href)]
        variables = {**(self.description.uri_variables or {}), **((owner and owner.uri_variables) or {})}
        for op in OPS[verb]:
            form = choose(forms, op, preference)
            if form is not None:
                return HttpOperation(form, op, variables)
        return None

    def _owner(self, verb: str, name: str) -> AnyAffordance | None:
        described = self.description
        if verb in ("read", "write", "observe"):
            return (described.properties or {}).get(name)
        if verb == "invoke":
            return (described.actions or {}).get(name)
        return (described.events or {}).get(name) if verb == "subscribe" else None

    def can_query(self, name: str) -> bool:
        """Return whether a form can query or cancel the runs of an action."""
        owner = (self.description.actions or {}).get(name)
        forms = () if owner is None else effective_forms(self.description, owner)
        return any(choose(forms, op, ASKED) is not None for op in ("queryaction", "cancelaction"))

    def needed(self, verb: str, name: str, path: str) -> HttpOperation:
        """Return the same operation as `way`. Raises NotAllowed if there is none."""
        found = self.way(verb, name)
        if found is None:
            what = verb if name == "*" else f"{verb} {name!r}"
            why = self.description.why_unusable(_KINDS.get(verb, "properties"), name)
            raise NotAllowed(f"{path!r} has no form to {what} over HTTP" + (f": {why}" if why else ""))
        return found

    # ---- all of them

    def _verbs(self) -> Iterator[tuple[str, str]]:
        described = self.description
        for name in described.properties or {}:
            yield from ((verb, name) for verb in ("read", "write", "observe"))
        yield from (("invoke", name) for name in described.actions or {})
        yield from (("subscribe", name) for name in described.events or {})
        yield from ((verb, "*") for verb in _OF_THING)

    def only_web(self) -> frozenset[tuple[str, str]]:
        """Return the operations that only HTTP carries out, as verbs with names."""
        return frozenset(
            (verb, name)
            for verb, name in self._verbs()
            if self._chosen(verb, name, self.sockets) is None and self.way(verb, name) is not None
        )

    @cached_property
    def sockets(self) -> tuple[str, ...]:
        """The names under which forms offer LMOS over a WebSocket, best first; see `choose`.

        A WebSocket without a subprotocol counts as LMOS for agents, and for things that offer nothing else.
        """
        described = self.description
        is_other = not (described.is_agent or described.is_tool) and self.place() is not None
        return (SUBPROTOCOL,) if is_other else (SUBPROTOCOL, "wss", "ws")

    def place(self) -> str | None:
        """Return the URL of the first form for HTTP; None if there is none."""
        found = (way for verb, name in self._verbs() if (way := self.way(verb, name)) is not None)
        return next((way.form.href.partition("{")[0] for way in found), None)

    def origins(self) -> dict[tuple[bool, str], str]:
        """Return the servers to which the HTTP forms point, each with the first URL found for it."""
        found: dict[tuple[bool, str], str] = {}
        for verb, name in self._verbs():
            way = self.way(verb, name)
            if way is not None:
                url = way.form.href.partition("{")[0]
                endpoint = endpoint_of(url)
                found.setdefault((endpoint.secure, endpoint.authority), url)
        return found
