// Times ReliableChannel of @waku/sdk on small messages: `node channel_peer.mjs <receivers> <messages>`. One sender, all
// participants in this process, on nodes that hand every message to all others at once. Prints figures as JSON.
import path from "node:path";
import { pathToFileURL } from "node:url";

const root = path.resolve(import.meta.dirname, "..", "tests", "interop", "node_modules", "@waku", "sdk", "dist");
const { createDecoder, createEncoder, ReliableChannel, utils } = await import(pathToFileURL(path.join(root, "index.js")));

const TOPIC = "/shardwire/1/bench/proto";
const MESSAGE_BYTES = 100;
const WARM_UP = 200;
const LONE_MESSAGES = 30;
const [receivers, messages] = process.argv.slice(2).map(Number);

const routingInfo = utils.createRoutingInfo({ clusterId: 1, numShardsInCluster: 8 }, { contentTopic: TOPIC });
const encoder = createEncoder({ contentTopic: TOPIC, routingInfo });
const decoder = createDecoder(TOPIC, routingInfo);
const listeners = [];

// What a ReliableChannel uses of an IWaku.
const makeNode = (own) => ({
  lightPush: {
    send: async (encoder, message) => {
      const wire = await encoder.toWire(message);
      for (const [other, listener] of listeners.entries()) {
        if (other !== own) {
          listener(await decoder.fromProtoObj(decoder.pubsubTopic, await decoder.fromWireToProtoObj(wire)));
        }
      }
      return { successes: ["service node"], failures: [] };
    },
  },
  filter: {
    subscribe: async (_decoder, callback) => {
      listeners[own] = callback;
      return true;
    },
  },
});

let received = 0;
let arrived = () => {};
const channels = [];
for (let number = 0; number <= receivers; number++) {
  const channel = await ReliableChannel.create(makeNode(number), "bench", `member${number}`, encoder, decoder, {
    autoStart: false,
    queryOnConnect: false,
  });
  if (number > 0) {
    channel.addEventListener("message-received", () => {
      received++;
      arrived();
    });
  }
  await channel.start();
  channels.push(channel);
}
const until = async (count) => {
  while (received < count) await new Promise((resolve) => (arrived = resolve));
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const turn = () => new Promise((resolve) => setImmediate(resolve));
const payload = (number) => {
  const bytes = new Uint8Array(MESSAGE_BYTES);
  new DataView(bytes.buffer).setUint32(0, number);
  return bytes;
};

let number = 0;
const sendAll = async (count) => {
  for (const end = number + count; number < end; ) {
    channels[0].send(payload(number++));
    await turn();
  }
  await until(number * receivers);
};
await sendAll(WARM_UP);
const began = performance.now();
const used = process.cpuUsage();
await sendAll(messages);
const seconds = (performance.now() - began) / 1e3;
const { user, system } = process.cpuUsage(used);
await pause(3_000);
const lone = [];
for (let count = 0; count < LONE_MESSAGES; count++) {
  const sent = performance.now();
  await sendAll(1);
  lone.push(performance.now() - sent);
  await pause(20);
}
lone.sort((first, second) => first - second);
console.log(
  JSON.stringify({
    "messages a second": messages / seconds,
    "processor time, us": (user + system) / messages,
    "lone message, ms": (lone[LONE_MESSAGES / 2 - 1] + lone[LONE_MESSAGES / 2]) / 2,
  }),
);
process.exit(0);
