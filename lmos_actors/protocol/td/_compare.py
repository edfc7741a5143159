"""Comparison of a description with the class that a consumer was written for.

What this module guarantees:

- **A difference breaks exactly if a consumer of the class can fail.** Additions are harmless unless they
  must be sent. A part breaks if it is missing, accepts fewer inputs, or returns more kinds of values than the
  class declares. Which of these applies depends on the direction of the value (`_compatibility.Flow`): an
  input that becomes optional is harmless, an output that becomes optional is not.
- **`safe` and `idempotent` are promises**: retries rely on them, so losing one breaks, and gaining one does
  not.
- **Only the contract counts.** Forms, base and security describe where a thing is served, and are not
  compared.
- **Extensions count in either place.** `lmosx:progress` and `lmosx:streams` may be members of the thing
  or of the action (kotlin-wot refuses unknown members of actions), so both places are read.

The order of the differences follows the class, so that the output for one class is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ._compatibility import RECEIVED, SENT, Difference, Flow, schema_differences, texts_differ
from ._findings import shown
from ._model import (
    ActionAffordance,
    Description,
    EventAffordance,
    PropertyAffordance,
    Stream,
    Streams,
)
from ._reading import Place, is_object, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._forms import AnyAffordance
    from ._schema import Schema

Affordances: TypeAlias = "Mapping[str, AnyAffordance]"

_KINDS: Final = {"properties": "a property", "actions": "an action", "events": "an event"}


def differences(offered: Description, expected: Description) -> tuple[Difference, ...]:
    """Return the differences between a description (`offered`) and a class's own (`expected`).

    They follow the order of the class's affordances: affordances that are missing or of another kind, data
    schemas and flags. Then follow affordances that the class does not have, titles, descriptions and
    metadata. `breaks` of a difference is whether a consumer of the class can fail.
    """
    found: list[Difference] = []
    for kind in _KINDS:
        for name in affordances_of(expected, kind):
            found += _affordance(offered, expected, kind, name)
    for kind, noun in _KINDS.items():
        for name in affordances_of(offered, kind):
            other = _kind_of(expected, name)
            if other is None or (other != kind and name in affordances_of(offered, other)):
                message = f"{name!r} is {noun} that is not in the class"
                found.append(Difference((kind, name), message, offered=noun))
    return (*found, *_thing(offered, expected))


def affordances_of(description: Description, kind: str) -> Affordances:
    """Return the affordances of a kind: `properties`, `actions` or `events`."""
    groups: dict[str, Affordances | None] = {
        "properties": description.properties,
        "actions": description.actions,
        "events": description.events,
    }
    return groups[kind] or {}


def _kind_of(description: Description, name: str) -> str | None:
    return next((kind for kind in _KINDS if name in affordances_of(description, kind)), None)


def _affordance(offered: Description, expected: Description, kind: str, name: str) -> Iterator[Difference]:
    ours = affordances_of(expected, kind)[name]
    theirs, noun = affordances_of(offered, kind).get(name), _KINDS[kind]
    if theirs is None:
        other = _kind_of(offered, name)
        state = "missing" if other is None else _KINDS[other]
        message = f"{name!r} is {state}, in the class it is {noun}"
        yield Difference((other or kind, name), message, other and _KINDS[other], noun, "breaks")
        return
    place = (kind, name)
    if isinstance(theirs, PropertyAffordance) and isinstance(ours, PropertyAffordance):
        yield from _property(theirs, ours, place)
    elif isinstance(theirs, ActionAffordance) and isinstance(ours, ActionAffordance):
        yield from _action(theirs, ours, place)
        yield from _extensions(offered, expected, name)
    elif isinstance(theirs, EventAffordance) and isinstance(ours, EventAffordance):
        yield from _event(theirs, ours, place)
    yield from texts_differ(_texts(theirs), _texts(ours), place)


def _texts(affordance: AnyAffordance) -> Schema:
    words = {"title": affordance.title, "titles": affordance.titles, "description": affordance.description}
    more = {"descriptions": affordance.descriptions, "@type": write(affordance.type)}
    return {word: value for word, value in {**words, **more}.items() if value is not None}


# --- one affordance


def _property(theirs: PropertyAffordance, ours: PropertyAffordance, place: Place) -> Iterator[Difference]:
    flow = Flow(sent=not ours.read_only, received=not ours.write_only)
    flags = (
        ("readOnly", theirs.read_only, ours.read_only, bool(theirs.read_only) and flow.sent),
        ("writeOnly", theirs.write_only, ours.write_only, bool(theirs.write_only) and flow.received),
        ("observable", theirs.observable, ours.observable, bool(ours.observable)),
    )
    for word, here, there, breaks in flags:
        yield from _flag(word, bool(here), bool(there), breaks, place)
    yield from schema_differences(theirs.schema, ours.schema, place, flow)


def _flag(word: str, here: bool, there: bool, breaks: bool, place: Place) -> Iterator[Difference]:
    if here != there:
        state = f"is {'' if here else 'not '}{word}, in the class it is{'' if there else ' not'}"
        yield Difference((*place, word), state, here, there, "breaks" if breaks else "differs")


def _action(theirs: ActionAffordance, ours: ActionAffordance, place: Place) -> Iterator[Difference]:
    """Compare two actions. `synchronous` is compared only if both sides have it."""
    yield from _flag("safe", bool(theirs.safe), bool(ours.safe), bool(ours.safe), place)
    yield from _flag(
        "idempotent", bool(theirs.idempotent), bool(ours.idempotent), bool(ours.idempotent), place
    )
    if None not in (theirs.synchronous, ours.synchronous):
        yield from _flag("synchronous", bool(theirs.synchronous), bool(ours.synchronous), False, place)
    yield from _optional(theirs.input, ours.input, (*place, "input"), SENT)
    yield from _optional(theirs.output, ours.output, (*place, "output"), RECEIVED)


def _extensions(offered: Description, expected: Description, name: str) -> Iterator[Difference]:
    """Compare the progress and streams of an action, which are members of the thing or of the action."""
    theirs, ours = offered.progress_of(name), expected.progress_of(name)
    place = _place_of(offered, "lmosx:progress", name)
    if theirs is not None and ours is not None:
        yield from schema_differences(theirs, ours, place, RECEIVED)
    elif theirs != ours:
        yield Difference(place, _one_sided(ours, "progress"), theirs, ours)
    offered_streams, expected_streams = (
        offered.streams_of(name) or Streams(),
        expected.streams_of(name) or Streams(),
    )
    yield from _streams(offered_streams, expected_streams, _place_of(offered, "lmosx:streams", name))


def _place_of(offered: Description, member: str, action: str) -> Place:
    """Return the place of an action's extension member: at the action only if the thing does not have it."""
    own = (offered.actions or {})[action]
    at_thing, at_action = (
        (offered.progress, own.progress) if member == "lmosx:progress" else (offered.streams, own.streams)
    )
    if at_action is not None and action not in (at_thing or {}):
        return ("actions", action, member)
    return (member, action)


