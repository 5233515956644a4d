// SPDX-License-Identifier: Apache-2.0
// Opens traces with Perfetto's own trace processor, as ui.perfetto.dev runs it: its WebAssembly and the loader beside it, from the folder
// of a Perfetto UI. Speaks the protocol of protos/perfetto/trace_processor/trace_processor.proto.
// usage: node query.js FOLDER TRACE SQL...    prints the rows of each query as a line of JSON: [[value, ...], ...]; exit code 1 after an error
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3;   // TraceProcessorMethod
const SLICE = 8 << 20;                       // of a trace in one request; the loader takes 32 MiB
const CELLS = {null: 1, whole: 2, float: 3, text: 4};

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push(value % 128 + 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

function readVarint(buffer, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = buffer[at.i++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return BigInt.asIntN(64, value);
  }
}

/** [field, value] of a message; value: a number or a buffer. */
function* fields(buffer) {
  for (const at = {i: 0}; at.i < buffer.length;) {
    const key = Number(readVarint(buffer, at)), kind = key & 7;
    if (kind === 0) {
      yield [key >> 3, readVarint(buffer, at)];
      continue;
    }
    const length = kind === 2 ? Number(readVarint(buffer, at)) : kind === 1 ? 8 : 4;
    yield [key >> 3, buffer.subarray(at.i, at.i += length)];
  }
}
const field = (buffer, wanted) => [...fields(buffer)].filter(([name]) => name === wanted).map(([, value]) => value);

function packed(buffer) {
  const values = [];
  for (const at = {i: 0}; at.i < buffer.length;) values.push(Number(readVarint(buffer, at)));
  return values;
}

/** The loader in a scope that looks to it like a worker of a browser. */
function load() {
  const scope = {console: {log() {}, warn() {}, error: console.error}, TextDecoder, TextEncoder, performance, setTimeout, crypto: globalThis.crypto,
                 location: {href: "file:///engine_bundle.js"}};
  vm.createContext(scope);
  scope.self = scope;
  scope.WorkerGlobalScope = function () {};
  scope.XMLHttpRequest = class {
    open(_, url) { this.url = url; }
    send() {
      this.status = 200;
      this.response = new Uint8Array(fs.readFileSync(path.join(folder, path.basename(this.url)))).buffer;
    }
  };
  vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), scope);
  return scope;
}

async function main() {
  const scope = load();
  const port = {answers: [], postMessage(data) { this.answers.push(Buffer.from(data)); }};
  scope.onmessage({data: port});
  const Octets = vm.runInContext("Uint8Array", scope);
  await new Promise((done) => setTimeout(done, 100));
  let sequence = 0;
  const call = (method, ...args) => {
    const rpc = Buffer.concat([number(1, sequence++), number(2, method), ...args]);
    port.onmessage({data: new Octets(bytes(1, rpc))});
    return port.answers.splice(0).flatMap((answer) => field(answer, 1));
  };
  const text = fs.readFileSync(trace);
  for (let at = 0; at < text.length; at += SLICE) {
    for (const answer of call(APPEND, bytes(101, text.subarray(at, at + SLICE)))) {
      for (const result of field(answer, 201)) for (const error of field(result, 2)) throw new Error(`${trace}: ${error}`);
    }
  }
  call(FINALIZE);
  for (const sql of queries) {
    const names = [], cells = [];
    for (const answer of call(QUERY, bytes(103, bytes(1, Buffer.from(sql))))) {
      for (const result of field(answer, 203)) {
        for (const error of field(result, 2)) throw new Error(`${sql}: ${error}`);
        names.push(...field(result, 1).map(String));
        for (const batch of field(result, 3)) {
          const kinds = field(batch, 1).flatMap(packed), whole = field(batch, 2).flatMap(packed);
          const floats = field(batch, 3).flatMap((all) => Array.from({length: all.length / 8}, (_, i) => all.readDoubleLE(8 * i)));
          const texts = field(batch, 5).map(String).join("").split("\0");
          for (const kind of kinds)
            cells.push(kind === CELLS.whole ? whole.shift() : kind === CELLS.float ? floats.shift() : kind === CELLS.text ? texts.shift() : null);
        }
      }
    }
    const rows = [];
    while (cells.length > 0) rows.push(cells.splice(0, names.length));
    console.log(JSON.stringify(rows));
  }
}

main().catch((error) => {
  console.error(error.message || error);
  process.exit(1);
});
