/** Classic BPF, as the kernel runs it for seccomp: what a filter answers to a call. */

export interface Call {
  /** AUDIT_ARCH_... */
  readonly arch: number;
  readonly nr: number;
  /** 64 bits each. */
  readonly args?: readonly bigint[];
}

/** The filter's return value for a call. Throws where the kernel would not have taken the program. */
export function run(program: Buffer, { arch, nr, args = [] }: Call): number {
  if (program.length === 0 || program.length % 8 !== 0) throw new Error('no whole instructions');
  const length = program.length / 8;
  if (length > 4096) throw new Error('too long a program');
  const data = Buffer.alloc(64);
  data.writeUInt32LE(nr >>> 0, 0);
  data.writeUInt32LE(arch >>> 0, 4);
  for (const [index, value] of args.entries()) data.writeBigUInt64LE(value, 16 + 8 * index);
  let accumulator = 0;
  for (let at = 0; at < length; at++) {
    const code = program.readUInt16LE(at * 8);
    const [yes, no] = [program.readUInt8(at * 8 + 2), program.readUInt8(at * 8 + 3)];
    const k = program.readUInt32LE(at * 8 + 4);
    const jump = (holds: boolean): void => {
      at += holds ? yes : no;
      if (at + 1 >= length) throw new Error('a jump past the end');
    };
    switch (code) {
      case 0x20:
        if (k % 4 !== 0 || k >= 64) throw new Error('a load that seccomp refuses');
        accumulator = data.readUInt32LE(k);
        break;
      case 0x15:
        jump(accumulator === k);
        break;
      case 0x35:
        jump(accumulator >= k);
        break;
      case 0x45:
        jump((accumulator & k) !== 0);
        break;
      case 0x06:
        return k;
      default:
        throw new Error(`instruction 0x${code.toString(16)}`);
    }
  }
  throw new Error('the end of the program without a return');
}