def _event(theirs: EventAffordance, ours: EventAffordance, place: Place) -> Iterator[Difference]:
    yield from _optional(theirs.subscription, ours.subscription, (*place, "subscription"), SENT)
    yield from _optional(theirs.data, ours.data, (*place, "data"), RECEIVED)
    yield from _optional(theirs.data_response, ours.data_response, (*place, "dataResponse"), SENT)
    yield from _optional(theirs.cancellation, ours.cancellation, (*place, "cancellation"), SENT)


def _one_sided(ours: object, what: str) -> str:
    return f"lacks {what}, the class has it" if ours is not None else f"has {what}, the class has none"


def _optional(theirs: Schema | None, ours: Schema | None, place: Place, flow: Flow) -> Iterator[Difference]:
    """Compare two schemas; an absent one means that there is no such value."""
    if theirs is not None and ours is not None:
        yield from schema_differences(theirs, ours, place, flow)
    elif theirs is not None:
        breaks = flow.sent and _is_mandatory(theirs)
        yield Difference(
            place, _one_sided(ours, str(place[-1])), theirs, None, "breaks" if breaks else "differs"
        )
    elif ours is not None:
        breaks = flow.received or _is_mandatory(ours)
        yield Difference(
            place, _one_sided(ours, str(place[-1])), None, ours, "breaks" if breaks else "differs"
        )


