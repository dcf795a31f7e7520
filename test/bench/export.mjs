// Making and verifying an export of everything, each in a process of its own, so that its memory is its own.
import { spawnSync } from 'node:child_process';
import {
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { table } from './measure.mjs';

const ENTRIES = 100_000;
const CALLS = 20;
const SELF = fileURLToPath(import.meta.url);

/** `scale` 10 is a million entries. */
export async function run({ scale }) {
  const folder = mkdtempSync(join(tmpdir(), 'belay-bench-export-'));
  try {
    const made = step('make', folder, Math.round(ENTRIES * scale));
    const rows = ['build', 'verify'].map((name) => {
      const { ms, cpu, rss } = step(name, folder);
      return {
        step: name,
        entries: made.entries,
        sessions: made.sessions,
        MB: (statSync(join(folder, name === 'build' ? 'entries' : 'export.zip')).size / 1e6).toFixed(0),
        seconds: (ms / 1_000).toFixed(1),
        'CPU seconds': (cpu / 1_000).toFixed(1),
        'entries/s': Math.round(made.entries / (ms / 1_000)),
        'entries/CPU s': Math.round(made.entries / (cpu / 1_000)),
        'RSS MB': Math.round(rss / 1e6),
      };
    });
    console.log(table(rows));
    return rows;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function step(...args) {
  // The log is made in memory, and isn't measured.
  const heap = args[0] === 'make' ? ['--max-old-space-size=12000'] : [];
  const { status, stdout } = spawnSync(
    process.execPath,
    [...process.execArgv, ...heap, SELF, ...args.map(String)],
    {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  if (status !== 0) throw new Error(`${args[0]} ended with ${status}`);
  return JSON.parse(stdout);
}

const steps = {
  /** A log of sessions of two sinks and a verifier, each judged: entries and receipts to files, length before bytes. */
  async make(folder, entries) {
    const { ExportCast, ExportLog } = await import('@belay/testkit/export');
    const world = await ExportLog.create();
    const cast = new ExportCast(world);
    let sessions = 0;
    while (world.size < entries) {
      const name = `run-${++sessions}`;
      cast.session(name, { calls: CALLS });
      world.judge(name);
    }
    write(join(folder, 'entries'), world.log.bytes);
    write(
      join(folder, 'receipts'),
      world.receipts.map(({ bytes }) => bytes),
    );
    const { log, project, asOf } = await world.source().head();
    const x5c = log.x5c.map((der) => der.toString('base64'));
    writeFileSync(join(folder, 'head.json'), JSON.stringify({ log: { ...log, x5c }, project, asOf }));
    return { entries: world.size, sessions };
  },

  async build(folder) {
    const { buildExport, thriftily } = await import('@belay/export');
    const { renderPdf } = await import('@belay/export/pdf');
    const { ed25519Signer } = await import('@belay/note');
    const { signPayload } = await import('@belay/receipt');
    const head = JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8'));
    head.log.x5c = head.log.x5c.map((der) => Buffer.from(der, 'base64'));
    const signer = ed25519Signer(head.log.origin, Buffer.alloc(32, 0x0b));
    const source = {
      head: async () => head,
      selection: async () => {
        throw new Error('everything is asked for');
      },
      entries: () => batches(join(folder, 'entries')),
      nodes: async () => [],
      receipts: async function* () {
        for (const batch of batches(join(folder, 'receipts'))) yield* batch;
      },
      sign: async (payload) => signPayload(payload, signer),
    };
    const start = performance.now();
    await thriftily(() => buildExport(source, {}, join(folder, 'export.zip'), { pdf: renderPdf }));
    return used(start);
  },

  async verify(folder) {
    const { thriftily, verifyExport } = await import('@belay/export');
    const { log } = JSON.parse(readFileSync(join(folder, 'head.json'), 'utf8'));
    const start = performance.now();
    const pins = { key: log.vkey };
    const { report } = await thriftily(() => verifyExport(join(folder, 'export.zip'), pins));
    if (report.verdict !== 'VALID') throw new Error(JSON.stringify(report));
    return used(start);
  },
};

/** Wall and processor time, milliseconds, and the most memory of the process, bytes. */
function used(start) {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  return { ms: performance.now() - start, cpu: (userCPUTime + systemCPUTime) / 1_000, rss: maxRSS * 1_024 };
}

function write(path, all) {
  const file = openSync(path, 'w');
  const length = Buffer.alloc(4);
  let block = [];
  let size = 0;
  const flush = () => {
    writeSync(file, Buffer.concat(block));
    [block, size] = [[], 0];
  };
  for (const bytes of all) {
    length.writeUInt32BE(bytes.length);
    block.push(Buffer.from(length), bytes);
    size += bytes.length;
    if (size > 1 << 20) flush();
  }
  flush();
  closeSync(file);
}

function* batches(path) {
  const file = openSync(path, 'r');
  let rest = Buffer.alloc(0);
  for (;;) {
    const block = Buffer.allocUnsafe(1 << 19);
    const read = readSync(file, block);
    if (read === 0) break;
    const bytes = Buffer.concat([rest, block.subarray(0, read)]);
    const batch = [];
    let at = 0;
    while (at + 4 <= bytes.length && at + 4 + bytes.readUInt32BE(at) <= bytes.length) {
      const end = at + 4 + bytes.readUInt32BE(at);
      batch.push(bytes.subarray(at + 4, end));
      at = end;
    }
    rest = bytes.subarray(at);
    yield batch;
  }
  closeSync(file);
}

if (process.argv[1] === SELF) {
  const [name, folder, entries] = process.argv.slice(2);
  console.log(JSON.stringify(await steps[name](folder, Number(entries))));
}
