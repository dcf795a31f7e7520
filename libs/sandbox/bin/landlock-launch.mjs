/**
 * Confines itself by Landlock and a system call filter, then becomes the command. Arguments: the file of a plan, `--`,
 * the command. Descriptor 3, if the plan says so, has the filter.
 */
import { closeSync, constants, openSync, readFileSync } from 'node:fs';
import koffi from 'koffi';

const [file, , ...argv] = process.argv.slice(2);
const { rules, fs, net, scoped, size, filter, env } = JSON.parse(readFileSync(file, 'utf8'));

const libc = koffi.load(null);
const syscall = libc.func('long syscall(long number, ...)');
const prctl = libc.func('int prctl(int option, ...)');
const signal = libc.func('void *signal(int number, void *handler)');
const fcntl = libc.func('int fcntl(int fd, int command, ...)');
const setenv = libc.func('int setenv(const char *name, const char *value, int overwrite)');
const execvp = libc.func('int execvp(const char *file, const char **argv)');

/** What root keeps, as under bubblewrap: work on files of any owner, and nothing else that root can do. */
const KEPT = [0, 1, 3];
const [LAST_CAPABILITY, PR_CAPBSET_DROP, PR_CAP_AMBIENT, CLEAR_ALL] = [63, 24, 47, 4];
const [CAPSET, CAPABILITY_VERSION_3] = [process.arch === 'x64' ? 126 : 91, 0x20080522];
const [CREATE_RULESET, ADD_RULE, RESTRICT_SELF] = [444, 445, 446];
const PR_SET_SECCOMP = 22;
const PR_SET_NO_NEW_PRIVS = 38;
const O_PATH = 0o10000000;
const F_SETFD = 2;

function check(result, what) {
  if (Number(result) >= 0) return Number(result);
  process.stderr.write(`belay: ${what} failed: ${koffi.errno()}\n`);
  process.exit(70);
}

const ruleset = Buffer.alloc(24);
ruleset.writeBigUInt64LE(BigInt(fs), 0);
ruleset.writeBigUInt64LE(BigInt(net), 8);
ruleset.writeBigUInt64LE(BigInt(scoped), 16);
const made = check(
  syscall(CREATE_RULESET, 'void *', ruleset, 'size_t', size, 'uint32_t', 0),
  'landlock_create_ruleset',
);
for (const [path, access] of rules) {
  let opened;
  try {
    opened = openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch {
    // Gone since it was looked at: nothing to allow.
    continue;
  }
  // struct landlock_path_beneath_attr, packed: the rights, and the descriptor.
  const rule = Buffer.alloc(12);
  rule.writeBigUInt64LE(BigInt(access), 0);
  rule.writeInt32LE(opened, 8);
  check(syscall(ADD_RULE, 'int', made, 'int', 1, 'void *', rule, 'uint32_t', 0), `landlock_add_rule ${path}`);
  closeSync(opened);
}
check(
  prctl(PR_SET_NO_NEW_PRIVS, 'unsigned long', 1, 'unsigned long', 0, 'unsigned long', 0, 'unsigned long', 0),
  'no_new_privs',
);
const NONE = ['unsigned long', 0, 'unsigned long', 0, 'unsigned long', 0];
if (process.getuid() === 0) {
  prctl(PR_CAP_AMBIENT, 'unsigned long', CLEAR_ALL, ...NONE);
  for (let capability = 0; capability <= LAST_CAPABILITY; capability++) {
    // Fails for numbers beyond the last one that the kernel knows.
    if (!KEPT.includes(capability)) prctl(PR_CAPBSET_DROP, 'unsigned long', capability, ...NONE);
  }
  const header = Buffer.alloc(8);
  header.writeUInt32LE(CAPABILITY_VERSION_3, 0);
  // Two times effective, permitted, inheritable, 32 capabilities each.
  const sets = Buffer.alloc(24);
  const kept = KEPT.reduce((bits, capability) => bits | (1 << capability), 0);
  sets.writeUInt32LE(kept, 0);
  sets.writeUInt32LE(kept, 4);
  check(syscall(CAPSET, 'void *', header, 'void *', sets), 'capset');
}
const program = filter === undefined ? undefined : readFileSync(filter);
if (filter !== undefined) closeSync(filter);
// The rest of the environment is there already.
for (const [name, value] of Object.entries(env)) setenv(name, value, 1);
check(syscall(RESTRICT_SELF, 'int', made, 'uint32_t', 0), 'landlock_restrict_self');
closeSync(made);
if (program !== undefined) {
  koffi.struct('sock_fprog', { len: 'unsigned short', filter: 'void *' });
  check(
    prctl(PR_SET_SECCOMP, 'unsigned long', 2, 'sock_fprog *', { len: program.length / 8, filter: program }),
    'seccomp',
  );
}
// Node ignores it, and what is ignored stays so in the command.
signal(13, null);
// Node lets nothing be inherited past itself, the standard three included.
for (const fd of [0, 1, 2]) fcntl(fd, F_SETFD, 'int', 0);
execvp(argv[0], [...argv, null]);
const missing = koffi.errno() === koffi.os.errno.ENOENT;
process.stderr.write(`belay: cannot start ${argv[0]}\n`);
process.exit(missing ? 127 : 126);
