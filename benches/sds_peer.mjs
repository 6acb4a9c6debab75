// Times @waku/sds on the messages on standard input (a length of 4 bytes, big-endian, before each):
// `node --expose-gc sds_peer.mjs <causal history size> <messages to send> < messages`.
import { pathToFileURL } from "node:url";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "..", "tests", "interop", "node_modules", "@waku", "sds", "dist");
const { MessageChannel } = await import(pathToFileURL(path.join(root, "index.js")));
const { Message } = await import(pathToFileURL(path.join(root, "message_channel", "message.js")));

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const input = Buffer.concat(chunks);
const wires = [];
for (let at = 0; at < input.length; ) {
  const end = at + 4 + input.readUInt32BE(at);
  wires.push(input.subarray(at + 4, end));
  at = end;
}
const options = { causalHistorySize: Number(process.argv[2]) };
const seconds = ({ user, system }) => (user + system) / 1e6;
const used = () => {
  globalThis.gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

const receiver = new MessageChannel("rooms", "bobby", options);
let delivered = 0;
receiver.addEventListener("sds:in:message-delivered", () => delivered++);
const usedBefore = used();
let start = process.cpuUsage();
for (const wire of wires) {
  receiver.pushIncomingMessage(Message.decode(wire), undefined);
  await receiver.processTasks();
}
const receiving = seconds(process.cpuUsage(start));
// Contents are views of the input, which is not counted; the receiver must still be alive here.
globalThis.receiver = receiver;
const bytesPerMessage = (used() - usedBefore) / wires.length;

const sender = new MessageChannel("rooms", "alice", options);
const sends = Number(process.argv[3]);
let wireBytes = 0;
start = process.cpuUsage();
for (let number = 0; number < sends; number++) {
  sender.pushOutgoingMessage(Buffer.from(`message ${number}`.padEnd(100)), async (message) => {
    wireBytes += message.encode().length;
    return { success: true };
  });
  await sender.processTasks();
}
const sending = seconds(process.cpuUsage(start));
console.log(
  JSON.stringify({
    delivered,
    receivePerSecond: wires.length / receiving,
    bytesPerMessage,
    sendPerSecond: sends / sending,
    wireBytesPerMessage: wireBytes / sends - 100,
  }),
);
