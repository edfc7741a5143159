"""Structured answers: the schema that a model gets for a type, and the parsing of the model's text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from lmos_actors.protocol.td import schema_of, type_name, without_notes

_MARK: Final = "```"
"""The code mark that many models write before and after JSON, whatever they are asked."""

_MEMBER: Final = "answer"
"""The member that holds an answer that is no object: providers take only schemas of objects."""


class NotAnAnswer(ValueError):
    """Raised if the text of a model is not an answer of the wanted type.

    `to_model` asks the model for another answer; the message of the exception explains the mistake to the
    caller.
    """

    def __init__(self, why: str, to_model: str) -> None:
        super().__init__(why)
        self.to_model = to_model


class AnswerForm:
    """The form of the answers of a type; for `str` every text that is not blank is an answer."""

    def __init__(self, wanted: Any) -> None:
        self.is_text = wanted is str
        self.schema: dict[str, Any] | None = None
        if self.is_text:
            return
        schema = without_notes(schema_of(wanted))  # which also refuses what msgspec cannot decode
        self._wrapped = schema.get("type") != "object"
        self._decoder: Any = msgspec.json.Decoder(wanted)
        self._name = type_name(wanted)
        self.schema = schema
        if self._wrapped:
            self.schema = {"type": "object", "properties": {_MEMBER: schema}, "required": [_MEMBER]}

    def read(self, text: str) -> Any:
        """Parse a text into a value of the type. Raises NotAnAnswer."""
        if self.is_text:
            if not text.strip():
                raise NotAnAnswer(
                    "the model gave an empty answer, twice", "Your answer is empty. Answer the user."
                )
            return text
        try:
            data = _unmarked(text).encode()
            if self._wrapped:
                data = msgspec.json.decode(data, type=dict[str, msgspec.Raw])[_MEMBER]
            return self._decoder.decode(data)
        except KeyError:
            why = f"it has no member {_MEMBER!r}"
        except (msgspec.DecodeError, RecursionError) as error:
            why = str(error)
        raise NotAnAnswer(
            f"the model gave no {self._name} that meets the schema, twice: {why}",
            f"Your answer is no {self._name} in JSON that meets the schema: {why}. "
            "Answer again, with the JSON alone.",
        )


def _unmarked(text: str) -> str:
    """Return the text between code fences, or the whole text if there are none.

    This takes a single pass, because models may write very long lines.
    """
    first, _, rest = text.strip().partition("\n")
    language = first.removeprefix(_MARK).strip()
    is_marked = first.startswith(_MARK) and rest.endswith(_MARK) and (not language or language.isalpha())
    return rest.removesuffix(_MARK) if is_marked else text


@lru_cache(maxsize=256)
def form_of(wanted: Any) -> AnswerForm:
    """Return the form of the answers of a type. Raises TypeError if the type has no schema."""
    return AnswerForm(wanted)
