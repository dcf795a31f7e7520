import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';

const INSIDE_V4: readonly [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
];
/** Of 2000::/3, the only part of IPv6 that is routed: what stands for an IPv4 address, and what is for examples. */
const INSIDE_V6: readonly [string, number][] = [
  ['2001::', 32],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

const inside = new BlockList();
for (const [net, prefix] of INSIDE_V4) inside.addSubnet(net, prefix, 'ipv4');
for (const [net, prefix] of INSIDE_V6) inside.addSubnet(net, prefix, 'ipv6');
const routed = new BlockList();
routed.addSubnet('2000::', 3, 'ipv6');

/** Nothing is sent to a network that is not everyone's. */
export class InsideAddress extends Error {
  readonly code = 'ERR_INSIDE_ADDRESS';

  constructor() {
    super('the address is private, of this machine, or of no network');
    this.name = 'InsideAddress';
  }
}

/** Whether an address, in text, is one of the open Internet. One that maps or wraps an IPv4 address is not. */
export function isOutside(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !inside.check(address, 'ipv4');
  if (family !== 6 || address.includes('%')) return false;
  return routed.check(address, 'ipv6') && !inside.check(address, 'ipv6');
}

/** Resolves names to addresses outside only: what is connected to is what was looked at. */
export const outsideLookup: LookupFunction = (hostname, options, callback): void => {
  systemLookup(hostname, { ...options, all: true }, (error, found: LookupAddress[]) => {
    if (error) {
      callback(error, '', 0);
      return;
    }
    const outside = found.filter(({ address }) => isOutside(address));
    const [first] = outside;
    if (first === undefined) callback(new InsideAddress(), '', 0);
    else if (options.all === true) callback(null, outside);
    else callback(null, first.address, first.family);
  });
};
