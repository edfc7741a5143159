"""Judges of the answers to steps: by schema, by words, and for secrets in them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors._core import read_json
from lmos_actors.files import is_list, mapped
from lmos_actors.system.values import schema_misfits, show

from ._expect import judge_match
from ._judge import Judge
from ._model_judges import TalkJudge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.reports import CheckResult

    from ..model import Answer, NoSecrets
    from ._judge import View
    from ._model_talk import ModelTalk

SECRET: Final = "an answer that is secret"

DONE: Final = "done"
"""The tag of the last item of a chat's answer, which has the whole text."""


def text_of_answer(value: Any) -> str:
    """Return an answer as text: the text of a chat, the joined texts of a stream, or JSON otherwise."""
    text = _text_in(value)
    return json.dumps(value, ensure_ascii=False) if text is None else text


def _text_in(value: Any) -> str | None:
    """Return the text of an answer; None if it is not text."""
    if isinstance(value, str):
        return value
    if not is_list(value):
        return None
    done = [mapped(item).get("text") for item in value if mapped(item).get("type") == DONE]
    if done and isinstance(done[-1], str):
        return done[-1]
    texts = [item if isinstance(item, str) else mapped(item).get("text") for item in value]
    pieces = [text for text in texts if isinstance(text, str)]
    return "".join(pieces) if pieces else None


class AnswerJudge(Judge):
    """The judge of `answer`: the answer of each run of a step."""

    check: Answer

    def __init__(self, check: Answer, name: str, place: str, view: View) -> None:
        super().__init__(check, name, place)
        self.view = view

    def result(self) -> CheckResult:
        expected = "; ".join(self._expected())
        answers = [each for each in self.view.answers(self.check.of) if each.error is None]
        if not answers:
            return self.verdict(False, expected, f"{self.check.of} has had no answer")
        for number, answer in enumerate(answers, 1):
            problem = next(self._problems(answer.value), None)
            if problem is not None:
                which = f"answer {number} of {len(answers)}: " if len(answers) > 1 else ""
                return self.verdict(False, expected, SECRET if answer.hidden else f"{which}{problem}")
        return self.verdict(True, expected, f"so for {len(answers)} of {self.check.of}")

    def _expected(self) -> Iterator[str]:
        check = self.check
        if check.schema is not UNSET:
            yield "an answer that meets the schema"
        for key, words in (("words", check.words), ("any_of", check.any_of), ("without", check.without)):
            if words is not UNSET:
                yield f"{key.replace('_', ' ')}: {', '.join(words)}"
        for path in check.match:
            yield f"what is at {path}"

    def _problems(self, value: Any) -> Iterator[str]:
        check, text = self.check, text_of_answer(value)
        read, written = value, _text_in(value)
        if written is not None and (check.schema is not UNSET or check.match):
            try:
                read = read_json(written)
            except (ValueError, RecursionError):
                yield f"it is no JSON: {show(written)}"
                return
        if check.schema is not UNSET:
            yield from schema_misfits(read, check.schema)
        for verdict in judge_match(check.match, read):
            if not verdict.ok:
                yield f"{verdict.expected} is not so: {verdict.saw}"
        for word in check.words or ():
            if not _has_word(text, word):
                yield f'"{word}" is not in {show(text)}'
        if check.any_of is not UNSET and not any(_has_word(text, word) for word in check.any_of):
            yield f"none of them is in {show(text)}"
        for word in check.without or ():
            if _has_word(text, word):
                yield f'"{word}" is in {show(text)}'


def _has_word(text: str, word: str) -> bool:
    """Return whether a text contains `word`, ignoring case, but not as a part of another word.

    `word` may consist of several words.
    """
    words = r"\s+".join(map(re.escape, word.casefold().split()))
    return re.search(rf"(?<!\w){words}(?!\w)", text.casefold()) is not None


class NoSecretsJudge(TalkJudge):
    """The judge of `secrets`: the answers of all steps, and all requests to models."""

    check: NoSecrets

    def __init__(self, check: NoSecrets, name: str, place: str, talk: ModelTalk, view: View) -> None:
        super().__init__(check, name, place, talk)
        self.view = view
        self._known: Mapping[str, str] = {}

    def judge_final_state(self, now: float) -> None:
        self._known = self.view.secrets(self.check.values)

    def result(self) -> CheckResult:
        expected = "no secret in an answer, or in what models are asked"
        answers = self.view.answers(None)
        if not self._known:
            return self.verdict(False, expected, "nothing is secret: no field, no input and no reference")
        missing = [name for name in self.check.values if name not in self._known]
        if missing:
            return self.verdict(False, expected, f"{missing[0]} cannot be read")
        if not answers and not self.talk.requests:
            return self.verdict(False, expected, "no step was answered, and no model was asked")
        for answer in answers:
            name = self._in([text_of_answer(answer.value), json.dumps(answer.value), answer.error or ""])
            if name is not None and not answer.hidden:
                return self.verdict(False, expected, f"{name} is in the answer of {answer.step}")
        for request in self.talk.requests:
            name = self._in(request.texts)
            if name is not None:
                saw = f"{name} is in what {request.asker} asks {request.model}"
                return self.verdict(False, expected, saw, request.at)
        counts = f"{len(answers)} answers and {len(self.talk.requests)} requests to models"
        return self.verdict(True, expected, f"none of {len(self._known)} in {counts}")

    def _in(self, texts: Sequence[str]) -> str | None:
        """Return the name of a secret that one of the texts contains; None if none contains a secret."""
        for name, value in self._known.items():
            if any(form in text for form in (value, json.dumps(value)[1:-1]) for text in texts):
                return name
        return None
