/** The pages of the export in plain words: what it is and how to check it, and what it does not prove. */

import { coverageGaps, requiredSinks } from './absence.js';
import { PAGES_VERSION } from './pages.js';
import type { ReportFacts } from './report-model.js';
import { counted, figure, timeText, visible, WHAT_THIS_IS } from './report-words.js';

const ALWAYS: readonly string[] = [
  'That what the entries say is true. An entry shows who said it (by the token and, where there is one, the key), when the collector received it, and that it was not changed since.',
  'That the sinks saw everything. A sink that was not asked, was by-passed, or was switched off before it numbered a line leaves no gap. What went through no sink is not in the log.',
  'What the content was. Entries hold commitments to arguments and results; each opens only with its salt and the content itself, which stay with who recorded them.',
  'That the times are right. They are by the clocks of the sinks and of the collector; no outside authority has stamped them.',
  'That everyone is shown the same log. Compare its checkpoint with those that others hold, best one that you fetched yourself earlier.',
  'That keys and names belong to whom they should. Trust domains, kinds of sinks and tokens are what an admin of the project declared; the entries that say so are in the log.',
  'That the key of the log was not revoked after this export was made. Nothing that is checked offline can show that.',
  'That a step was wise. PASS and affirmed say that what is on record is what happens when it is run again, under the rules of the policy; they do not say that it should have been done.',
  'Anything about what is UNVERIFIED. It is no PASS: it could not be decided, and the cause is named.',
  'That a law or standard is complied with. The table of controls says what evidence is here; whether a control is met is for whoever audits it to say. This is not legal advice.',
];

/**
 * What the export does not prove: first what none does, then what follows from its own facts, the numbers beside it.
 */
export function limitationsOf(facts: ReportFacts): readonly string[] {
  return [...ALWAYS, ...ownLimitations(facts)];
}

function ownLimitations(facts: ReportFacts): readonly string[] {
  const { missing, conflicts, unjudgedCalls, laterLines } = facts.found;
  const { open, incomplete, contested, unverified } = facts.dispositions;
  const lost = missing.dropped + missing.filtered;
  const unkeyed = requiredSinks(facts).filter(({ keyed }) => !keyed);
  const { same_domain: same, unknown } = facts.recorder;
  const when = (is: boolean, sentence: string): readonly string[] => (is ? [sentence] : []);
  return [
    ...when(
      facts.entries.omitted > 0,
      `What the ${counted(facts.entries.omitted, 'entry', 'entries')} left out say. Their number and their place are proven; that none of them belongs to what was asked for is the statement of the collector (filter.json).`,
    ),
    ...when(
      requiredSinks(facts).length === 0,
      'That anything is complete. No sink is required in this project, so nothing says who should have spoken.',
    ),
    ...when(
      missing.undisclosed > 0,
      `What ${counted(missing.undisclosed, 'missing line')} said. Nothing accounts for ${missing.undisclosed === 1 ? 'it' : 'them'}.`,
    ),
    ...when(
      lost > 0,
      `What ${counted(lost, 'line')} said that sinks dropped or filtered by their own account.`,
    ),
    ...when(conflicts > 0, `Which of two stories is the true one, in ${counted(conflicts, 'conflict')}.`),
    ...when(
      unkeyed.length > 0,
      `That the lines of ${unkeyed.length === 1 ? 'one required sink' : `${figure(unkeyed.length)} required sinks`} were written by ${unkeyed.length === 1 ? 'it' : 'them'}: without a declared key whoever held the token could write.`,
    ),
    ...when(
      incomplete > 0,
      `What happened in the parts that are missing of ${counted(incomplete, 'incomplete session')}. (One that is violated or contested may lack parts, too.)`,
    ),
    ...when(contested > 0, `What happened in ${counted(contested, 'contested session')}.`),
    ...when(
      open > 0,
      `How ${counted(open, 'session')} ended that ${open === 1 ? 'was' : 'were'} still open at size ${figure(facts.asOf.size)}.`,
    ),
    ...when(unverified > 0, `That ${counted(unverified, 'unverified session')} did what is on record.`),
    ...when(
      unjudgedCalls > 0,
      `What ${counted(unjudgedCalls, 'call')} did that ${unjudgedCalls === 1 ? 'rests' : 'rest'} on neither a replay nor a label of an auditor's: there is no verdict on ${unjudgedCalls === 1 ? 'it' : 'them'}, or one that does not count as a replay, such as of a state that was not in the log before the call.`,
    ),
    ...when(
      laterLines > 0,
      `What ${counted(laterLines, 'line')} of sessions ${laterLines === 1 ? 'says that' : 'say that'} came after what the receipts here looked at: no count of verdicts or calls has ${laterLines === 1 ? 'it' : 'them'}.`,
    ),
    ...when(
      same + unknown > 0,
      `That ${counted(same + unknown, 'replayed call')} ${same + unknown === 1 ? 'was' : 'were'} run again by somebody independent: ${figure(same)} by a verifier of the recorder's own trust domain, ${figure(unknown)} by one whose domain, or the recorder's, is not declared.`,
    ),
  ];
}

/** LIMITATIONS.md of an export. */
export function limitationsText(facts: ReportFacts): string {
  const own = ownLimitations(facts);
  return `# What this export does not prove

Project ${inline(facts.project.name)}, log ${inline(facts.log.origin)}, as of ${counted(facts.asOf.size, 'entry', 'entries')}, ${timeText(facts.asOf.time)}.

No export of this kind proves:

${bullets(ALWAYS)}

And of this one:

${own.length === 0 ? 'Nothing more: its facts add no further limits.' : bullets(own)}

## Where it has gaps

${gapsText(facts)}
`;
}

