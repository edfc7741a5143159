"""Files that clients upload: announced over the connection, sent over HTTP, kept in a folder for a while.

A file belongs to an agent, a caller and a session, like the messages in it: for others it does not exist. Its
name is a text that is shown, and never a path: on the disk files are named by their ids. Each has a note
beside it, by which it is known after a restart; a file without a note was not uploaded completely.

There are bounds on the bytes of one file, on the bytes of all files and announcements together (half of that
for one caller), on the announcements of one caller, and on the age of files and announcements.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import attrs
import msgspec
import trio

from lmos_actors.errors import ConfigError, LmosActorsError
from lmos_actors.protocol.omnia import StoredUpload, UploadTicket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from lmos_actors.actors import Runtime
    from lmos_actors.protocol.omnia import UploadOrder

    from ._options import OmniaOptions

T = TypeVar("T")

SCHEME: Final = "omnia://sessions/"
PIECE: Final = 256 << 10
"""Bytes that are read at a time."""

PART: Final = ".part"
NOTE: Final = ".json"


class UploadRefused(LmosActorsError):
    """An upload is refused; the text is the reason."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file that has been uploaded. Times are Unix time.

    `is_first`: it was announced before its session had a message, so the session begins with the file.
    """

    id: str
    agent: str
    owner: str
    session: str
    filename: str
    mime_type: str
    size: int
    began: float
    until: float
    is_first: bool = False

    @property
    def reference(self) -> str:
        """The `storage_ref` of the file."""
        return reference_of(self.session, self.id)


@attrs.define(eq=False)
class Announced:
    """A file that may be uploaded until a Unix time; `stored` is called once it is uploaded."""

    file: StoredFile
    until: float
    stored: Callable[[StoredUpload], object]
    is_coming: bool = False


def reference_of(session: str, id: str) -> str:
    """Return the `storage_ref` of a file."""
    return f"{SCHEME}{session}/media/{id}"


class Uploads:
    """The files of the clients of one node."""

    def __init__(self, folder: str, options: OmniaOptions, rt: Runtime) -> None:
        self._folder = Path(folder)
        self._options = options
        self._rt = rt
        self._files: dict[str, StoredFile] = {}
        self._announced: dict[str, Announced] = {}
        self._bytes: Counter[str] = Counter()  # of files and announcements, by owner
        self._load()

    # ---- announcing

    def announce(
        self,
        agent: str,
        owner: str,
        session: str,
        order: UploadOrder,
        url: str,
        stored: Callable[[StoredUpload], object],
        *,
        is_first: bool = False,
    ) -> UploadTicket:
        """Reserve a place for a file; `stored` is called once the file is uploaded. Raises UploadRefused."""
        self._expire()
        self._check(owner, order)
        options = self._options
        now = self._now()
        file = StoredFile(
            self._rt.entropy.new_id().replace("-", ""),
            agent,
            owner,
            session,
            order.filename,
            order.mime_type,
            order.size_bytes,
            now.timestamp(),
            now.timestamp() + options.upload_seconds,
            is_first,
        )
        until = now.timestamp() + options.ticket_seconds
        self._announced[file.id] = Announced(file, until, stored)
        self._bytes[owner] += file.size
        expires = now.fromtimestamp(until, now.tzinfo).isoformat(timespec="milliseconds")
        return UploadTicket(
            upload_id=file.id,
            upload_url=f"{url}/media/upload/{file.id}",
            storage_ref=file.reference,
            expires_at=expires.replace("+00:00", "Z"),
        )

    def _check(self, owner: str, order: UploadOrder) -> None:
        """Raise UploadRefused for a file that is too large, has no usable name, or exceeds a bound."""
        options, size = self._options, order.size_bytes
        if size > options.upload_bytes:
            raise UploadRefused(f"a file has at most {options.upload_bytes} bytes")
        if len(order.filename) > 255 or len(order.mime_type) > 255 or not order.mime_type.isprintable():
            raise UploadRefused("the name of a file, and its type, have at most 255 characters")
        if sum(each.file.owner == owner for each in self._announced.values()) >= options.announced:
            raise UploadRefused(f"{options.announced} uploads are announced and have not come")
        room, places = options.uploads_bytes, options.files - len(self._files) - len(self._announced)
        if not places or self._bytes.total() + size > room or self._bytes[owner] + size > room // 2:
            raise UploadRefused("there is no room for more files now")

    # ---- taking

    async def take(self, id: str, owner: str, pieces: AsyncIterator[bytes]) -> None:
        """Store an announced file. Raises UploadRefused, LookupError if it was not announced, or OSError."""
        self._expire()
        announced = self._announced.get(id)
        if announced is None or announced.file.owner != owner:
            raise LookupError(id)
        if announced.is_coming:
            raise UploadRefused("the file is being uploaded")
        announced.is_coming = True
        part = self._folder / f"{id}{PART}"
        try:
            await self._write(part, announced.file, pieces)
            await self._call(self._finish, part, announced.file)
        except BaseException:
            announced.is_coming = False  # it may come once more
            with trio.CancelScope(shield=True):
                await self._call(part.unlink, True)
            raise
        file = announced.file
        del self._announced[id]
        self._files[id] = file
        announced.stored(StoredUpload(upload_id=id, storage_ref=file.reference, size_bytes=file.size))

    async def _write(self, part: Path, file: StoredFile, pieces: AsyncIterator[bytes]) -> None:
        size = 0
        opened: BinaryIO = await self._call(lambda: part.open("wb"))
        try:
            async for piece in pieces:
                size += len(piece)
                if size > file.size:
                    raise UploadRefused(f"more than the announced {file.size} bytes have come")
                if piece:
                    await self._call(opened.write, piece)
        finally:
            with trio.CancelScope(shield=True):
                await self._call(opened.close)
        if size < file.size:
            raise UploadRefused(f"{size} of the announced {file.size} bytes have come")

    def _finish(self, part: Path, file: StoredFile) -> None:
        part.rename(self._folder / file.id)
        note = self._folder / f"{file.id}{NOTE}"
        note.with_suffix(PART).write_bytes(msgspec.json.encode(file))
        note.with_suffix(PART).rename(note)

    # ---- finding

    def find(self, owner: str, session: str, id: str) -> StoredFile | None:
        """Return a file of a caller's session, None if there is none."""
        self._expire()
        file = self._files.get(id)
        return file if file is not None and (file.owner, file.session) == (owner, session) else None

    def referred(self, agent: str, owner: str, session: str, reference: str) -> StoredFile | None:
        """Return the file for a `storage_ref` in a message, None if the session has no such file."""
        session_named, _, id = reference.removeprefix(SCHEME).rpartition("/media/")
        file = self.find(owner, session, id) if session_named == session else None
        return file if file is not None and file.agent == agent and file.reference == reference else None

    def begins(self, agent: str, owner: str, session: str) -> bool:
        """Return whether a session of a caller has a file that was announced before its first message."""
        self._expire()
        place = agent, owner, session
        return any(
            each.is_first and (each.agent, each.owner, each.session) == place for each in self._files.values()
        )

    async def read(self, file: StoredFile) -> bytes:
        """Return the content of a file. Raises OSError."""
        return await self._call((self._folder / file.id).read_bytes)

    async def pieces(self, file: StoredFile) -> AsyncIterator[bytes]:
        """Yield the content of a file in pieces. Raises OSError."""
        opened: BinaryIO = await self._call(lambda: (self._folder / file.id).open("rb"))
        try:
            while piece := await self._call(opened.read, PIECE):
                yield piece  # noqa: ASYNC119 -- read to its end, or dropped with the request
        finally:
            opened.close()

    # ---- ageing

    def _expire(self) -> None:
        now = self._now().timestamp()
        for id, announced in tuple(self._announced.items()):  # in the order in which they end
            if announced.until > now:
                break
            if not announced.is_coming:
                del self._announced[id]
                self._free(announced.file)
        while (
            self._files
        ):  # nearly in the order in which they end: one that came late is kept a little longer
            file = next(iter(self._files.values()))
            if file.until > now:
                break
            del self._files[file.id]
            self._free(file)
            self._remove(file.id)

    def _free(self, file: StoredFile) -> None:
        self._bytes[file.owner] -= file.size
        if not self._bytes[file.owner]:
            del self._bytes[file.owner]

    def _remove(self, id: str) -> None:
        for name in (f"{id}{NOTE}", id):  # the note first: without it the rest is rubbish
            (self._folder / name).unlink(missing_ok=True)

    def _load(self) -> None:
        """Load the notes of earlier files, and remove incomplete uploads. Raises ConfigError."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found: list[StoredFile] = []
            for name in os.listdir(self._folder):
                if name.endswith(PART):
                    (self._folder / name).unlink(missing_ok=True)
                elif name.endswith(NOTE):
                    note = (self._folder / name).read_bytes()
                    found.append(msgspec.json.decode(note, type=StoredFile))
            for file in sorted(found, key=lambda each: each.until):
                self._files[file.id] = file
                self._bytes[file.owner] += file.size
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"the folder {self._folder} cannot be used: {error}", "uploads") from None
        self._expire()

    def _now(self) -> datetime:
        return self._rt.entropy.now()

    async def _call(self, work: Callable[..., T], *args: Any) -> T:
        """Run disk work in a thread, as it may take time; on virtual time, run it directly."""
        if not self._rt.real:
            await trio.lowlevel.checkpoint()
            return work(*args)
        return await trio.to_thread.run_sync(partial(work, *args))
