/**
 * The boundary as a Seatbelt profile for macOS' sandbox-exec(1). Written by its documented language and tested as text;
 * not measured on macOS, and a record says so.
 */

import type { SandboxPolicy } from './policy.js';

export interface SeatbeltPlan {
  /** In normal form. */
  readonly policy: SandboxPolicy;
  readonly hidden: readonly { readonly path: string; readonly folder: boolean }[];
  /** A private folder that stands for the temporary one. */
  readonly temporary: string;
}

/** A Scheme string literal. Control characters can't be said in one, so a path with them is refused. */
function literal(path: string): string {
  for (const sign of path) {
    if ((sign.codePointAt(0) as number) < 0x20) throw new RangeError('a path with control characters');
  }
  return `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

const subpath = (path: string): string => `(subpath ${literal(path)})`;

/** Later rules win over earlier ones: what is hidden comes last, and so do the roots that lie in what is hidden. */
export function seatbeltProfile({ policy, hidden, temporary }: SeatbeltPlan): string {
  const { network, profile, roots } = policy;
  const inside = (path: string, folder: string): boolean => path === folder || path.startsWith(`${folder}/`);
  const rules = [
    '(version 1)',
    '(deny default)',
    '(allow process-exec process-fork)',
    '(allow signal (target same-sandbox))',
    '(allow sysctl-read)',
    '(allow mach-lookup (global-name "com.apple.system.notification_center")',
    '  (global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.system.logger"))',
    '(allow file-read*)',
    `(allow file-write* ${[...roots, temporary].map(subpath).join(' ')})`,
    '(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))',
    '(allow file-ioctl (literal "/dev/tty"))',
    '(allow ipc-posix-sem)',
    '(deny network*)',
    ...(profile === 'strict'
      ? []
      : [
          `(allow network-bind network-outbound ${[...roots, temporary]
            .map((path) => `(remote unix-socket ${subpath(path)}) (local unix-socket ${subpath(path)})`)
            .join(' ')})`,
        ]),
    ...networkRules(network),
    ...hidden.map(
      ({ path, folder }) =>
        `(deny file-read* file-write* network-outbound ${folder ? subpath(path) : `(literal ${literal(path)})`})`,
    ),
    ...roots
      .filter((root) => hidden.some(({ path }) => root !== path && inside(root, path)))
      .map((root) => `(allow file-read* file-write* ${subpath(root)})`),
  ];
  return `${rules.join('\n')}\n`;
}

function networkRules(network: SandboxPolicy['network']): string[] {
  switch (network.mode) {
    case 'deny':
      return [];
    case 'allow':
      return ['(allow network*)', '(allow system-socket)'];
    case 'loopback':
      // Seatbelt has no loopback of one's own: this machine's is shared with whoever listens on it.
      return [
        '(allow network-bind network-inbound (local ip "localhost:*"))',
        '(allow network-outbound (remote ip "localhost:*"))',
      ];
    case 'ports':
      return network.ports.map((port) => `(allow network-outbound (remote ip "localhost:${port}"))`);
  }
}
