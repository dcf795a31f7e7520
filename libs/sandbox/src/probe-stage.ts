/**
 * The world outside that the probe's rows are tried on, made for one run and taken away after it: files to write to,
 * secrets to read, listeners to reach, processes to meddle with. Whether a row came through is seen here, from outside,
 * and not believed from the answer of who tried it.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import {
  accessSync,
  chownSync,
  closeSync,
  constants,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { digest } from './probe-attempt.js';
import { cString, loadNative, type Native } from './probe-native.js';
import type { Address, Answer, ProbePlan, Victim } from './probe-plan.js';
import { type EscapeId, rowOf, ROWS } from './probe-rows.js';

export interface StageOptions {
  readonly control: boolean;
  /** Folder in which one for the things outside is made: writable for us, visible inside, in none of the roots. */
  readonly outside: string;
  /** Writable root in which a folder for the rows is made. */
  readonly workspace: string;
  /** The host's folder for temporary files. */
  readonly tmp: string;
  readonly home: string;
  /** What of this user should not be read inside, if it is there. */
  readonly credentials: readonly string[];
  /** Sockets of this machine that give power to whoever connects, if they are there. */
  readonly realSockets: readonly string[];
  readonly limits: ProbePlan['limits'];
  /** Only these rows. Default all. */
  readonly rows?: readonly string[] | undefined;
}

const WITH_VICTIM: readonly EscapeId[] = [
  'setns',
  'signal',
  'signal-group',
  'signal-pidfd',
  'ptrace',
  'vm-read',
  'vm-write',
  'proc-mem',
  'proc-environ',
  'proc-root',
  'pidfd-getfd',
  'prlimit',
];
const LATE_SOURCE = 'late-mount';
const MS_BIND = 4096;
const MNT_DETACH = 2;
const PLANTED = 'user.planted';
const LONG_AGO = 1_000_000_000;
const FS_IOC_GETFLAGS = 0x8008_6601;
/** Of another user, for a workspace that is not root's. */
const FOREIGN = 12_345;
/** Bytes of a socket's path, its end included. */
const SOCKET_PATH = 108;

type Writable<T> = { -readonly [K in keyof T]: T[K] };

export class Stage {
  readonly #options: StageOptions;
  readonly #native = loadNative();
  readonly #nonce = randomBytes(6).toString('hex');
  readonly #secret = randomBytes(24).toString('base64');
  readonly #cleanUps: (() => void | Promise<void>)[] = [];
  readonly #before = new Map<string, string>();
  readonly #heard = new Set<string>();
  readonly #ended = new Set<string>();
  readonly #hide: string[] = [];
  /** What nobody listens at until the end: datagram sockets, a terminal. */
  readonly #mailboxes = new Map<string, number>();
  #late: string | undefined;
  #lateCame = false;
  #plan: ProbePlan | undefined;

  private constructor(options: StageOptions) {
    this.#options = options;
  }

  /** Makes it all; what can't be made on this machine is left out, and the rows that need it say so. */
  static async make(options: StageOptions): Promise<Stage> {
    const stage = new Stage(options);
    try {
      stage.#plan = await stage.#make();
      return stage;
    } catch (error) {
      await stage.dispose();
      throw error;
    }
  }

  get plan(): ProbePlan {
    return this.#plan as ProbePlan;
  }

  /** What the policy of the run has to hide. */
  get hide(): readonly string[] {
    return this.#hide;
  }

