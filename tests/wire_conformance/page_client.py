"""A consumer of streams both ways, written from docs/reference/lmos-extensions.md and nothing else."""

import json
import struct
from collections import deque
from itertools import count

from trio_websocket import open_websocket_url

WINDOW = {"items": 16, "bytes": 262_144}


class Talk:
    def __init__(self, socket, thing, items):
        self.socket, self.ids, self.run = socket, count(1), "run-1"
        self.thing, self.items, self.sequence = thing, deque(items), 0
        self.room = {"items": 0, "bytes": 0}
        self.used = {"items": 0, "bytes": 0}
        self.answers, self.final = [], None

    async def say(self, kind, **members):
        said = {"messageType": kind, "thingID": self.thing, "messageID": f"m-{next(self.ids)}"}
        await self.socket.send_message(json.dumps({**said, "correlationID": self.run, **members}))

    async def send_what_may_be(self):
        while self.items and min(self.room.values()) > 0:
            item = self.items.popleft()
            frame = struct.pack("!BBHII", 1, not self.items, 0, 1, self.sequence) + item
            await self.socket.send_message(frame)
            self.sequence += 1
            self.room = {"items": self.room["items"] - 1, "bytes": self.room["bytes"] - len(frame)}

    async def take(self, frame):
        if isinstance(frame, bytes):
            self.answers.append(frame[12:])
            self.used = {"items": self.used["items"] + 1, "bytes": self.used["bytes"] + len(frame)}
            if any(2 * self.used[what] >= WINDOW[what] for what in WINDOW):
                await self.say("streamCredit", **self.used)
                self.used = dict.fromkeys(WINDOW, 0)
            return
        message = json.loads(frame)
        if message["messageType"] == "streamCredit":
            self.room = {what: self.room[what] + message[what] for what in WINDOW}
            await self.send_what_may_be()
        elif message["messageType"] == "error" or message.get("status") in ("completed", "failed"):
            self.final = message


async def talk(url, thing, action, parameter, items):
    """Send bytes into an action and return the bytes that it answers, with its last message."""
    async with open_websocket_url(url, subprotocols=["lmosprotocol"]) as socket:
        it = Talk(socket, thing, items)
        streams = {parameter: {"stream": 1, "contentType": "application/octet-stream"}}
        asked = {"messageID": it.run, "streams": streams, "credit": WINDOW, "binary": True}
        await it.say("invokeAction", action=action, **asked)
        while it.final is None:
            await it.take(await socket.get_message())
        return it.answers, it.final
