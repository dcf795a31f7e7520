// What comes back, and what follows: restore of a tree beside `cp -a` of it (the reference system's way), a scratch
// brought from turn to turn, and gc. Runs of both ways take turns. Nothing is deleted before the end: ext4 without a
// journal looks a long time for room among inodes that were given back in the last half minute.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Capturer, gc, restore, Scratch, Store } from '@belay/snapshot';
import { median, quantile, table } from './measure.mjs';

const PER_FOLDER = 25;
const ms = (value) => value.toFixed(value < 10 ? 2 : 0);

function plant(root, files) {
  for (let folder = 0; folder * PER_FOLDER < files; folder++) {
    const dir = join(root, `d${folder}`);
    mkdirSync(dir, { recursive: true });
    for (let i = 0; i < PER_FOLDER && folder * PER_FOLDER + i < files; i++) {
      const n = folder * PER_FOLDER + i;
      writeFileSync(join(dir, `f${i}`), `${n} `.repeat(1 + ((n * 7919) % 900)));
    }
  }
}

/** Milliseconds by the wall clock, and of processor time of this process: the one that a busy machine does not change. */
async function timed(act) {
  const [started, cpu] = [performance.now(), process.cpuUsage()];
  const result = await act();
  const { user, system } = process.cpuUsage(cpu);
  return { took: { wall: performance.now() - started, cpu: (user + system) / 1000 }, result };
}

async function sizeOf(files, { repeats, turns }) {
  const base = mkdtempSync(join(tmpdir(), 'belay-bench-'));
  try {
    const [work, dir] = [join(base, 'work'), join(base, 'store')];
    plant(work, files);
    const capturer = Capturer.open({ store: Store.open(dir), roots: [work] });
    const first = capturer.capture().digest;
    const folders = Math.ceil(files / PER_FOLDER);
    const states = [first];
    for (let turn = 0; turn < turns; turn++) {
      for (let i = 0; i < 3; i++)
        writeFileSync(
          join(work, `d${(turn * 7 + i * 31) % folders}`, `f${i}`),
          `turn ${turn} `.repeat(200 + i),
        );
      if (turn % 4 === 0) writeFileSync(join(work, `d${turn % folders}`, `new${turn}`), 'new');
      states.push(capturer.capture().digest);
    }
    capturer.close();

    const store = Store.open(dir);
    const [restored, copied] = [[], []];
    for (let i = 0; i < repeats; i++) {
      restored.push((await timed(() => restore(store, first, join(base, `restored${i}`)))).took);
      copied.push((await timed(() => spawnSync('cp', ['-a', work, join(base, `copied${i}`)]))).took);
    }

    const { took: opened, result: scratch } = await timed(() =>
      Scratch.open(store, first, join(base, 'scratch')),
    );
    const [advanced, looked, reset] = [[], [], []];
    const root = scratch.roots[0].at.toString();
    for (const state of states.slice(1)) {
      // Six files are written by the tool; one turn on, they are put right together with what was recorded.
      for (let i = 0; i < 6; i++)
        writeFileSync(join(root, `d${(i * 13) % folders}`, `f${i + 3}`), `tool ${state}`);
      looked.push((await timed(() => scratch.look())).took);
      advanced.push((await timed(() => scratch.advance(state))).took);
      writeFileSync(join(root, 'd0', 'f9'), `stray ${state}`);
      reset.push((await timed(() => scratch.reset())).took);
    }
    const off = scratch.drift().length;
    scratch.close();
    store.close();

    // As if the session had ended long ago: this process is its writer, so its files would stay.
    const copy = join(base, 'gc');
    spawnSync('cp', ['-a', dir, copy]);
    const { took: dry } = await timed(() => gc(copy, { keep: [states.at(-1)], dryRun: true }));
    return { files, restored, copied, opened, advanced, looked, reset, off, dry };
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}

export async function run({ scale }) {
  console.log(`file system of ${tmpdir()}: 0x${statfsSync(tmpdir()).type.toString(16)}`);
  const figures = [];
  for (const [files, repeats] of [
    [400, 7],
    [20_000, 5],
    [100_000, 2],
  ]) {
    if (files * scale < 400) continue;
    figures.push(await sizeOf(Math.round(files * scale), { repeats, turns: 200 }));
  }
  console.log(
    table(
      figures.flatMap(({ files, restored, copied, opened, advanced, looked, reset, off, dry }) => [
        row(files, 'restore, checked', restored),
        { ...row(files, 'cp -a (unchecked)', copied), 'cpu p50': '-' },
        row(files, 'scratch: open', [opened]),
        row(files, 'scratch: look, 6 files written', looked),
        row(files, `scratch: advance a turn (3 recorded + 6 strays; left over: ${off})`, advanced),
        row(files, 'scratch: reset, 1 file', reset),
        row(files, 'gc, 200 turns: planning', [dry]),
      ]),
    ),
  );
  return figures;
}

function row(files, what, times) {
  const wall = times.map((time) => time.wall);
  return {
    files,
    what: what.padEnd(68),
    'ms p50': ms(median(wall)),
    p95: ms(quantile(wall, 0.95)),
    max: ms(Math.max(...wall)),
    'cpu p50': ms(median(times.map((time) => time.cpu))),
  };
}
