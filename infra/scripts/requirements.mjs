// What the suite needs beyond npm: real servers and foreign tools to test against. Missing ones are installed where
// that is possible without asking anybody (root, and an apt-get that works); elsewhere one line says what to install.
// Two are exceptions, and their tests say so when they are skipped: Go only runs the log reader that is not ours, and
// Chromium, which some distributions have as a snap only, looks at a page that other tests check too.

import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** @typedef {{ name: string, found: () => boolean, debian: string[], optional?: boolean }} Requirement */

/** @type {Requirement[]} */
const requirements = [
  { name: 'redis-server', found: () => onPath('redis-server'), debian: ['redis-server'] },
  { name: 'nats-server', found: () => onPath('nats-server'), debian: ['nats-server'] },
  { name: 'openssl', found: () => onPath('openssl'), debian: ['openssl'] },
  { name: 'git', found: () => onPath('git'), debian: ['git'] },
  // Servers that are not written for Node.
  { name: 'python3', found: () => onPath('python3'), debian: ['python3'] },
  // What contains a server, and what tells of its refusals; setpriv and unshare come with every Debian.
  { name: 'bwrap', found: () => onPath('bwrap'), debian: ['bubblewrap'] },
  { name: 'strace', found: () => onPath('strace'), debian: ['strace'] },
  { name: 'setpriv', found: () => onPath('setpriv') && onPath('unshare'), debian: ['util-linux'] },
  // What opens the reports of an export as their readers do.
  {
    name: 'pdftotext and pdfinfo',
    found: () => onPath('pdftotext') && onPath('pdfinfo'),
    debian: ['poppler-utils'],
  },
  { name: 'chromium', found: () => onPath('chromium'), debian: ['chromium'], optional: true },
  {
    name: 'go with golang.org/x/mod',
    found: () => onPath('go') && existsSync('/usr/share/gocode/src/golang.org/x/mod/sumdb'),
    debian: ['golang-go', 'golang-golang-x-mod-dev'],
    optional: true,
  },
];

function onPath(program) {
  // Debian installs servers in /usr/sbin, which an ordinary user's PATH leaves out.
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/local/sbin', '/usr/sbin', '/sbin'];
  return folders.some((folder) => {
    if (folder === '') return false;
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function aptGet(...args) {
  return spawnSync('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=300', ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  }).status;
}

/** Installs without letting a package start its daemon: the tests start their own, on ports of their own. */
function install(packages) {
  const policy = '/usr/sbin/policy-rc.d';
  const ours = !existsSync(policy);
  if (ours) writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755, flag: 'wx' });
  try {
    return aptGet('update') === 0 && aptGet('install', '-y', '--no-install-recommends', ...packages) === 0;
  } finally {
    if (ours) rmSync(policy, { force: true });
  }
}

const missing = () => requirements.filter((each) => !each.found());

const packages = missing().flatMap((each) => each.debian);
if (packages.length > 0 && process.getuid?.() === 0 && onPath('apt-get')) {
  console.log(`Installing what the tests need: ${packages.join(' ')}`);
  if (!install(packages)) {
    // One package that can't be had must not keep the others away.
    for (const each of missing()) install(each.debian);
  }
}

for (const each of missing().filter((left) => left.optional)) {
  console.log(`Not found: ${each.name}. What needs it will be skipped (Debian: ${each.debian.join(' ')}).`);
}
const needed = missing().filter((each) => !each.optional);
if (needed.length > 0) {
  console.error(
    `The tests need ${needed.map((each) => each.name).join(', ')}. ` +
      `Install them and run again (Debian: apt-get install ${needed.flatMap((each) => each.debian).join(' ')}).`,
  );
  process.exit(69);
}
