// WebSocket peers that are not ours, in Node: `client ws|built-in URL`, which reads a conversation from standard
// input and writes what came as JSON, and `server ws|by-hand`, which writes its port and serves the examples of the
// LMOS text, which it reads from standard input. `ws` is taken from the folder in WS_FOLDER.
"use strict";
const { createHash } = require("node:crypto");
const http = require("node:http");
const path = require("node:path");

const ws = () => require(path.join(process.env.WS_FOLDER, "node_modules", "ws"));
const input = () => JSON.parse(require("node:fs").readFileSync(0, "utf8"));

// ---- a client: says each text of the conversation, and waits for so many answers before the next

function client(kind, url) {
  const { offers, turns } = input();
  const Socket = kind === "ws" ? ws().WebSocket : WebSocket;
  const socket = new Socket(url, offers);
  const heard = [];
  let wanted = 0;
  const goOn = () => {
    while (heard.length >= wanted && turns.length) {
      const [text, answers] = turns.shift();
      socket.send(text);
      wanted += answers;
    }
    if (heard.length >= wanted) socket.close(1000, "done");
  };
  socket.onopen = goOn;
  socket.onmessage = (event) => {
    heard.push(JSON.parse(event.data));
    goOn();
  };
  socket.onerror = (event) => heard.push({ failed: String(event.message || event.error || event.type) });
  socket.onclose = (event) => {
    const told = { protocol: socket.protocol, code: event.code, heard };
    process.stdout.write(JSON.stringify(told) + "\n");
  };
}

// ---- a server: the thing of the examples

function thing(examples, send) {
  const settle = (example, request) => {
    const answer = { ...examples[example], messageID: crypto.randomUUID() };
    for (const name of ["thingId", "messageId", "correlationId"]) delete answer[name];
    answer.thingID = request.thingID || request.thingId;
    answer.correlationID = request.correlationID || request.correlationId || request.messageID || request.messageId;
    return answer;
  };
  const answers = {
    readProperty: (m) => [settle("propertyReading", m)],
    writeProperty: (m) => [{ ...settle("propertyReading", m), name: m.name, value: m.data }],
    writeMultipleProperties: (m) => [{ ...settle("propertyReadings", m), data: m.data }],
    observeProperty: (m) => [settle("propertyReading", m)],
    unobserveProperty: () => [],
    invokeAction: (m) =>
      m.action === "getWeather"
        ? ["pending", "in progress", "completed"].map((status) => {
            const answer = { ...settle("actionStatus", m), status };
            if (status !== "completed") delete answer.output;
            return answer;
          })
        : [settle("error", m)],
    subscribeEvent: (m) => [settle("event", m)],
    unsubscribeEvent: () => [],
  };
  return (text) => {
    const message = JSON.parse(text);
    const answer = answers[message.messageType];
    for (const one of answer ? answer(message) : [settle("error", message)]) send(JSON.stringify(one));
  };
}

function serverOfWs(examples) {
  const server = new (ws().WebSocketServer)({
    port: 0,
    host: "127.0.0.1",
    handleProtocols: (offered) => (offered.has("lmosprotocol") ? "lmosprotocol" : false),
  });
  server.on("connection", (socket) => {
    const take = thing(examples, (text) => socket.send(text));
    socket.on("message", (data) => take(String(data)));
  });
  server.on("listening", () => process.stdout.write(`${server.address().port}\n`));
}

// As little of RFC 6455 as serves: text frames of less than 64 KiB, pings, and the end.
function serverByHand(examples) {
  const server = http.createServer((request, response) => response.writeHead(404).end());
  server.on("upgrade", (request, socket, head) => {
    const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    const accept = createHash("sha1").update(key).digest("base64");
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: lmosprotocol\r\n\r\n`,
    );
    const frame = (opcode, payload) => {
      const length = payload.length;
      const start = length < 126 ? [0x80 | opcode, length] : [0x80 | opcode, 126, length >> 8, length & 255];
      socket.write(Buffer.concat([Buffer.from(start), payload]));
    };
    const take = thing(examples, (text) => frame(1, Buffer.from(text)));
    let rest = head;
    const go = (data) => {
      rest = Buffer.concat([rest, data]);
      for (;;) {
        if (rest.length < 2) return;
        let length = rest[1] & 127;
        let at = 2;
        if (length === 126) {
          if (rest.length < 4) return;
          length = rest.readUInt16BE(2);
          at = 4;
        }
        if (rest.length < at + 4 + length) return;
        const mask = rest.subarray(at, at + 4);
        const payload = Buffer.from(rest.subarray(at + 4, at + 4 + length)).map((byte, index) => byte ^ mask[index % 4]);
        const opcode = rest[0] & 15;
        rest = rest.subarray(at + 4 + length);
        if (opcode === 1) take(payload.toString("utf8"));
        if (opcode === 9) frame(10, payload);
        if (opcode === 8) {
          frame(8, payload);
          socket.end();
        }
      }
    };
    socket.on("data", go);
    socket.on("error", () => {});
    go(Buffer.alloc(0));
  });
  server.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
}

const [role, kind, url] = process.argv.slice(2);
if (role === "client") client(kind, url);
else if (kind === "ws") serverOfWs(input());
else serverByHand(input());