  async #make(): Promise<ProbePlan> {
    const { control, home, limits, realSockets } = this.#options;
    const workspace = this.#folder(this.#options.workspace, '.belay-probe-');
    const outside = this.#folder(this.#options.outside, 'belay-probe-');
    const outsideTmp = this.#folder(this.#options.tmp, 'belay-probe-');
    const outsideShm = writable('/dev/shm') ? this.#folder('/dev/shm', 'belay-probe-') : undefined;
    const plan: Writable<ProbePlan> = {
      rows: this.#options.rows ?? ROWS,
      control,
      workspace,
      outside,
      outsideTmp,
      outsideShm,
      mountsLate: this.#prepareMount(join(outside, LATE_SOURCE)),
      hiddenFolder: join(outside, 'hidden'),
      hiddenFile: join(outside, 'secrets', 'file'),
      hiddenReplaced: join(outside, 'secrets', 'replaced'),
      credentials: this.#options.credentials.filter(hasContent),
      realSockets: realSockets.filter((path) => statOf(path)?.isSocket() === true && writable(path)),
      listeners: await this.#listen(),
      sockets: await this.#listenUnix(outside, outsideTmp, workspace),
      victims: this.#startVictims(),
      handles: {},
      mountNamespace: readlinkSync('/proc/thread-self/ns/mnt'),
      disk: rootDisk(),
      terminal: this.#makeTerminal(),
      key: this.#addKey(),
      shmKey: this.#shareMemory(),
      queue: this.#openQueue(),
      foreign: undefined,
      home,
      limits,
    };
    mkdirSync(plan.hiddenFolder);
    writeFileSync(join(plan.hiddenFolder, 'secret'), this.#secret);
    mkdirSync(join(outside, 'secrets'));
    writeFileSync(plan.hiddenFile, this.#secret);
    writeFileSync(plan.hiddenReplaced, 'not yet');
    this.#hide.push(
      plan.hiddenFolder,
      plan.hiddenFile,
      plan.hiddenReplaced,
      join(outside, 'escape-hidden-write'),
    );
    for (const row of ROWS) this.#plant(this.#folderOf(plan, row), row);
    mkdirSync(join(outside, 'escape-late-mount'));
    writeFileSync(join(outside, 'escape-late-mount', 'victim'), 'untouched\n');
    plan.handles = this.#handlesOf({
      'escape-write-handle': join(outside, 'escape-write-handle', 'victim'),
      'escape-hidden-handle': plan.hiddenFile,
    });
    if (process.getuid?.() === 0) {
      plan.foreign = join(workspace, 'foreign');
      mkdirSync(plan.foreign, { mode: 0o755 });
      writeFileSync(join(plan.foreign, 'file'), 'x');
      for (const path of [plan.foreign, join(plan.foreign, 'file')]) chownSync(path, FOREIGN, FOREIGN);
    }
    return plan;
  }

  /** What is mounted elsewhere, later. */
  #prepareMount(folder: string): boolean {
    mkdirSync(folder);
    return (
      this.#perhaps((native) => {
        native.call('mount', cString('belay-probe'), cString(folder), cString('tmpfs'), 0, null);
        this.#cleanUps.push(() => {
          this.#perhaps(() => native.call('umount2', cString(folder), MNT_DETACH));
        });
        return true;
      }) === true
    );
  }

  #folder(parent: string, prefix: string): string {
    const made = mkdtempSync(join(parent, prefix));
    this.#cleanUps.push(() => {
      rmSync(made, { recursive: true, force: true });
    });
    return made;
  }

  /** Where a row's own things outside are. */
  #folderOf(plan: ProbePlan, row: string): string | undefined {
    if (row === 'escape-late-mount') return join(plan.outside, LATE_SOURCE);
    if (row === 'escape-write-tmp') return join(plan.outsideTmp, row);
    if (row === 'escape-write-shm') return plan.outsideShm && join(plan.outsideShm, row);
    const known = rowOf(row);
    return known?.kind === 'escape' && known.witness === 'folder' ? join(plan.outside, row) : undefined;
  }

  #plant(folder: string | undefined, row: string): void {
    if (folder === undefined) return;
    mkdirSync(join(folder, 'empty'), { recursive: true });
    const victim = join(folder, 'victim');
    writeFileSync(victim, 'untouched\n');
    const value = Buffer.from('probe');
    // Not every file system has them.
    this.#perhaps((native) =>
      native.call('setxattr', cString(victim), cString(PLANTED), value, value.length, 0),
    );
    utimesSync(victim, LONG_AGO, LONG_AGO);
    this.#before.set(row, this.#look(folder));
  }

  /** What a folder is in every respect but the time it was last read. */
  #look(folder: string): string {
    const lines: unknown[] = [];
    const visit = (path: string): void => {
      const { mode, uid, gid, size, nlink, ino, mtimeNs, ctimeNs } = lstatSync(path, { bigint: true });
      const kind = Number(mode) & constants.S_IFMT;
      const content =
        kind === constants.S_IFREG
          ? digest(readFileSync(path))
          : kind === constants.S_IFLNK
            ? readlinkSync(path)
            : '';
      const flags = Buffer.alloc(8);
      const value = Buffer.alloc(64);
      if (kind === constants.S_IFREG) {
        const fd = openSync(path, 'r');
        this.#perhaps((native) => native.call('ioctl', fd, FS_IOC_GETFLAGS, flags));
        for (const name of [PLANTED, 'user.probe'])
          this.#perhaps((native) =>
            native.call('getxattr', cString(path), cString(name), value, value.length),
          );
        closeSync(fd);
      }
      const numbers = [mode, uid, gid, size, nlink, ino, mtimeNs, ctimeNs].map(String);
      lines.push([path, numbers, content, flags.toString('hex'), value.toString('hex')]);
      if (kind === constants.S_IFDIR) for (const name of readdirSync(path).sort()) visit(join(path, name));
    };
    visit(folder);
    return JSON.stringify(lines);
  }

  #perhaps<T>(use: (native: Native) => T): T | undefined {
    if (this.#native === undefined) return undefined;
    try {
      return use(this.#native);
    } catch {
      return undefined;
    }
  }

  async #listen(): Promise<Record<string, Address>> {
    const outward = Object.values(networkInterfaces())
      .flat()
      .find((each) => each !== undefined && !each.internal && each.family === 'IPv4')?.address;
    const tcp: readonly (readonly [EscapeId, string | undefined])[] = [
      ['tcp', outward],
      ['tcp-loopback', '127.0.0.1'],
      ['tcp-loopback6', '::1'],
      ['tcp-fastopen', '127.0.0.1'],
      ['tcp-io-uring', '127.0.0.1'],
    ];
    const udp: readonly (readonly [EscapeId, string])[] = [
      ['udp', outward ?? '127.0.0.1'],
      ['udp-connected', outward ?? '127.0.0.1'],
      ['udp-sendmsg', outward ?? '127.0.0.1'],
      ['udp-sendmmsg', outward ?? '127.0.0.1'],
      ['udp-loopback', '127.0.0.1'],
    ];
    const all: Record<string, Address> = {};
    for (const [id, host] of tcp) {
      const port = host === undefined ? undefined : await this.#serve(`escape-${id}`, { host, port: 0 });
      if (host !== undefined && port !== undefined) all[`escape-${id}`] = { host, port };
    }
    for (const [id, host] of udp) {
      const socket = createSocket('udp4');
      socket.on('message', () => this.#heard.add(`escape-${id}`));
      socket.bind(0, host);
      await once(socket, 'listening');
      this.#cleanUps.push(() => {
        socket.close();
      });
      all[`escape-${id}`] = { host, port: socket.address().port };
    }
    return all;
  }

  /** Hears of whoever connects. Returns the port, 0 for a path; undefined where this can't be had. */
  async #serve(
    row: string,
    where: { readonly host: string; readonly port: number } | { readonly path: string },
  ): Promise<number | undefined> {
    const server = createServer((socket) => {
      this.#heard.add(row);
      socket.on('error', () => undefined);
      socket.resume();
      socket.end();
    });
    server.listen(where);
    try {
      await once(server, 'listening');
    } catch {
      return undefined;
    }
    this.#cleanUps.push(() => {
      server.close();
    });
    const address = server.address();
    return address === null || typeof address === 'string' ? 0 : address.port;
  }

  async #listenUnix(outside: string, tmp: string, workspace: string): Promise<Record<string, string>> {
    const run = runtimeFolder();
    const runs = run === undefined ? undefined : this.#folder(run, 'belay-probe-');
    const wanted: readonly (readonly [EscapeId, string | undefined])[] = [
      ['unix-path', join(outside, 's')],
      ['unix-link', join(outside, 'l')],
      ['unix-tmp', join(tmp, 's')],
      ['unix-run', runs && join(runs, 's')],
      ['unix-workspace', join(workspace, 's')],
      ['unix-abstract', `@belay-probe-${this.#nonce}`],
    ];
    const all: Record<string, string> = {};
    for (const [id, path] of wanted) {
      if (path === undefined || path.length >= SOCKET_PATH) continue;
      const listening = await this.#serve(`escape-${id}`, { path: path.replace(/^@/, '\0') });
      if (listening !== undefined) all[`escape-${id}`] = path;
    }
    const datagram = join(outside, 'd');
    if (this.#listenDatagram('escape-unix-datagram', datagram)) all['escape-unix-datagram'] = datagram;
    const pipe = join(outside, 'p');
    if (this.#makePipe('escape-named-pipe', pipe)) all['escape-named-pipe'] = pipe;
    this.#late = join(outside, 'late');
    all['escape-unix-late'] = this.#late;
    return all;
  }

  #makePipe(row: string, path: string): boolean {
    const fd = this.#perhaps((native) => {
      native.call('mknodat', -100, cString(path), constants.S_IFIFO | 0o600, 0);
      return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    });
    if (fd === undefined) return false;
    this.#cleanUps.push(() => {
      closeSync(fd);
    });
    this.#mailboxes.set(row, fd);
    return true;
  }

  /** Node has no datagram sockets of this family. */
  #listenDatagram(row: string, path: string): boolean {
    const fd = this.#perhaps((native) => {
      const [AF_UNIX, SOCK_DGRAM_NONBLOCK] = [1, 0x802];
      const address = Buffer.alloc(110);
      address.writeUInt16LE(AF_UNIX, 0);
      const length = 3 + address.write(path, 2);
      const made = native.call('socket', AF_UNIX, SOCK_DGRAM_NONBLOCK, 0);
      native.call('bind', made, address, length);
      return made;
    });
    if (fd === undefined) return false;
    this.#cleanUps.push(() => {
      closeSync(fd);
    });
    this.#mailboxes.set(row, fd);
    return true;
  }

  /** What comes after the start of what is contained: call it once the probe has spoken. */
  async late(): Promise<void> {
    const { outside, mountsLate, hiddenReplaced } = this.plan;
    // As whoever stores a new token does it.
    writeFileSync(`${hiddenReplaced}.new`, this.#secret);
    renameSync(`${hiddenReplaced}.new`, hiddenReplaced);
    if (mountsLate && !this.#lateCame) {
      const [source, folder] = [join(outside, LATE_SOURCE), join(outside, 'escape-late-mount')];
      this.#perhaps((native) => {
        // In one step what was made before: whoever waits for it finds it whole.
        native.call('mount', cString(source), cString(folder), null, MS_BIND, null);
        this.#cleanUps.push(() => {
          this.#perhaps(() => native.call('umount2', cString(folder), MNT_DETACH));
        });
      });
    }
    if (this.#late !== undefined && !this.#lateCame)
      await this.#serve('escape-unix-late', { path: this.#late });
    this.#lateCame = true;
  }

  #startVictims(): Record<string, Victim> {
    const all: Record<string, Victim> = {};
    for (const id of WITH_VICTIM) {
      const mark = `belay-probe-${this.#nonce}-${id}`;
      // It waits for a word on its standard input, which ends with us at the latest.
      const child = spawn('/bin/cat', ['-', mark], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
      child.on('error', () => undefined);
      child.stdin.on('error', () => undefined);
      if (child.pid === undefined) continue;
      const row = `escape-${id}`;
      child.once('exit', () => this.#ended.add(row));
      this.#cleanUps.push(() => end(child));
      all[row] = { pid: child.pid, mark, address: stackOf(child.pid), fd: 0 };
    }
    return all;
  }

  #handlesOf(paths: Readonly<Record<string, string>>): Record<string, string> {
    const all: Record<string, string> = {};
    for (const [row, path] of Object.entries(paths)) {
      const [CWD, MAX_BYTES] = [-100, 128];
      const handle = Buffer.alloc(8 + MAX_BYTES);
      handle.writeUInt32LE(MAX_BYTES, 0);
      const mount = Buffer.alloc(8);
      this.#perhaps((native) => {
        native.call('name_to_handle_at', CWD, cString(path), handle, mount, 0);
        all[row] = handle.subarray(0, 8 + handle.readUInt32LE(0)).toString('hex');
      });
    }
    return all;
  }

  /** What is written to it is read at the end. */
  #makeTerminal(): string | undefined {
    return this.#perhaps((native) => {
      const [TIOCGPTN, TIOCSPTLCK] = [0x8004_5430, 0x4004_5431];
      const { O_RDWR, O_NOCTTY, O_NONBLOCK } = constants;
      const master = openSync('/dev/ptmx', O_RDWR | O_NOCTTY | O_NONBLOCK);
      this.#cleanUps.push(() => {
        closeSync(master);
      });
      const number = Buffer.alloc(4);
      native.call('ioctl', master, TIOCSPTLCK, number);
      native.call('ioctl', master, TIOCGPTN, number);
      const path = `/dev/pts/${number.readUInt32LE(0)}`;
      // Without anybody at its other end it forgets what was written.
      const slave = openSync(path, O_RDWR | O_NOCTTY);
      this.#cleanUps.push(() => {
        closeSync(slave);
      });
      this.#mailboxes.set('escape-terminal', master);
      return path;
    });
  }

  /** A key in the session keyring, which whoever we start inherits. Its value is the proof of having read it. */
  #addKey(): string | undefined {
    const [SETPERM, REVOKE, UNLINK, SESSION] = [5, 3, 9, -3];
    const [POSSESSOR_ALL, USER_ALL] = [0x3f00_0000, 0x003f_0000];
    const description = `belay-probe-${this.#nonce}`;
    const value = Buffer.from(digest(Buffer.from(this.#secret)));
    return this.#perhaps((native) => {
      const key = native.call('add_key', cString('user'), cString(description), value, value.length, SESSION);
      this.#cleanUps.push(() => {
        this.#perhaps(() => native.call('keyctl', REVOKE, key));
        this.#perhaps(() => native.call('keyctl', UNLINK, key, SESSION));
      });
      native.call('keyctl', SETPERM, key, POSSESSOR_ALL | USER_ALL);
      return description;
    });
  }

  #shareMemory(): number | undefined {
    const [IPC_CREAT_EXCL, IPC_RMID] = [0o3000, 0];
    const key = randomBytes(4).readUInt32LE(0) & 0x7fff_ffff;
    return this.#perhaps((native) => {
      const id = native.call('shmget', key, 4096, IPC_CREAT_EXCL | 0o600);
      this.#cleanUps.push(() => {
        this.#perhaps(() => native.call('shmctl', id, IPC_RMID, null));
      });
      return key;
    });
  }

  #openQueue(): string | undefined {
    const name = `belay-probe-${this.#nonce}`;
    return this.#perhaps((native) => {
      closeSync(native.call('mq_open', cString(name), constants.O_CREAT | constants.O_RDWR, 0o600, null));
      this.#cleanUps.push(() => {
        this.#perhaps(() => native.call('mq_unlink', cString(name)));
      });
      return name;
    });
  }

  /** What had been sent before this call has been heard after it. */
  async settle(): Promise<void> {
    for (let turns = 0; turns < 4; turns++) await turn();
    for (const [row, fd] of this.#mailboxes) {
      try {
        if (readSync(fd, Buffer.alloc(64)) > 0) this.#heard.add(row);
      } catch {
        // EAGAIN: nothing came.
      }
    }
  }

  /** Whether a row came through, as seen from here; undefined where nobody sees it. */
  reached(row: string, answer: Answer | undefined): boolean | undefined {
    const known = rowOf(row);
    if (known?.kind !== 'escape') return undefined;
    switch (known.witness) {
      case 'folder': {
        const folder = this.#folderOf(this.plan, row);
        return folder === undefined ? undefined : this.#before.get(row) !== this.#look(folder);
      }
      case 'tcp':
      case 'udp':
      case 'unix':
      case 'mailbox':
        return this.#heard.has(row);
      case 'victim':
        return this.#ended.has(row);
      case 'secret':
        return (
          answer !== undefined && 'proof' in answer && answer.proof === digest(Buffer.from(this.#secret))
        );
      case 'none':
        return undefined;
    }
  }

  /** Takes all of it away again. */
  async dispose(): Promise<void> {
    for (const cleanUp of this.#cleanUps.splice(0).reverse()) await cleanUp();
  }
}

const statOf = (path: string): ReturnType<typeof lstatSync> | undefined => {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
};

export function writable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function hasContent(path: string): boolean {
  try {
    return statSync(path).isDirectory() ? readdirSync(path).length > 0 : readFileSync(path).length > 0;
  } catch {
    return false;
  }
}

const runtimeFolder = (): string | undefined =>
  [`/run/user/${process.getuid?.()}`, '/run'].find((path) => existsSync(path) && writable(path));

/** The device of the root file system, where it is on one of its own. */
function rootDisk(): { major: number; minor: number } | undefined {
  const { dev } = statSync('/', { bigint: true });
  const number = Number(dev);
  const [major, minor] = [(number >>> 8) & 0xfff, (number & 0xff) | ((number >>> 12) & 0xfff00)];
  return major === 0 ? undefined : { major, minor };
}

/** A writable address in a process's stack; undefined where its map can't be read. */
function stackOf(pid: number): number | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/maps`, 'utf8')
      .split('\n')
      .find((each) => each.endsWith('[stack]'));
    const end = /^[0-9a-f]+-([0-9a-f]+) rw/.exec(line ?? '')?.[1];
    return end === undefined ? undefined : Number.parseInt(end, 16) - 64;
  } catch {
    return undefined;
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
