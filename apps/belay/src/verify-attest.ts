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
import { type AttributeValue, sessionKey, stateId } from '@belay/envelope';
import { Attestation } from './attestation.js';
import type { CliConfig } from './config.js';
import { findLogin } from './credentials.js';
import { badInput, unavailable, usage } from './exit.js';
import { readSettings } from './settings.js';
import type { TurnPart, Verification } from './verification.js';

export interface AttestOptions {
  readonly state: string;
  readonly sink: string;
  readonly log: string | undefined;
  /** Milliseconds to wait for the log. */
  readonly patience: number;
}

/** How many verdicts were sent, and how many of them the log had acknowledged when the waiting ended. */
export interface Attested {
  readonly verdicts: number;
  readonly waiting: boolean;
}

/** Throws CliError where there is nothing to send to, or the trace was sent to another log. */
export async function attestVerdicts(
  found: Verification,
  options: AttestOptions,
  config: CliConfig,
): Promise<Attested> {
  const { state, sink, log, patience } = options;
  const login = await findLogin(config);
  if (login === undefined) {
    throw usage(
      'there is nowhere to send verdicts to',
      'Set BELAY_URL and BELAY_TOKEN to those of a verifier.',
    );
  }
  const { origin } = login.credential;
  if (log === undefined)
    throw badInput('not_sent', 'the trace was only recorded: its log knows nothing of it');
  if (log !== origin) throw badInput('other_log', `the trace was sent to ${log}, the token is of ${origin}`);
  const evidence = await evidenceOf(found, state, origin);
  const attestation = await Attestation.open({
    ...readSettings(config),
    state,
    login,
    sink,
    sinkKind: 'verifier',
  });
  const key = sessionKey(machineSecret(state), found.session);
  const turns = found.parts.filter((part): part is TurnPart => part.type === 'turn');
  for (const turn of turns) {
    const call = turn.seqs.call === undefined ? undefined : evidence?.lines.get(turn.seqs.call)?.call;
    attestation.epoch.append({
      kind: 'verdict',
      session: found.session,
      call,
      attrs: attributesOf(found, turn, evidence, key),
    });
  }
  attestation.wake();
  const left = await attestation.finish(patience, new AbortController().signal);
  if (left.stopped !== undefined)
    throw unavailable('not_taken', `the verdicts were not taken: ${left.stopped.message}`);
  return { verdicts: turns.length, waiting: left.pendingBytes > 0 };
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
