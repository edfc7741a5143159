// node-wot, as it is published, does what it is told: one JSON object per line of standard input, one line of answer
// each. The folder into which it was installed is the argument.
"use strict";
const from = require("node:module").createRequire(process.argv[2] + "/");
const { Servient } = from("@node-wot/core");
const { HttpClientFactory } = from("@node-wot/binding-http");
const { tdValidator } = from("@thing-description-playground/core");

let wot, thing;
let heard = {};
let handles = {};
const waiting = [];

function listener(name) {
  const values = (heard[name] = []);
  const came = (one) => {
    values.push(one);
    for (const look of waiting.splice(0)) look();
  };
  return [
    async (output) => came(await output.value().catch((error) => `${error}`)),
    (error) => came(`${error}`),
  ];
}

const verbs = {
  async consume({ url, td, credentials }) {
    const servient = new Servient();
    servient.addClientFactory(new HttpClientFactory());
    wot = await servient.start();
    td ??= await wot.requestThingDescription(url);
    if (credentials) servient.addCredentials({ [td.id]: credentials });
    thing = await wot.consume(td);
    return td;
  },
  async explore({ url }) {
    const servient = new Servient();
    servient.addClientFactory(new HttpClientFactory());
    const found = await (await servient.start()).exploreDirectory(url);
    const ids = [];
    for await (const td of found) ids.push(td.id);
    if (found.error) throw found.error;
    return ids;
  },
  async read({ name }) {
    return (await thing.readProperty(name)).value();
  },
  async readAll() {
    const values = {};
    for (const [name, output] of await thing.readAllProperties()) values[name] = await output.value();
    return values;
  },
  write: ({ name, value }) => thing.writeProperty(name, value),
  writeMany: ({ values }) => thing.writeMultipleProperties(new Map(Object.entries(values))),
  async invoke({ name, input, options }) {
    return (await thing.invokeAction(name, input, options)).value();
  },
  async observe({ name, form }) {
    handles[name] = await thing.observeProperty(name, ...listener(name), { formIndex: form });
  },
  async subscribe({ name, form }) {
    handles[name] = await thing.subscribeEvent(name, ...listener(name), { formIndex: form });
  },
  heard: ({ name, count }) => new Promise((resolve) => {
    const look = () => (heard[name].length < count ? waiting.push(look) : resolve(heard[name]));
    look();
  }),
  stop: ({ name }) => handles[name].stop(),
  async forget() {
    for (const handle of Object.values(handles)) await handle.stop().catch(() => {}); // some have ended by themselves
    heard = {};
    handles = {};
  },
  validate: ({ td }) => tdValidator(JSON.stringify(td), () => {}, { checkDefaults: true, checkJsonLd: false }),
};

async function serve(line) {
  const said = JSON.parse(line);
  let answer;
  try {
    answer = { value: await verbs[said.do](said) };
  } catch (error) {
    answer = { error: `${error.message ?? error}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}

console.log = console.warn = console.error; // some of it speaks: answers stand alone on standard output
const lines = require("node:readline").createInterface({ input: process.stdin });
let before = Promise.resolve();
lines.on("line", (line) => { before = before.then(() => serve(line)); });
lines.on("close", () => process.exit(0));
