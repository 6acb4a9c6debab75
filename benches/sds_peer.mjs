// Times @waku/sds on the messages given as lines of base64: `node sds_peer.mjs <causal history size> < messages`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import readline from "node:readline";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "..", "tests", "interop", "node_modules", "@waku", "sds", "dist");
createRequire(import.meta.url);
const { MessageChannel } = await import(pathToFileURL(path.join(root, "index.js")));
const { Message } = await import(pathToFileURL(path.join(root, "message_channel", "message.js")));

const wires = [];
for await (const line of readline.createInterface({ input: process.stdin })) wires.push(Buffer.from(line, "base64"));
const options = { causalHistorySize: Number(process.argv[2]) };
const receiver = new MessageChannel("rooms", "bobby", options);
let delivered = 0;
receiver.addEventListener("sds:in:message-delivered", () => delivered++);
let start = process.cpuUsage();
for (const wire of wires) {
  receiver.pushIncomingMessage(Message.decode(wire), undefined);
  await receiver.processTasks();
}
const receiving = process.cpuUsage(start);
const sender = new MessageChannel("rooms", "alice", options);
start = process.cpuUsage();
const sent = Math.min(wires.length, 2000);
for (let number = 0; number < sent; number++) {
  sender.pushOutgoingMessage(Buffer.from(`message ${number}`.padEnd(100)), async (message) => {
    message.encode();
    return { success: true };
  });
  await sender.processTasks();
}
const sending = process.cpuUsage(start);
const seconds = ({ user, system }) => (user + system) / 1e6;
console.log(JSON.stringify({ delivered, receivePerSecond: wires.length / seconds(receiving), sendPerSecond: sent / seconds(sending) }));
