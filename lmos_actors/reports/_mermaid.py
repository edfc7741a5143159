"""The messages of one run as a sequence diagram, in Mermaid's language."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from ._messages import Record, as_text, is_renewal, records, shorten, what_of
from ._text import cut_line, missing_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._results import FileResult, RunResult

MOST_MESSAGES = 400
"""Most arrows and notes of one diagram."""

_SIZE = 80
_PASSED_OVER = frozenset({"delivered", "started", "stopped"})
_KIND = re.compile(r'\{"n":\d+,"t":[^,]+,"kind":"(\w+)"')
_AGENT = re.compile(r'\{"n":\d+,"t":[^,]+,"kind":"started","agent":"([^"\\]*)"')
_ID = re.compile(r'"id":(\d+)')
_PARTICIPANT = re.compile(r"^    participant (\w+) as", re.MULTILINE)
_SPECIAL = {ord(c): f"#{ord(c)};" for c in "#;%<>&$"}


def mermaid(run: RunResult, name: str = "") -> str:
    """Return a run as a Mermaid sequence diagram, from the lines of `run.log`; `name` is its file's name.

    The diagram of a long run shows its first 400 messages, or the last 400 if it failed, and the number of
    messages left out.
    """
    lines = [line for line in run.log if (found := _KIND.match(line)) and _is_shown(found[1], line)]
    left = max(0, len(lines) - MOST_MESSAGES)
    diagram = _Diagram()
    shown = list(records(lines[: len(lines) - left] if run.ok else lines[left:]))
    diagram.remember([] if run.ok else lines[:left], shown)
    rows = [row for record in shown for row in diagram.draw(record)]
    if left:
        where = "messages that follow are" if run.ok else "earlier messages are"
        rows.insert(len(rows) if run.ok else 0, diagram.note("user", f"{left} {where} left out"))
    elif run.logged > len(run.log):
        rows.append(diagram.note("user", f"{run.logged - len(run.log)} lines of the log were not kept"))
    elif not rows:
        rows = [diagram.note("user", "no messages")]
    head = ["sequenceDiagram", f"    title {_text(f'{name} {run.label}: {run.ended}'.strip())}"]
    return "".join(f"{row}\n" for row in [*head, *diagram.participants(run.log), *rows])


def mark_cut(diagram: str, results: Sequence[FileResult]) -> str:
    """Return the diagram with a note on why the command ended early, and with the missing runs as comments.

    If it did not end early, the diagram is unchanged. If no run has a result, a diagram without messages is
    returned.
    """
    said = cut_line(results)
    if not said:
        return diagram
    missing: list[str] = []
    for line in missing_lines(results):
        # no braces: Mermaid takes `%%{` for a directive
        comment = shorten(line, _SIZE + 40).replace("{", "(").replace("}", ")")
        missing.append(f"    %% {comment}\n")
    empty = "sequenceDiagram\n    title no run has a result\n    participant a0 as user\n"
    head, title, *rest = (diagram or empty).splitlines(keepends=True)
    body = "".join(rest)
    title = title.rstrip("\n") + f" ({_text(said)})\n"
    over = next(iter(_PARTICIPANT.findall(body)), "a0")
    return "".join([head, title, *missing, body, f"    Note over {over}: {_text(said)}\n"])


def _is_shown(kind: str, line: str) -> bool:
    is_passed_over = kind in _PASSED_OVER and (kind != "started" or line.endswith('"incarnation":1}'))
    return not is_passed_over and not is_renewal(line)


@attrs.define
class _Diagram:
    """State of a diagram: participants, and requests that wait for an answer."""

    taking_part: dict[str, int] = attrs.Factory(dict[str, int])
    asked: dict[int, tuple[str, str]] = attrs.Factory(dict[int, tuple[str, str]])
    crowded: bool = False

    def remember(self, earlier: Sequence[str], shown: Sequence[Record]) -> None:
        """Record the senders of hidden requests whose answers are shown."""
        wanted = frozenset(str(record.get("id")) for record in shown if record.kind == "answered")
        for line in earlier:
            if '"kind":"sent"' in line and any(number in wanted for number in _ID.findall(line)):
                for record in records([line]):
                    self._note_request(record)

    def _note_request(self, record: Record) -> None:
        if record.get("id") is not None:
            self.asked[record.get("id")] = (str(record.get("from")), str(record.get("verb")))

    def draw(self, record: Record) -> list[str]:
        """Return the lines for a record; none for an answer without a value."""
        if record.kind == "sent":
            self._note_request(record)
            verb, name = str(record.get("verb")), str(record.get("affordance"))
            text = name if verb in ("tell", "invoke") else f"{verb} {name}"
            text += f" {as_text(record.get('input'), _SIZE)}" if "input" in record.fields else ""
            arrow = "-)" if verb == "tell" else "->>"
            return self._line(str(record.get("from")), arrow, record.agent, text)
        if record.kind == "answered":
            return self._answer(record)
        if record.kind == "network" and record.get("affordance"):
            arrow = "-x" if record.get("what") == "lost" else "-)"
            return self._line(str(record.get("from")), arrow, str(record.get("to")), what_of(record))
        if record.kind == "network":
            between = f"{record.get('from')} and {record.get('to')}: {what_of(record)}"
            return [self.note(record.agent, between)]
        return [self.note(record.agent, what_of(record))]

    def _answer(self, record: Record) -> list[str]:
        asker, verb = self.asked.get(record.get("id") or 0, ("", ""))
        alone, name = not asker or verb == "tell", record.get("affordance")
        if "error" in record.fields:
            text = f"{name} failed: {record.get('error')}"
            return [self.note(record.agent, text)] if alone else self._line(asker, "--x", record.agent, text)
        if alone:
            return []
        value = record.get("value")
        text = str(name) if value is None else f"{name} = {as_text(value, _SIZE)}"
        return self._line(asker, "-->>", record.agent, text)

    def _line(self, asker: str, arrow: str, agent: str, text: str) -> list[str]:
        one, other = (agent, asker) if arrow.startswith("--") else (asker, agent)
        return [f"    {self._name(one)}{arrow}{self._name(other)}: {_text(text)}"]

    def note(self, agent: str, text: str) -> str:
        return f"    Note over {self._name(agent)}: {_text(text)}"

    def _name(self, agent: str) -> str:
        """Return the short name of a participant; those beyond the limit share one name."""
        if agent not in self.taking_part and len(self.taking_part) >= 60:
            self.crowded = True
            return "others"
        return f"a{self.taking_part.setdefault(agent, len(self.taking_part))}"

    def participants(self, log: Sequence[str]) -> list[str]:
        """Return a line for each participant: `user` first, then the agents in the order of the log."""
        agents = dict.fromkeys(["user"])
        for line in log:
            found = _AGENT.match(line)
            if found and found[1] in self.taking_part:
                agents.setdefault(found[1])
        agents.update(dict.fromkeys(self.taking_part))
        rows = [
            f"    participant a{self.taking_part[a]} as {_text(a)}" for a in agents if a in self.taking_part
        ]
        return [*rows, "    participant others as all others"] if self.crowded else rows


def _text(text: str) -> str:
    """Return a text, shortened and escaped so that Mermaid does not parse any part of it as syntax."""
    return shorten(text, _SIZE + 40).translate(_SPECIAL) or " "
