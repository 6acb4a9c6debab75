"use strict";
// Names and ids are of peers: they reach the page as text alone, by textContent, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const GRAPH_MESSAGES = 40;
const at = id => document.getElementById(id);
const number = value => value.toLocaleString("en");
const FIGURES = {
  missing: "missing", lost: "given up", outgoing_unacknowledged: "segments unacknowledged", outgoing_queued: "queued",
  repair_requests: "repairs asked for", repair_answers: "repairs to give", deliveries_waiting: "wait for the application",
};
const CELLS = {
  ".": "waits", d: "waits", s: "sent", l: "again", a: "acknowledged", r: "received", p: "recovered",
};

function made(name, kind, text) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawn(name, attributes, kind) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (kind) element.setAttribute("class", kind);
  return element;
}

function row(...cells) {
  const line = made("tr");
  for (const cell of cells) {
    line.append(typeof cell === "number" ? made("td", "number", number(cell)) : cell);
  }
  return line;
}

function showFigures(told) {
  const figures = Object.entries(FIGURES).map(([name, said]) => [told.stats[name], said]);
  figures.unshift([told.participants.length, "participants"]);
  figures.push([told.irretrievable, "told irretrievable"]);
  at("figures").replaceChildren(...figures.map(([value, said]) => {
    const figure = made("div");
    figure.append(made("b", "", number(value)), said);
    return figure;
  }));
}

function showQuota({ enabled, used, total, resets_at_ms, queued }, now_ms) {
  at("used").max = total || 1;
  at("used").value = used;
  const seconds = Math.max(0, Math.round((resets_at_ms - now_ms) / 1000));
  at("quota-text").textContent = enabled
    ? `${number(used)} of ${number(total)} used, ${number(queued)} wait; the next epoch begins in ${seconds} s`
    : "no rate limit";
}

function showThroughput(seconds) {
  const highest = Math.max(1, ...seconds.map(([sent, received]) => Math.max(sent, received)));
  const lines = [["sent", 0], ["received", 1]].map(([kind, column]) => {
    const points = seconds.map((second, x) => `${(x * 960 / (seconds.length - 1)).toFixed(1)},${(118 - second[column] * 112 / highest).toFixed(1)}`);
    return drawn("path", { d: `M${points.join("L")}` }, kind);
  });
  at("throughput").replaceChildren(...lines);
  const last = seconds.slice(-11, -1);
  const rate = column => number(Math.round(last.reduce((sum, second) => sum + second[column], 0) / last.length));
  at("rate").textContent = `${rate(0)} B/s sent, ${rate(1)} B/s received in the last 10 s; the highest is ${number(highest)} B/s`;
}

function showParticipants(participants, now_ms) {
  at("participants").replaceChildren(...participants.map(one => row(
    made("td", "name", one.own ? `${one.name} (this one)` : one.name),
    made("td", "number", one.heard_ms ? `${Math.max(0, Math.round((now_ms - one.heard_ms) / 1000))} s ago` : ""),
    one.messages, one.syncs, one.bytes, one.acknowledged,
  )));
}

function kindOf(message, cell) {
  if (cell !== ".") return CELLS[cell];
  if (message.own) return message.state === "failed" ? "missing" : "waits";
  return message.state === "whole" ? "unneeded" : "missing";
}

const rows = new Map();

function showMessages(messages) {
  for (const known of rows.keys()) if (!messages.some(one => one.number === known)) rows.delete(known);
  at("messages").replaceChildren(...messages.map(message => {
    const signature = JSON.stringify(message);
    const known = rows.get(message.number);
    if (known?.signature === signature) return known.line;
    const cells = made("td", "cells");
    for (const cell of message.cells) cells.append(made("i", `cell ${kindOf(message, cell)}`));
    const beyond = (message.segments ?? 0) - message.cells.length;
    if (beyond > 0) cells.append(` and ${number(beyond)} more`);
    const who = message.who.length ? ` by ${message.who.join(", ")}` : "";
    const line = row(message.number, made("td", "name", message.sender), cells, made("td", "state", message.state + who));
    rows.set(message.number, { signature, line });
    return line;
  }));
}

function showGraph(messages) {
  const shown = messages.slice(0, GRAPH_MESSAGES).reverse();
  const lanes = [...new Set(shown.map(one => one.sender))].sort();
  const height = 36 * Math.max(1, lanes.length);
  const left = 140, step = (940 - left) / Math.max(1, shown.length);
  const graph = at("graph");
  graph.setAttribute("viewBox", `0 0 960 ${height}`);
  const places = new Map(shown.map((one, x) => [one.number, [left + (x + .5) * step, 36 * lanes.indexOf(one.sender) + 18]]));
  const parts = lanes.flatMap((name, lane) => {
    const label = drawn("text", { x: 0, y: 36 * lane + 22 });
    label.textContent = name.length > 18 ? `${name.slice(0, 18)}...` : name;
    return [drawn("line", { x1: left, x2: 955, y1: 36 * lane + 18, y2: 36 * lane + 18 }, "lane"), label];
  });
  for (const one of shown) for (const cause of one.follows) if (places.has(cause)) {
    const [[x1, y1], [x2, y2]] = [places.get(one.number), places.get(cause)];
    parts.push(drawn("line", { x1, y1, x2, y2, "data-follows": `${one.number} ${cause}` }));
  }
  for (const one of shown) {
    const [cx, cy] = places.get(one.number);
    const kind = [one.own ? "own" : one.state === "whole" ? "whole" : "partial", one.unseen ? "unseen" : ""].join(" ");
    const dot = drawn("circle", { cx, cy, r: 7 }, kind);
    const title = drawn("title", {});
    title.textContent = `${one.number} of ${one.sender}: ${one.state}`;
    dot.append(title);
    parts.push(dot);
  }
  graph.replaceChildren(...parts);
}

function show(told) {
  document.title = `${told.channel} - shardwire monitor`;
  at("channel").textContent = told.channel;
  at("topic").textContent = told.topic;
  at("sender").textContent = told.sender;
  at("trouble").textContent = told.trouble;
  at("link").textContent = told.state;
  at("link").className = told.state === "started" ? "live" : "";
  showFigures(told);
  showQuota(told.quota, told.now_ms);
  showThroughput(told.seconds);
  showParticipants(told.participants, told.now_ms);
  showMessages(told.messages);
  showGraph(told.messages);
}

const events = new EventSource("events");
events.onmessage = event => show(JSON.parse(event.data));
events.onerror = () => {
  at("link").textContent = "not connected";
  at("link").className = "";
};