function gapsText(facts: ReportFacts): string {
  const gaps = coverageGaps(facts);
  if (gaps.length === 0) {
    return 'None: every required sink is complete, every session is covered whole, and nothing was left out.';
  }
  return `That something did not happen can't be concluded from this export, because of:\n\n${bullets(gaps)}`;
}

/** README.md of an export. `oscal` tells whether oscal.json is in it. */
export function readmeText(facts: ReportFacts, options: { readonly oscal: boolean }): string {
  const { project, log, asOf, entries } = facts;
  const files: readonly (readonly [string, string])[] = [
    ['README.md', 'this page'],
    ['LIMITATIONS.md', 'what the export does not prove, and where it has gaps'],
    ['keys.json', 'the key of the log, and the tokens and sinks that entries declare'],
    ['chain.pem', 'the certificates of the key of the log, its own first and the root last'],
    ['checkpoint', `the signed head of the log at ${counted(asOf.size, 'entry', 'entries')}, byte for byte`],
    ['filter.json', 'what was asked for, and what was left out'],
    ['entries.ndjson', 'the record of truth: two lines for each entry, hashes for what was left out'],
    ['receipts.ndjson', 'the signed receipts of the sessions, superseded ones too'],
    ['events.csv', 'an index of the entries, to filter and to sample from'],
    ['sessions.csv', 'an index of the sessions'],
    ['controls.json, controls.csv', 'what some frameworks ask of logs, and what is here of it'],
    ['report.html, report.pdf', 'the same report twice, for people'],
    ...(options.oscal ? [['oscal.json', 'the table of controls as OSCAL assessment results'] as const] : []),
    ['manifest.json', 'SHA-256 of every other file, signed by the key of the log'],
  ];
  return `# Evidence from the log of ${inline(project.name)}

${WHAT_THIS_IS}

| | |
|---|---|
| Project | ${inline(project.name)} (${inline(project.id)}) |
| Log | ${inline(log.origin)} |
| Key of the log | ${inline(log.vkey)} |
| Root certificate, SHA-256 | ${inline(log.rootFingerprint)} |
| Scope | ${inline(facts.scope)} |
| Entries | ${figure(entries.included)} included, ${figure(entries.omitted)} left out, of ${figure(asOf.size)} |
| As of | ${inline(timeText(asOf.time))} |

Begin with report.html, page one.

## What is in it

| file | |
|---|---|
${files.map(([name, what]) => `| ${name} | ${what} |`).join('\n')}

## Check it

1. **Get the key from somewhere else than this file.** The key and the fingerprint above prove nothing by themselves:
   whoever forges an export writes its own. Ask the operator of the log over another channel (a contract, a phone call,
   a page that you trust), or use a checkpoint or a root certificate that you kept from before, and compare.
2. **Verify, without a network.** Either program does; they share no line of code, so use both if it matters:

       belay receipt verify EXPORT.zip --key 'THE KEY FROM STEP 1'
       python3 verify.py EXPORT.zip --key 'THE KEY FROM STEP 1'

   Neither is in this archive: a verifier that comes with the evidence proves nothing. Get it from the project's source
   or releases, as you would if nobody had sent you this; verify.py is the one file infra/verifier/verify.py there. It
   needs Python and openssl, and nothing else. When it is the root certificate that you know, give
   \`--root ROOT.pem\` in place of the key (to verify.py \`--origin\` with the name of the log too). Each names every check that it makes and ends in
   \`VALID\` (exit code 0), \`INVALID\` (1) or \`INDETERMINATE\` (2). Without a key of your own the best answer is
   \`INDETERMINATE\`. One changed byte anywhere gives \`INVALID\`.
3. **Read what it does not prove**, in LIMITATIONS.md, before you rely on it.

What is recomputed from the entries: the root of the log, coverage of every sink and session, authority and
disposition of every session, the receipts' contents, and every page and table here but one: the tables by both programs,
the pages by the first, as long as it makes them in this version, ${PAGES_VERSION} (it says when it does not).
report.pdf is bound to the export by its hash alone; it shows what report.html does.

## Sample it

- Population: the rows of sessions.csv, or of events.csv. How many rows there have to be is in manifest.json, which is
  signed.
- Draw rows by a rule of your own, for instance every n-th after a start that you chose.
- A row of events.csv names its index. Find the two lines in entries.ndjson with that index: the first is what the
  collector says, the second is the sink's line as it was received.
- A row of sessions.csv names its receipt. Find it in receipts.ndjson by its SHA-256.
- To see the content of a call, ask who recorded it to reveal that one commitment (\`belay reveal\`); nothing else is
  opened by it.
- To have a call run again, ask for its trace and use \`belay verify\`.

## What it does not prove

${bullets(limitationsOf(facts))}
`;
}

const bullets = (sentences: readonly string[]): string =>
  sentences.map((sentence) => `- ${inline(sentence)}`).join('\n');

/** Names are others' words: no line breaks, and nothing that a reader of Markdown takes for markup. */
const inline = (text: string): string =>
  visible(text)
    .replaceAll(/[\t\n]+/g, ' ')
    .replaceAll(/[\\`*_[\]<>#|~&!]/g, (char) => `\\${char}`);