def _is_mandatory(schema: Schema) -> bool:
    """Return whether a value must be sent: only an object without required members may be left out."""
    return schema.get("type") != "object" or bool(schema.get("required"))


def _streams(theirs: Streams, ours: Streams, place: Place) -> Iterator[Difference]:
    offered_streams, expected_streams = theirs.input or {}, ours.input or {}
    for name in dict.fromkeys((*expected_streams, *offered_streams)):
        yield from _stream(
            offered_streams.get(name), expected_streams.get(name), (*place, "input", name), SENT
        )
    yield from _stream(theirs.output, ours.output, (*place, "output"), RECEIVED)


def _stream(theirs: Stream | None, ours: Stream | None, place: Place, flow: Flow) -> Iterator[Difference]:
    """Compare two streams. A one-sided stream is a breaking difference: it lacks a reader or a source."""
    if theirs is None or ours is None:
        if theirs is not ours:
            yield Difference(place, _one_sided(ours, "such a stream"), write(theirs), write(ours), "breaks")
        return
    if theirs.content_type != ours.content_type:
        message = f"carries {theirs.content_type}, in the class {ours.content_type}"
        where = (*place, "contentType")
        yield Difference(where, message, theirs.content_type, ours.content_type, "breaks")
    yield from schema_differences(theirs.schema or {}, ours.schema or {}, (*place, "schema"), flow)


# --- the whole thing


def _thing(offered: Description, expected: Description) -> Iterator[Difference]:
    """Compare the members of the thing itself. No difference in them breaks a consumer."""
    if (offered.is_agent, offered.is_tool) != (expected.is_agent, expected.is_tool):
        theirs, ours = write(offered.type), write(expected.type)
        yield Difference(("@type",), f"is {theirs or 'neither'}, the class {ours or 'neither'}", theirs, ours)
    for feature in expected.offers or ():
        if not offered.has_offer(feature):
            yield Difference(("lmosx:offers",), f"does not offer {feature!r}, the class does", None, feature)
    if expected.answers is not None and offered.answers is None:
        yield Difference(
            ("lmosx:answers",), "keeps no answers, the class does", None, write(expected.answers)
        )
    for word in expected.capabilities or ():
        if word not in (offered.capabilities or ()):
            yield Difference(("lmosx:capabilities",), f"does not have {word!r}, the class does", None, word)
    words = ("title", "titles", "description", "descriptions")
    theirs, ours = ({word: getattr(each, word) for word in words} for each in (offered, expected))
    yield from texts_differ(theirs, ours, ())
    here, there = write(offered.metadata), write(expected.metadata)
    yield from _metadata(here or {}, there or {}, ("lmos:metadata",))


def _metadata(theirs: Any, ours: Any, place: Place) -> Iterator[Difference]:
    """Compare metadata, an open vocabulary, member by member."""
    if is_object(theirs) and is_object(ours):
        for name in dict.fromkeys((*ours, *theirs)):
            yield from _metadata(theirs.get(name), ours.get(name), (*place, name))
    elif theirs != ours:
        here, there = ("absent" if each is None else shown(each) for each in (theirs, ours))
        yield Difference(place, f"is {here}, in the class {there}", theirs, ours, "wording")
