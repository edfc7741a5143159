"""Descriptions under fire: what others write, damaged as text and as data, and what must hold of it.

`random` decides everything, so Hypothesis, a fuzzer that follows coverage and a loop over seeds can all use
it. What a step finds wrong is an AssertionError; any other exception is a bug, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lmos_actors.protocol import td
from tests.protocol.td.samples import READABLE, data_of, good
from tests.wire.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

WORDS = (
    "@context", "@type", "id", "title", "titles", "descriptions", "version", "created", "base", "profile",
    "support", "links", "security", "securityDefinitions", "schemaDefinitions", "uriVariables", "forms",
    "properties", "actions", "events", "href", "op", "contentType", "subprotocol", "scopes", "response",
    "additionalResponses", "scheme", "in", "name", "oneOf", "allOf", "anyOf", "type", "enum", "const",
    "default", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "pattern", "format", "unit", "items", "minItems", "maxItems", "uniqueItems", "required",
    "additionalProperties", "propertyNames", "readOnly", "writeOnly", "observable", "safe", "idempotent",
    "synchronous", "input", "output", "data", "dataResponse", "subscription", "cancellation", "rel", "sizes",
    "lmos:metadata", "lmos:vendor", "lmos:name", "lmosx:offers", "lmosx:streams", "lmosx:progress", "schema",
    "", "x", "a/b~c", "é😀", "0", "propertys",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e300, 2**53, 2**64, -(2**70), 10**30, "", "x", "é😀", "null",
    "string", "number", "integer", "object", "array", "boolean", "nosec", "combo", "nosec_sc", "a/b",
    "readproperty", "writeproperty", "observeproperty", "invokeaction", "subscribeevent", "lmosprotocol",
    "https://a.example/{x}{?y,z}", "ws://[", "//h", "../..", "?", "{", "{}", "{+x:3}{#y*}{&}", "http://a b",
    "urn:", ":", "application/json", "2026-01-01T00:00:00Z", "lmos:Agent", "lmos:Tool", "tm:ThingModel",
    "https://www.w3.org/2022/wot/td/v1.1", "https://eclipse.dev/lmos/protocol/v1", "icon", [], {}, [[]],
    [{}], [None], ["a", "a"], {"": {}}, {"type": "string"}, {"type": "array", "items": [{}, {"const": 1}]},
    {"oneOf": [{"type": "null"}, {"enum": [1, "a", True]}]}, {"href": "x"},
)  # fmt: skip
UNKNOWN = (object(), {1}, {1: 2}, b"x", float("nan"), float("inf"), "\ud800", 10**1000, {"\udfff": 1})
SAMPLES = (good(), *(data_of(name) for name in READABLE))


class DescriptionUnderFire:
    """One damaged description after another."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def step(self) -> None:
        """Damage a description, and do with it whatever can be done."""
        for_others = self.random.random()
        if for_others < 0.3:
            text = mutated(self.random, json.dumps(self.choice(SAMPLES)))
            self.whatever(text)
        elif for_others < 0.9:
            data = self.damaged()
            self.whatever(data)
            self.whatever(json.dumps(data))
        else:
            self.whatever(self.not_json())

    def choice(self, several: Any) -> Any:
        return several[self.random.randrange(len(several))]

    # --- damage

    def damaged(self) -> dict[str, Any]:
        """A sample with one to eight changes anywhere in it."""
        data = _copied(self.choice(SAMPLES))
        for _ in range(self.random.randint(1, 8)):
            around = self.choice(list(_inside(data)))
            self.choice(CHANGES)(self, around)
        return data

    def not_json(self) -> dict[str, Any]:
        """A sample that holds what is no plain data."""
        data = self.damaged()
        self.put(self.choice(list(_inside(data))), self.choice(UNKNOWN))
        return data

    def put(self, around: Any, value: Any) -> None:
        if isinstance(around, dict):
            known = list(around) if self.random.random() < 0.6 else []
            around[self.choice(known or WORDS)] = value
        else:
            around.insert(self.random.randrange(len(around) + 1), value)

    def wrong(self, around: Any) -> None:
        """Another value, where there is one or in a new place."""
        self.put(around, _copied(self.choice(VALUES)))

    def moved(self, around: Any) -> None:
        """A part that is fine where it was, at a place where it may not be."""
        self.put(around, _copied(self.choice(list(_inside(self.choice(SAMPLES))))))

    def without(self, around: Any) -> None:
        if around:
            del around[self.choice(list(around) if isinstance(around, dict) else range(len(around)))]

    def renamed(self, around: Any) -> None:
        if around and isinstance(around, dict):
            around[self.choice(WORDS)] = around.pop(self.choice(list(around)))

    def twice(self, around: Any) -> None:
        if around and isinstance(around, list):
            around.append(_copied(self.choice(around)))

    # --- what must hold

    def whatever(self, raw: Any) -> None:
        """Check it, load it, and use what was loaded; a DescriptionError is the one exception there is."""
        lenient, strict = td.check(raw), td.check(raw, strict=True)
        errors = [each for each in lenient if each.severity == "error"]
        for each in (*lenient, *strict):
            assert each.message, each
            assert each.fix, each
            str(each).encode()
        assert {(f.place, f.message) for f in lenient} == {(f.place, f.message) for f in strict}
        assert lenient[: len(errors)] == tuple(errors)
        loaded = _loaded(raw)
        if isinstance(loaded, td.DescriptionError):
            assert errors, loaded
            assert str(loaded)
            return
        self.there_and_back(loaded, raw)
        assert td.check(loaded) == lenient
        self.used(loaded)

    def there_and_back(self, loaded: td.Description, raw: Any) -> None:
        """Nothing is lost, nothing is added, nothing of the caller's is changed."""
        plain = td.dump(loaded)
        if isinstance(raw, dict):
            assert _same(plain, raw)
        text = td.dump_text(loaded)
        assert td.dump_text(td.load(text)) == text
        assert _same(td.dump(td.load(text)), json.loads(text))
        assert td.load(plain) == loaded

    def used(self, loaded: td.Description) -> None:
        assert td.differences(loaded, loaded) == ()
        other = td.load(self.choice(SAMPLES))
        for each in (*td.differences(loaded, other), *td.differences(other, loaded)):
            str(each).encode()
            json.dumps([each.offered, each.expected, each.path])
        for affordance in (None, *_affordances(loaded)):
            self.carried_out(td.effective_forms(loaded, affordance))
        served = td.with_forms(loaded, "é/ a", ["ws://h:1", "https://[::1]/x/"])
        assert td.dump(td.load(td.dump_text(served))) == td.dump(served)
        assert td.differences(served, loaded) == ()

    def carried_out(self, forms: tuple[td.Form, ...]) -> None:
        for op in (*td.PROPERTY_OPS, *td.ACTION_OPS, *td.EVENT_OPS, *td.THING_OPS, ""):
            chosen = td.choose(forms, op)
            assert chosen is None or op in chosen.ops
        for form in forms:
            td.method_of(form, "readproperty")
            names = td.variables_of(form.href)
            filled = td.expand(form.href, {name: self.choice(("é/ ?", "", 1.5, True)) for name in names})
            assert td.expand(filled, {}) == filled


CHANGES: tuple[Callable[[DescriptionUnderFire, Any], None], ...] = (
    DescriptionUnderFire.wrong,
    DescriptionUnderFire.wrong,
    DescriptionUnderFire.moved,
    DescriptionUnderFire.without,
    DescriptionUnderFire.renamed,
    DescriptionUnderFire.twice,
)


def _loaded(raw: Any) -> td.Description | td.DescriptionError:
    try:
        return td.load(raw)
    except td.DescriptionError as exc:
        return exc


def _affordances(loaded: td.Description) -> Iterator[Any]:
    for kind in (loaded.properties, loaded.actions, loaded.events):
        yield from (kind or {}).values()


def _inside(value: Any) -> Iterator[Any]:
    """Every object and array, the whole first."""
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _inside(each)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _same(one: Any, other: Any) -> bool:
    """Whether two are the same as JSON: true is not 1, and 1 is not 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
