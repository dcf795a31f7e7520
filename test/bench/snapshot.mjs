// What a state of a workspace costs: the first, the next after nothing, one and twenty files changed, after a restart,
// and what is kept of each. Beside it the two other ways to have a state: a full copy (`cp -a`, what the reference system
// does before every call), and looking at every file (`--method walk`, what is done where the kernel tells nothing).
// Trees of 400, 20,000 and 100,000 files of 4 KiB (2 KiB the largest), 25 to a directory.
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { median, quantile, table } from './measure.mjs';

const TREES = [
  { files: 400, bytes: 4096 },
  { files: 20_000, bytes: 4096 },
  { files: 100_000, bytes: 2048 },
];

// A process of its own for each tree, so that its memory is its own: answers each line with one.
const FOLLOWER = fileURLToPath(new URL('snapshot-follower.mjs', import.meta.url));

class Follower {
  constructor(root, store, options = {}) {
    this.process = spawn(process.execPath, [FOLLOWER, root, store, JSON.stringify(options)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.rest = '';
    this.waiting = [];
    this.process.stdout.setEncoding('utf8').on('data', (text) => {
      this.rest += text;
      for (let end; (end = this.rest.indexOf('\n')) >= 0; this.rest = this.rest.slice(end + 1))
        this.waiting.shift()?.(JSON.parse(this.rest.slice(0, end)));
    });
    this.ready = new Promise((ready) => this.waiting.push(ready));
  }

  ask(what) {
    return new Promise((answer) => {
      this.waiting.push(answer);
      this.process.stdin.write(`${what}\n`);
    });
  }

  async end() {
    const exited = new Promise((exit) => this.process.once('exit', exit));
    await this.ask('close');
    this.process.stdin.end();
    await exited;
  }
}

const pathOf = (root, n) => join(root, `d${Math.floor(n / 25)}`, `f${n}`);

function makeTree(root, { files, bytes }) {
  const content = Buffer.alloc(bytes, 'content of a file ');
  for (let n = 0; n < files; n++) {
    if (n % 25 === 0) mkdirSync(join(root, `d${n / 25}`), { recursive: true });
    content.writeUInt32LE(n);
    writeFileSync(pathOf(root, n), content);
  }
}

let written = 0;
/** Other bytes of the same length, as an editor's save would leave them. */
function change(root, { files, bytes }, count) {
  const content = Buffer.alloc(bytes, 'changed ');
  for (let i = 0; i < count; i++) {
    content.writeUInt32LE(++written, 8);
    const fd = openSync(pathOf(root, (written * 7919) % files), 'w');
    writeSync(fd, content);
    closeSync(fd);
  }
}

export async function run({ scale }) {
  const base = mkdtempSync(join(tmpdir(), 'belay-bench-snapshot-'));
  const figures = {};
  const rows = [];
  const ms = (value) => value.toFixed(value < 10 ? 2 : 0);
  try {
    for (const tree of TREES) {
      const sized = { ...tree, files: Math.max(100, Math.round(tree.files * Math.min(scale, 1))) };
      const root = join(base, `w${tree.files}`);
      const store = join(base, `s${tree.files}`);
      mkdirSync(root);
      makeTree(root, sized);
      const server = spawn(process.execPath, ['-e', 'process.stdin.resume()'], {
        stdio: ['pipe', 'ignore', 'inherit'],
      });
      const figure = { files: sized.files, megabytes: (sized.files * sized.bytes) / 1e6 };

      let follower = new Follower(root, store);
      await follower.ready;
      figure.first = (await follower.ask('capture')).ms;
      figure.rss = (await follower.ask('memory')).rss;
      const walker = new Follower(root, `${store}-walk`, { method: 'walk' });
      await walker.ready;
      await walker.ask('capture');
      const turns = Math.round(100 * Math.max(scale, 0.2));
      const [none, one, twenty, held, copies, walks, thread] = [[], [], [], [], [], [], []];
      let before = await follower.ask('written');
      const kept = { journal: 0, pack: 0, turns: 0 };
      // Each in turn, so that all see the same machine.
      for (let turn = 0; turn < turns; turn++) {
        none.push((await follower.ask('capture')).ms);
        change(root, sized, 1);
        const started = performance.now();
        one.push((await follower.ask('capture')).ms);
        thread.push(performance.now() - started);
        const after = await follower.ask('written');
        kept.journal += after.journal - before.journal;
        kept.pack += after.pack - before.pack;
        kept.turns++;
        change(root, sized, 20);
        twenty.push((await follower.ask('capture')).ms);
        before = await follower.ask('written');
        held.push((await follower.ask(`capture ${server.pid}`)).ms);
        if (turn % 25 === 0) walks.push((await walker.ask('capture')).ms);
        if (turn < (sized.files > 50_000 ? 1 : 3)) {
          const copy = join(base, 'copy');
          const begun = performance.now();
          execFileSync('cp', ['-a', root, copy]);
          copies.push(performance.now() - begun);
          rmSync(copy, { recursive: true });
        }
      }
      figure.verify = (await follower.ask('verify')).ms;
      await follower.end();
      await walker.end();
      server.kill();
      const warm = [];
      for (let i = 0; i < 3; i++) {
        follower = new Follower(root, store);
        const { open } = await follower.ready;
        warm.push(open + (await follower.ask('capture')).ms);
        figure.warmRss = (await follower.ask('memory')).rss;
        await follower.end();
      }
      Object.assign(figure, {
        warm: median(warm),
        none: { median: median(none), p95: quantile(none, 0.95) },
        one: { median: median(one), p95: quantile(one, 0.95) },
        twenty: { median: median(twenty), p95: quantile(twenty, 0.95) },
        perProcess: median(held) - median(none),
        roundTrip: median(thread),
        copy: median(copies),
        walk: median(walks),
        journalPerTurn: kept.journal / kept.turns,
        packPerTurn: kept.pack / kept.turns,
      });
      figures[tree.files] = figure;
      const both = (pair) => `${ms(pair.median)}/${ms(pair.p95)}`;
      rows.push({
        files: sized.files,
        first: ms(figure.first),
        restart: ms(figure.warm),
        '0 changed': both(figure.none),
        '1 changed': both(figure.one),
        '20 changed': both(figure.twenty),
        '+1 process': ms(figure.perProcess),
        verify: ms(figure.verify),
        walk: ms(figure.walk),
        'cp -a': ms(figure.copy),
        'journal+pack': `${Math.round(figure.journalPerTurn)}+${Math.round(figure.packPerTurn)}`,
        'RSS MB': Math.round(figure.rss),
      });
      for (const each of [root, store, `${store}-walk`]) rmSync(each, { recursive: true });
    }
    console.log(table(rows));
    console.log(
      'milliseconds, median/p95; journal+pack: bytes kept of one changed file; RSS: after the first capture',
    );
    return figures;
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}
