// One @waku/sds participant behind lines of JSON: a command in, what left it and what it told out.
import readline from "node:readline";
import { MessageChannel } from "@waku/sds";
import { Message } from "./node_modules/@waku/sds/dist/message_channel/message.js";

let clockMs = 0;
Date.now = () => clockMs;

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const commands = {
  open: ({ channelId, senderId, options }) => {
    channel = new MessageChannel(channelId, senderId, options);
    const told = {
      "sds:in:message-received": (event) => ["received", event.detail.messageId],
      "sds:in:message-delivered": (event) => ["delivered", event.detail],
      "sds:out:message-acknowledged": (event) => ["acknowledged", event.detail],
      "sds:error-task": (event) => ["error", String(event.detail.error)],
    };
    for (const [name, read] of Object.entries(told)) channel.addEventListener(name, (event) => events.push(read(event)));
  },
  send: async ({ payload }) => {
    channel.pushOutgoingMessage(Buffer.from(payload, "base64"), leave);
    await channel.processTasks();
  },
  receive: async ({ wire }) => {
    const message = Message.decode(Buffer.from(wire, "base64"));
    if (message === undefined) {
      events.push(["undecodable", ""]);
      return;
    }
    channel.pushIncomingMessage(message, undefined);
    await channel.processTasks();
  },
  sync: () => channel.pushOutgoingSyncMessage(leave),
  sweep: async () => {
    channel.sweepIncomingBuffer();
    await channel.sweepRepairIncomingBuffer(leave);
  },
  unacknowledged: () => {
    const { unacknowledged, possiblyAcknowledged } = channel.sweepOutgoingBuffer();
    return [...unacknowledged, ...possiblyAcknowledged].map((message) => hex(message.content));
  },
  log: () => channel.localHistory.slice(0).map((message) => message.messageId),
};

let channel;
let events = [];
let out = [];
const leave = async (message) => {
  out.push(Buffer.from(message.encode()).toString("base64"));
  return { success: true };
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { op, nowMs, ...rest } = JSON.parse(line);
  clockMs = nowMs;
  events = [];
  out = [];
  const value = await commands[op](rest);
  process.stdout.write(JSON.stringify({ out, events, value: value ?? null }) + "\n");
}
