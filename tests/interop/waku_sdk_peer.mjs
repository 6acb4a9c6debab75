// One ReliableChannel of @waku/sdk behind lines of JSON: a command in; out comes what left it, what it asks of a store,
// what it told, and when it wants to be woken. Time and chance are the caller's; the channel's code runs on them unchanged.
import readline from "node:readline";
import { createDecoder, createEncoder, ReliableChannel, utils } from "@waku/sdk";

let clockMs = 0;
let timerNumber = 0;
const timers = new Map();
const schedule = (run, delayMs, everyMs) => {
  timers.set(++timerNumber, { dueMs: clockMs + Math.max(1, Math.trunc(delayMs)), run, everyMs });
  return timerNumber;
};
globalThis.setTimeout = (run, delayMs) => schedule(run, delayMs);
globalThis.setInterval = (run, everyMs) => schedule(run, everyMs, everyMs);
globalThis.clearTimeout = globalThis.clearInterval = (number) => timers.delete(number);
globalThis.Date = class extends Date {
  constructor(...parts) {
    super(...(parts.length ? parts : [clockMs]));
  }
  static now() {
    return clockMs;
  }
};
// mulberry32
const seeded = (state) => () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};

// Everything that waits for promises alone has happened when the event loop comes round.
const settle = () => new Promise((resolve) => setImmediate(resolve));
const earliest = () =>
  [...timers].reduce((first, timer) => (first && first[1].dueMs <= timer[1].dueMs ? first : timer), undefined);

const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const hex = (bytes) => Buffer.from(bytes).toString("hex");

let channel, decoder, hear;
let events, out, queries;
let queryNumber = 0;
const answers = new Map();

const decoded = async (wire) =>
  decoder.fromProtoObj(decoder.pubsubTopic, await decoder.fromWireToProtoObj(Buffer.from(wire, "base64")));

// What a ReliableChannel uses of an IWaku.
const makeNode = (hasStore) => ({
  lightPush: {
    send: async (encoder, message) => {
      // The channel encoded the message once already, for its hint; a new millisecond between the two makes the hint wrong.
      const timestamp = new Date(clockMs + (Math.random() < 0.4 ? 1 : 0));
      out.push(base64(await encoder.toWire({ ...message, timestamp })));
      return { successes: ["service node"], failures: [] };
    },
  },
  filter: {
    subscribe: async (_decoder, callback) => {
      hear = callback;
      return true;
    },
  },
  store: hasStore && {
    queryGenerator: async function* (_decoders, { messageHashes }) {
      const number = ++queryNumber;
      queries.push({ number, messageHashes: messageHashes.map(hex) });
      yield (await new Promise((resolve) => answers.set(number, resolve))).map(decoded);
    },
  },
});

const commands = {
  open: async ({ channelId, senderId, contentTopic, network, hasStore, seed, options }) => {
    Math.random = seeded(seed);
    const routingInfo = utils.createRoutingInfo(network, { contentTopic });
    decoder = createDecoder(contentTopic, routingInfo);
    const encoder = createEncoder({ contentTopic, routingInfo });
    channel = await ReliableChannel.create(makeNode(hasStore), channelId, senderId, encoder, decoder, {
      ...options,
      autoStart: false,
    });
    const sds = channel.messageChannel;
    const contentOf = (id) => sds.localHistory.find(({ messageId }) => messageId === id).content;
    const told = [
      [channel, "message-received", ({ payload }) => base64(payload)],
      [channel, "message-acknowledged", (id) => id],
      [channel, "sending-message-irrecoverable-error", ({ error }) => String(error)],
      // The channel hands messages over as they arrive; what SDS delivers stays inside of it.
      [sds, "sds:in:message-delivered", (id) => base64(contentOf(id))],
      [sds, "sds:error-task", ({ error }) => String(error)],
    ];
    for (const [emitter, name, read] of told) {
      emitter.addEventListener(name, ({ detail }) => events.push([name, read(detail)]));
    }
    await channel.start();
  },
  send: ({ payload }) => channel.send(Buffer.from(payload, "base64")),
  receive: async ({ wire }) => hear(await decoded(wire)),
  page: ({ number, wires }) => {
    answers.get(number)(wires);
    answers.delete(number);
  },
  wake: async () => {},
  log: () => channel.messageChannel.localHistory.slice(0).map(({ content }) => base64(content)),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { op, nowMs, ...rest } = JSON.parse(line);
  [events, out, queries] = [[], [], []];
  for (let next = earliest(); next && next[1].dueMs <= nowMs; next = earliest()) {
    const [number, timer] = next;
    clockMs = timer.dueMs;
    if (timer.everyMs === undefined) timers.delete(number);
    else timer.dueMs += timer.everyMs;
    timer.run();
    await settle();
  }
  clockMs = nowMs;
  const value = await commands[op](rest);
  await settle();
  process.stdout.write(JSON.stringify({ out, events, queries, wakeMs: earliest()?.[1].dueMs ?? null, value: value ?? null }) + "\n");
}
