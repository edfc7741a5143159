"""Measured values of empirical distributions, read from files beside a scenario file.

A cell contains the values themselves, so that a file written from the cell needs no other file.
"""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import number_of
from lmos_actors.files import (
    Duration,
    FileError,
    Mistake,
    Source,
    did_you_mean,
    is_list,
    is_mapping,
    read_source,
)

from ._base import MOST_VALUES
from ._project import project_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.files import DataPath, Document

_TIMES: Final = frozenset({"latency", "jitter", "delay", "after", "wait"})
"""The keys whose values are times that may be drawn."""

_FREE: Final = frozenset(
    {"args", "input", "output", "value", "payload", "match", "equals", "data", "state", "emit"}
)
"""Everything below these keys is plain data, whatever it looks like."""


class MeasuredValues:
    """A reader of the measured values in a scenario file's data files, each read once; `mistakes` grows."""

    def __init__(self, document: Document, mistakes: list[Mistake]) -> None:
        self._document = document
        self._mistakes = mistakes
        self._sources: dict[str, Source | None] = {}
        self._found: dict[tuple[Any, ...], list[Any]] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that have been read."""
        folder = self._folder
        return () if folder is None else tuple(folder / file for file in self._sources)

    def filled(self, data: Any, path: DataPath) -> Any:
        """Return the data with the names of measured files replaced by the values in these files."""
        if isinstance(data, str):  # most values are texts
            return data
        if is_mapping(data):
            if data.get("dist") == "empirical" and "file" in data and "values" not in data:
                is_time = path[-1] in _TIMES and not _FREE.intersection(map(str, path[:-1]))
                if is_time or (path[0], path[2:3]) == ("population", ("args",)):
                    return self._values(data, path, is_time=is_time)
                return data
            return {key: self.filled(value, (*path, key)) for key, value in data.items()}
        if is_list(data):
            return [self.filled(value, (*path, index)) for index, value in enumerate(data)]
        return data

    def _values(self, data: dict[str, Any], path: DataPath, *, is_time: bool) -> dict[str, Any]:
        file, column, unit = data["file"], data.get("column"), data.get("unit", "")
        folder = self._folder
        is_right = all(isinstance(each, str) for each in (file, column or "", unit))
        if folder is None or not is_right or unit not in ("", *_SECONDS):
            return data  # decoding reports it
        key = (file, column, unit, is_time)
        if key not in self._found:
            reader = _Reader(unit, is_time=is_time)
            source = self._source(folder, file, (*path, "file"))
            self._found[key] = [] if source is None else reader.read(source, column)
            self._mistakes += reader.mistakes
            if reader.no_column:
                why = f"{file} {reader.no_column}"
                self._mistakes.append(self._document.mistake((*path, "column"), why, "name"))
        found = self._found[key]
        others = {key: value for key, value in data.items() if key not in ("file", "column", "unit")}
        return {**others, "values": found} if found else data

    @property
    def _folder(self) -> Path | None:
        return None if self._document.path is None else self._document.path.parent

    def _source(self, folder: Path, file: str, path: DataPath) -> Source | None:
        """Return the text of a file, or None if it cannot be read, which is reported once.

        A file outside the project is not read, because mistakes in it would reveal its lines.
        """
        if file in self._sources:
            return self._sources[file]
        self._sources[file] = None
        assert self._document.path is not None
        root = project_root(self._document.path)
        if not (folder / file).resolve().is_relative_to(root):
            why = f'"{file}" is outside the project root {root}'
            self._mistakes.append(self._document.mistake(path, why))
            return None
        try:
            self._sources[file] = read_source(folder / file)
        except FileError as error:
            for each in error.mistakes:
                unread = self._document.mistake(path, f"{file}: {each.message}", each.kind)
                self._mistakes.append(each if each.line else unread)
        return self._sources[file]


def measured_times(path: str) -> tuple[Duration, ...]:
    """Return the times in a file, one on each line. Blocks on the disk. Raises FileError."""
    source, reader = read_source(path), _Reader("", is_time=True)
    found = reader.read(source, None)
    if reader.mistakes:
        raise FileError(reader.mistakes)
    return tuple(map(Duration.parse, found))


class _Reader:
    """A reader of one file with one value on each line, or of one column of a CSV file with a header."""

    def __init__(self, unit: str, *, is_time: bool) -> None:
        self.mistakes: list[Mistake] = []
        self.no_column = ""
        """Why the column is missing, if it is."""
        self._unit = unit
        self._is_time = is_time
        self._sort: type | None = None

    def read(self, source: Source, column: str | None) -> list[Any]:
        """Return the values as they are written in the file; none if there are mistakes."""
        found: list[Any] = []
        for start, text in self._texts(source, column):
            if len(found) == MOST_VALUES:
                why = f"more than {MOST_VALUES:,} values"
                self.mistakes.append(source.mistake(start, why, end=start + len(text)))
                break
            try:
                found.append(self._value(text))
            except ValueError as error:
                self.mistakes.append(source.mistake(start, str(error), end=start + len(text)))
                break
        if not found and not self.mistakes and not self.no_column:
            self.mistakes.append(source.mistake(0, "no values: one in each line"))
        return [] if self.mistakes else found

    def _texts(self, source: Source, column: str | None) -> Iterator[tuple[int, str]]:
        """Yield the texts of values, each with its place."""
        lines = self._lines(source)
        if column is None:
            yield from lines
            return
        _, head = next(lines, (0, ""))
        names = [name for _, name in _fields(0, head)]
        if column not in names:
            self.no_column = f'has no column "{column}"{did_you_mean(column, names)}'
            return
        number = names.index(column)
        for start, line in lines:
            fields = _fields(start, line)
            if number < len(fields):
                yield fields[number]
            else:
                why = f'no "{column}": {len(fields)} columns of {len(names)}'
                self.mistakes.append(source.mistake(start, why, end=start + len(line)))
                return

    @staticmethod
    def _lines(source: Source) -> Iterator[tuple[int, str]]:
        """Yield the stripped lines that are neither empty nor comments, with their places."""
        start = 0
        for line in source.text.splitlines(keepends=True):
            text = line.strip()
            if text and not text.startswith("#"):
                yield start + line.index(text), text
            start += len(line)

    def _value(self, text: str) -> Any:
        """Return the value that a text represents, in the form used in a file. Raises ValueError."""
        try:
            number = number_of(text)
        except ValueError:
            if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                raise ValueError(f"{text} is not a finite number") from None
            self._check_sort(Duration)
            return str(Duration.parse(text))
        if not math.isfinite(number):
            raise ValueError(f"{text} is not a finite number")
        if self._unit:
            if number < 0:
                raise ValueError(f"{text} is below zero: a time is not")
            self._check_sort(Duration)
            seconds = round(number * _SECONDS[self._unit], 6)
            if seconds > _LONGEST:
                raise ValueError(f"{text}{self._unit} is longer than 100000h")
            return str(Duration(seconds))
        if self._is_time:
            raise ValueError(f'{text} has no unit: write {text}ms, or say "unit: ms" beside the file')
        self._check_sort(float)
        return number

    def _check_sort(self, sort: type) -> None:
        if self._sort not in (None, sort):
            raise ValueError("numbers and durations in one file: give all a unit, or none")
        self._sort = sort


_LONGEST: Final = 360_000_000.0
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0}


def _fields(start: int, line: str) -> list[tuple[int, str]]:
    """Return the fields of a CSV line with their places; a field after a quote has the quote's place."""
    found: list[tuple[int, str]] = []
    place, plain = start, line.partition('"')[0]
    for field in next(csv.reader([line]), list[str]()):
        text = field.strip()
        found.append((place + (len(field) - len(field.lstrip())), text))
        place = min(place + len(field) + 1, start + len(plain))
    return found
