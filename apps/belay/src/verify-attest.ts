/**
 * Verdicts as envelopes of a verifier: one per call, that says which entries of the log it is about. What a verdict
 * cites is cited only where an ack that was checked again proves that the log has it.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Evidence,
  machineSecret,
  type Place,
  readEpochRecord,
  readEvidence,
  rememberedKey,
  sinkDir,
} from '@belay/client';
import type { CredentialInfo } from '@belay/contracts/http';
import { type AttributeValue, sessionKey, stateId } from '@belay/envelope';
import { Attestation } from './attestation.js';
import type { CliConfig } from './config.js';
import { findLogin, type Login, sinkKeyPath } from './credentials.js';
import { badInput, CliError, EXIT, unavailable, usage } from './exit.js';
import { Service } from './service.js';
import { readSettings } from './settings.js';
import type { TurnPart, Verification } from './verification.js';

export interface AttestOptions {
  readonly state: string;
  readonly sink: string;
  readonly log: string | undefined;
  /** Milliseconds to wait for the log. */
  readonly patience: number;
}

/** How many verdicts were sent, and whether some were not acknowledged when the waiting ended. */
export interface Attested {
  readonly verdicts: number;
  readonly waiting: boolean;
  /** The log took lines and does not say that a declared key signed them: these count for nothing. */
  readonly unsigned: boolean;
}

/**
 * Before anything is run again: whether verdicts of this sink can count. Only those do that a verifier's token sent and a
 * key signed that an administrator declared; and a verdict that does not count stays in the log, and keeps its session
 * from being affirmed. Throws CliError with what to run; what the log alone can tell is told after it took them.
 */
export async function mustCount(
  { state, sink }: Pick<AttestOptions, 'state' | 'sink'>,
  config: CliConfig,
): Promise<void> {
  const login = await loginOf(config);
  const declare = `belay sink declare ${sink} --kind verifier --domain audit --generate-key`;
  const next = `An administrator of the project, on this machine: ${declare}\n  Or send what counts for nothing: --unsigned`;
  if (!existsSync(sinkKeyPath(state, login.credential.origin, sink)))
    throw badInput(
      'unsigned',
      `the sink ${sink} has no key on this machine: its verdicts would be unsigned, and none would count`,
      next,
    );
  const role = await roleOf(login);
  if (role !== undefined && role !== 'verifier')
    throw badInput(
      'not_a_verifier',
      `the token is one of role ${role}, and only a verifier's verdicts count`,
      `An administrator of the project: belay token issue --role verifier --sink ${sink}\n  Its text goes into BELAY_TOKEN. Or send what counts for nothing: --unsigned`,
    );
}

/** As the service has it; undefined where it can't be asked now: then the lines wait for it too. */
async function roleOf({ url, token }: Login): Promise<string | undefined> {
  try {
    return (await new Service(url, token).json<CredentialInfo>('GET', '/v1/token')).role;
  } catch (error) {
    if (error instanceof CliError && error.exit === EXIT.unavailable) return undefined;
    throw error;
  }
}

async function loginOf(config: CliConfig): Promise<Login> {
  const login = await findLogin(config);
  if (login !== undefined) return login;
  throw usage(
    'there is nowhere to send verdicts to',
    'Set BELAY_URL and BELAY_TOKEN to those of a verifier.',
  );
}

/** Throws CliError where there is nothing to send to, or the trace was sent to another log. */
export async function attestVerdicts(
  found: Verification,
  options: AttestOptions,
  config: CliConfig,
): Promise<Attested> {
  const { state, sink, log, patience } = options;
  const login = await loginOf(config);
  const { origin } = login.credential;
  if (log === undefined)
    throw badInput('not_sent', 'the trace was only recorded: its log knows nothing of it');
  if (log !== origin) throw badInput('other_log', `the trace was sent to ${log}, the token is of ${origin}`);
  const evidence = await evidenceOf(found, state, origin);
  let unsigned = false;
  const attestation = await Attestation.open({
    ...readSettings(config),
    state,
    login,
    sink,
    sinkKind: 'verifier',
    onEvent: (event, own) => {
      if (own && event.type === 'settled' && !event.signed) unsigned = true;
    },
  });
  const key = sessionKey(machineSecret(state), found.session);
  const turns = found.parts.filter((part): part is TurnPart => part.type === 'turn');
  const session = found.session;
  // That it opens and closes the session says that no other run of this sink holds more of what it found here.
  attestation.epoch.append({ kind: 'session.open', session });
  for (const turn of turns) {
    const call = turn.seqs.call === undefined ? undefined : evidence?.lines.get(turn.seqs.call)?.call;
    attestation.epoch.append({
      kind: 'verdict',
      session,
      call,
      attrs: attributesOf(found, turn, evidence, key),
    });
  }
  attestation.epoch.appendStated({ kind: 'session.close', session, attrs: { calls: turns.length } });
  attestation.wake();
  const left = await attestation.finish(patience, new AbortController().signal);
  if (left.stopped !== undefined)
    throw unavailable('not_taken', `the verdicts were not taken: ${left.stopped.message}`);
  return { verdicts: turns.length, waiting: left.pendingBytes > 0, unsigned };
}

async function evidenceOf(
  { sink, epoch }: Verification,
  state: string,
  origin: string,
): Promise<Evidence | undefined> {
  const dir = join(sinkDir(state, origin, sink), epoch);
  const record = existsSync(dir) ? readEpochRecord(dir) : undefined;
  const vkey = rememberedKey(state, origin);
  return record === undefined || vkey === undefined ? undefined : readEvidence(dir, record, vkey);
}

function attributesOf(
  { policy, mode }: Verification,
  { verdict, group, pre, seqs, replays }: TurnPart,
  evidence: Evidence | undefined,
  key: Buffer,
): Record<string, AttributeValue | undefined> {
  const place = (seq: number | undefined): Place | undefined =>
    seq === undefined ? undefined : evidence?.attested.get(seq);
  const [before, call, result] = [place(seqs.pre), place(seqs.call), place(seqs.result)];
  return {
    status: verdict.status,
    cause: verdict.cause,
    mode: replays === 0 ? 'none' : group.length > 1 ? 'group' : mode,
    policy: policy.digest,
    pre: pre === undefined ? undefined : stateId(key, pre),
    pre_index: before?.index,
    pre_leaf: before?.leaf.toString('base64'),
    call_index: call?.index,
    call_leaf: call?.leaf.toString('base64'),
    result_index: result?.index,
    result_leaf: result?.leaf.toString('base64'),
    replays,
  };
}
