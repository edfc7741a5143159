"""wotpy, as it is published, does what it is told: a JSON object per line of input, a line of answer each.

Runs in the environment that wotpy was installed into, and not in that of the tests.
"""

import asyncio
import json
import sys

from wotpy.protocols.enums import Protocols
from wotpy.wot.servient import Servient
from wotpy.wot.wot import WoT


class Client:
    """The verbs, over a servient that serves nothing."""

    def __init__(self):
        self._begin()

    def _begin(self):
        servient = Servient(catalogue_port=None)
        servient.remove_client(Protocols.WEBSOCKETS)  # it would take LMOS for a protocol of its own
        self.wot = WoT(servient=servient)
        self.thing = None
        self.heard_of = {}
        self.came = asyncio.Event()
        self.handles = {}

    async def consume(self, url=None, td=None, scheme=None, credentials=None):
        if td is None:
            self.thing = await self.wot.consume_from_url(url)
        else:
            self.thing = self.wot.consume(json.dumps(td))
        if scheme is not None:
            http = self.wot.servient.clients[Protocols.HTTP]
            http.set_security(scheme, credentials)
        return self.thing.td.to_dict()

    async def read(self, name):
        return await self.thing.read_property(name)

    async def write(self, name, value):
        await self.thing.write_property(name, value)

    async def invoke(self, name, input=None):
        return await self.thing.invoke_action(name, input)

    async def observe(self, name):
        self._listen(name, self.thing.on_property_change(name), lambda each: each.data.value)

    async def subscribe(self, name):
        self._listen(name, self.thing.on_event(name), lambda each: each.data)

    def _listen(self, name, stream, value):
        values = self.heard_of[name] = []

        def came(one):
            values.append(one)
            self.came.set()

        self.handles[name] = stream.subscribe(
            on_next=lambda each: came(value(each)), on_error=lambda error: came(f"{error}")
        )

    async def heard(self, name, count):
        while len(self.heard_of[name]) < count:
            self.came.clear()
            await self.came.wait()
        return self.heard_of[name]

    async def stop(self, name):
        self.handles[name].dispose()

    async def forget(self):
        for handle in self.handles.values():
            handle.dispose()
        self._begin()


async def main():
    client = Client()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        said = json.loads(line)
        verb = said.pop("do")
        try:
            answer = {"value": await getattr(client, verb)(**said)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
