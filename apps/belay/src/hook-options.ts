/** Options of `belay hook`, read without the library that reads those of other commands: its event can't wait for it. */

import { PRIVACY, type Privacy } from './settings.js';

const SINK = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const NAME = /^[A-Za-z0-9._@/:+-]{1,128}$/;

export interface HookOptions {
  readonly sink: string;
  readonly agent: string;
  readonly state?: string;
  readonly trace?: string;
  readonly privacy?: Privacy;
  /** The agent's ids of calls are told to hooks only: calls are recognised by what they are. */
  readonly weakIds: boolean;
}

/** What can't be understood is left out: a wrong option must not cost the event. A wrong privacy policy is strict. */
export function readHookOptions(args: readonly string[]): HookOptions {
  const valueOf = (name: string): string | undefined => {
    const at = args.indexOf(name);
    return at < 0 ? args.find((arg) => arg.startsWith(`${name}=`))?.slice(name.length + 1) : args[at + 1];
  };
  const [sink, agent, state, trace] = ['--sink', '--agent', '--state', '--trace'].map(valueOf);
  const privacy = valueOf('--privacy');
  return {
    sink: sink !== undefined && SINK.test(sink) ? sink : 'hook',
    agent: agent !== undefined && NAME.test(agent) ? agent : 'claude-code',
    weakIds: args.includes('--weak-ids'),
    ...(state === undefined ? {} : { state }),
    ...(trace === undefined ? {} : { trace }),
    ...(privacy === undefined ? {} : { privacy: PRIVACY.find((known) => known === privacy) ?? 'strict' }),
  };
}
