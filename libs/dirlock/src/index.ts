/**
 * One living holder per directory, on a plain file system, without a daemon and without flock(2), which Node does
 * not have. `acquire(dir)` or `DirLocked`, never a wait.
 *
 * The lock is the file `belay.lock`; it names its holder: process, that process's start time (a pid alone is reused),
 * the boot and the pid namespace it is a pid of. It appears complete, by link(2) of a private file, so nobody ever
 * reads half of one. A holder that was killed leaves it behind, and the next `acquire` takes it over.
 *
 * Where the holder's pid means something here (same boot, same namespace) its death is seen exactly. Elsewhere (a
 * container restarted on the same volume, a rebooted machine, another machine on a network file system) the holder
 * counts as dead when it has not touched its lock for `SILENT_MS`; it touches it every quarter of that.
 *
 * Nothing that exists is ever chmod-ed or chown-ed, and the directory is the caller's to make.
 */
export { acquire, type DirLock, DirLocked, holderOf, SILENT_MS } from './lock.js';
