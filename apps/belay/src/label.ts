/** `belay label`: what an auditor says of a session or a call, on record in the log; and what was said. */

import type { LabelList, LabelSet } from '@belay/contracts/http';
import { type Command, Option } from 'commander';
import { asAuditor, type AuditorOptions, auditorOptions } from './auditor.js';
import { readConfig } from './config.js';
import { usage } from './exit.js';
import { print, printable, styleFor } from './output.js';
import {
  givenSession,
  knownName,
  type SessionChoice,
  sessionChoice,
  shortName,
  spokenName,
  wholeName,
} from './session-name.js';

interface LabelOptions extends AuditorOptions, SessionChoice {
  readonly call?: string;
  readonly says?: 'violated' | 'not_violated';
}

async function label(given: string | undefined, options: LabelOptions): Promise<void> {
  const config = readConfig();
  const { call, says, json } = options;
  const named = givenSession(given, options, config);
  if (says === undefined && call !== undefined) throw usage('what of the call? --says violated|not_violated');
  if (says !== undefined && named === undefined)
    throw usage('of which session? belay label SESSION --says ...');
  const audited = await asAuditor(config, options);
  const { service, path } = audited;
  // What nobody knows can't be meant: a label stays in the log, and whoever wrote it would believe the session flagged.
  const session =
    named === undefined
      ? undefined
      : says === undefined
        ? await wholeName(audited, named)
        : await knownName(audited, named);
  if (says !== undefined) {
    const set = await service.json<LabelSet>('POST', `${path}/labels`, {
      session,
      ...(call === undefined ? {} : { call }),
      says,
    });
    await print(
      json,
      set,
      () =>
        `Entry ${set.index} of the log says so of ${printable(session ?? '')}, in the name of your key. What the session comes to follows:\n` +
        `belay sessions ${spokenName(session ?? '')} --wait 60\n`,
    );
    return;
  }
  const labels: LabelList['labels'] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const of = session === undefined ? '' : `&session=${encodeURIComponent(session)}`;
    const page: LabelList = await service.json('GET', `${path}/labels?limit=1000${of}${cursor}`);
    labels.push(...page.labels);
    cursor = page.next === undefined ? undefined : `&cursor=${encodeURIComponent(page.next)}`;
  }
  const style = styleFor(config);
  await print(json, { labels }, () =>
    labels.length === 0
      ? 'No labels.\n'
      : labels
          .map(({ index, session: of, call: about, says: said, by }) => {
            const what = about === undefined ? '' : ` call ${printable(about)}`;
            const words = said === 'violated' ? style.bad(said) : style.good(said);
            return `entry ${index}  ${printable(shortName(of))}${what}  ${words}  by ${by}\n`;
          })
          .join(''),
  );
}

export function register(program: Command): void {
  sessionChoice(auditorOptions(program.command('label')))
    .description('say of a session or a call that it was violated or not; without --says, what was said')
    .argument('[session]', 'its name, or how one that nobody chose begins')
    .option('--call <call>', 'of one call: its name in the log, hmac-sha256:...')
    .addOption(new Option('--says <what>', 'what you say').choices(['violated', 'not_violated']))
    .addHelpText(
      'after',
      `
Only a session that \`belay sessions\` lists can be labelled. A label is an entry of the log and stays one; the last
of an auditor on the same thing counts. \`violated\` makes a session violated; an auditor who says other than a
verifier, or than another auditor, makes it contested.`,
    )
    .action(label);
}
