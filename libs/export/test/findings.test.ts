import { cleanModel, hostileModel, sampleFacts, sampleModel } from '@belay/testkit/report';
import { describe, expect, it } from 'vitest';
import { absenceRows, coverageGaps } from '../src/absence.js';
import { controlRows } from '../src/controls.js';
import { limitationsOf, limitationsText, readmeText } from '../src/limitations.js';
import { oscalDocument, uuidV5 } from '../src/oscal.js';
import type { AbsenceRow, ControlRow, ReportFacts, ReportModel, ReportSink } from '../src/report-model.js';

const controlsOf = (facts: ReportFacts): readonly ControlRow[] =>
  controlRows({ ...facts, absence: absenceRows(facts) });
const resultOf = (facts: ReportFacts, control: string): ControlRow['result'] | undefined =>
  controlsOf(facts).find((row) => row.control === control)?.result;
const absenceOf = (facts: ReportFacts, name: RegExp): AbsenceRow => {
  const row = absenceRows(facts).find((each) => name.test(each.class));
  if (row === undefined) throw new Error(`no class ${String(name)}`);
  return row;
};

/** Names of controls are ours; what stands beside them may have names of others in it. */
const withOurControls = (model: ReportModel): ReportModel => ({
  ...model,
  controls: sampleModel().controls.map((row, i) => ({ ...row, evidence: model.controls[i]?.evidence ?? '' })),
});

/** Everything complete, and one thing changed. */
const clean = (change: Partial<ReportFacts> = {}): ReportFacts => ({ ...cleanModel(), ...change });
const withSinks = (change: (sink: ReportSink) => ReportSink): ReportFacts =>
  clean({ sinks: cleanModel().sinks.map((sink) => (sink.required ? change(sink) : sink)) });

describe('absence', () => {
  it('is `none` when everything is complete', () => {
    expect(coverageGaps(clean())).toEqual([]);
    for (const row of absenceRows(clean()))
      expect(row).toMatchObject({ result: 'none', count: 0, because: [] });
  });

  it('is never `none` when anything is missing, whatever it is, and names it', () => {
    const worlds: readonly (readonly [string, ReportFacts])[] = [
      ['3 entries of the log left out', clean({ entries: { included: 10, omitted: 3 } })],
      [
        'no sink is required',
        clean({
          policy: { ...clean().policy, document: { ...clean().policy.document, sessions: [] } },
          sinks: clean().sinks.map((sink) => ({ ...sink, required: false })),
        }),
      ],
      ['no declared key', withSinks((sink) => ({ ...sink, keyed: false }))],
      ['1 run of which nothing was received', withSinks((sink) => ({ ...sink, lost: 1, status: 'silent' }))],
      ['1 fork', withSinks((sink) => ({ ...sink, branches: 1, status: 'conflict' }))],
      ['counter does not follow', withSinks((sink) => ({ ...sink, miscounted: 1, status: 'conflict' }))],
      ['nothing was received', withSinks((sink) => ({ ...sink, epochs: [], status: 'silent' }))],
      ['7 more epochs', withSinks((sink) => ({ ...sink, epochsOmitted: 7 }))],
      [
        '4 lines not signed',
        withSinks((sink) => ({
          ...sink,
          epochs: sink.epochs.slice(0, 1).map((epoch) => ({ ...epoch, unsigned: 4 })),
        })),
      ],
      ['silent', withSinks((sink) => ({ ...sink, status: 'silent' }))],
      ['1 session of', clean({ coverage: { ...clean().coverage, open: 1 } })],
      [
        'nothing of it was received',
        clean({ sinks: clean().sinks.filter(({ sink }) => sink !== 'shell-proxy') }),
      ],
      ...(['conflict', 'gap', 'unclosed', 'silent', 'open'] as const).map(
        (status) =>
          [
            status,
            withSinks((sink) => ({
              ...sink,
              status,
              epochs: sink.epochs.map((epoch) => ({ ...epoch, status })),
            })),
          ] as const,
      ),
    ];
    for (const [words, facts] of worlds) {
      for (const row of absenceRows(facts)) {
        expect([words, row.result]).toEqual([words, 'inconclusive']);
        expect(row.because.join('\n')).toContain(words);
      }
    }
  });

  it('says what was found, and where coverage has gaps that it is the least', () => {
    const facts = sampleFacts();
    expect(absenceOf(facts, /FAIL/)).toMatchObject({ result: 'found', count: facts.verdicts.FAIL });
    expect(absenceOf(facts, /denied/).because).toContain(
      'file-proxy, epoch 01K3022ZC5M9W2QHTR8VXB4N7D: gap; missing lines 17-18, nothing says why; missing lines 402-430, dropped when its spool was full, said by the sink; missing line 1,211, nothing says why',
    );
    expect(absenceOf(facts, /agent's own/)).toMatchObject({ result: 'inconclusive', count: 0 });
    const found = clean({ found: { ...clean().found, denials: 2 } });
    expect(absenceOf(found, /denied/)).toMatchObject({ result: 'found', count: 2, because: [] });
  });

  it('does not call what nobody judged free of FAIL', () => {
    const unjudged = clean({ found: { ...clean().found, unjudgedCalls: 2 } });
    expect(absenceOf(unjudged, /FAIL/)).toMatchObject({
      result: 'inconclusive',
      because: ['2 calls on neither a replay nor a label, which could have failed unseen'],
    });
    const later = clean({ found: { ...clean().found, laterLines: 2 } });
    for (const row of [absenceOf(later, /FAIL/), absenceOf(later, /rests on neither/)]) {
      expect(row).toMatchObject({
        result: 'inconclusive',
        because: ['2 lines of sessions that came after what their receipts looked at'],
      });
    }
    expect(absenceOf(later, /denied/).result).toBe('none');
    expect(resultOf(later, 'Art. 12(2)')).toBe('partly');
    const undecided = clean({ verdicts: { ...clean().verdicts, UNVERIFIED: 1 } });
    expect(absenceOf(undecided, /FAIL/).because).toEqual([
      '1 verdict UNVERIFIED, which could not be decided',
    ]);
    expect(absenceOf(undecided, /denied/).result).toBe('none');
  });

  it('names at most 20 gaps and counts the others', () => {
    const [first] = sampleFacts().sinks.filter(({ sink }) => sink === 'file-proxy');
    if (first === undefined) throw new Error('no sink');
    const sinks = Array.from({ length: 50 }, (_, i) => ({ ...first, sink: `proxy-${i}` }));
    const { because } = absenceOf(sampleFacts(40, { sinks }), /denied/);
    expect(because).toHaveLength(20);
    expect(because.at(-1)).toMatch(/^and \d+ more$/);
  });
});

describe('controls', () => {
  it('has every row with what it asks, evidence and limits, and never says that anybody complies', () => {
    const rows = controlsOf(sampleFacts());
    expect(rows.map(({ framework, control }) => `${framework} ${control}`)).toEqual([
      'EU AI Act Art. 12(1)',
      'EU AI Act Art. 12(2)',
      'EU AI Act Art. 19(1)',
      'EU AI Act Art. 26(6)',
      'ISO/IEC 42001 A.6.2.8',
      'SOC 2 CC7.2',
      'SOC 2 CC7.3',
      'SOC 2 CC8.1 / IPE',
      'PCI DSS 4 10.2.2',
      'PCI DSS 4 10.3',
      'PCI DSS 4 10.5',
      'PCI DSS 4 10.6',
      'HIPAA 164.312(b)',
      'HIPAA 164.312(c)(1)',
      'NIST AI RMF MEASURE 2.4',
      'NIST AI RMF MANAGE 4',
    ]);
    for (const row of rows) {
      for (const words of [row.asks, row.evidence, row.limits]) {
        expect(words.length).toBeGreaterThan(20);
        expect(words).not.toMatch(/complian|complies|certif|satisf/i);
      }
    }
  });

  it('falls with the facts: missing lines are partly, doubt is inconclusive, nothing is not shown', () => {
    expect(resultOf(clean(), 'CC8.1 / IPE')).toBe('shown');
    expect(resultOf(sampleFacts(), 'CC8.1 / IPE')).toBe('partly');
    expect(resultOf(clean({ entries: { included: 9, omitted: 1 } }), 'CC8.1 / IPE')).toBe('inconclusive');
    expect(resultOf(clean({ sinks: [] }), 'CC8.1 / IPE')).toBe('not_shown');
    const none = { PASS: 0, WARN: 0, FAIL: 0, UNVERIFIED: 0, causes: {} };
    expect(resultOf(clean({ verdicts: none }), 'Art. 12(2)')).toBe('not_shown');
    expect(resultOf(clean({ verdicts: { ...none, UNVERIFIED: 4 } }), 'Art. 12(2)')).toBe('inconclusive');
    expect(resultOf(clean({ found: { ...clean().found, unjudgedCalls: 1 } }), 'Art. 12(2)')).toBe('partly');
    expect(resultOf(clean(), '10.6')).toBe('not_shown');
  });

  it('takes the days that the policy keeps entries, which an export can show only in part', () => {
    const keeping = (retention: number | undefined): ReportFacts => {
      const { policy } = clean();
      const { retention: _, ...document } = policy.document;
      return clean({
        policy: { ...policy, document: retention === undefined ? document : { ...document, retention } },
      });
    };
    expect([183, 184, undefined].map((days) => resultOf(keeping(days), 'Art. 19(1)'))).toEqual([
      'not_shown',
      'partly',
      'partly',
    ]);
    expect([365, 366, undefined].map((days) => resultOf(keeping(days), '10.5'))).toEqual([
      'not_shown',
      'partly',
      'partly',
    ]);
  });
});

describe('LIMITATIONS.md and README.md', () => {
  it('say the same for the same facts, and each limit that the facts bring', () => {
    const facts = sampleFacts();
    expect(limitationsText(facts)).toBe(limitationsText(structuredClone(facts)));
    const own = limitationsOf(facts).slice(
      limitationsOf(clean({ recorder: { same_domain: 0, other_domain: 9, unknown: 0 } })).length,
    );
    expect(own).toHaveLength(10);
    const text = limitationsText(facts);
    for (const words of [
      '741 entries left out',
      '3 missing lines',
      '36 lines',
      '3 conflicts',
      '4 incomplete sessions',
      '2 contested sessions',
      '2 sessions ended that were still open',
      '11 unverified sessions',
      '40 replayed calls',
      'file-proxy, epoch',
    ]) {
      expect(text, words).toContain(words);
    }
  });

  it('tell how to verify without a network, with a key from elsewhere, and name every file', () => {
    const text = readmeText(sampleFacts(), { oscal: true });
    for (const words of [
      'belay receipt verify EXPORT.zip --key',
      'python3 verify.py EXPORT.zip --key',
      'INDETERMINATE',
      'from somewhere else than this file',
      'entries.ndjson',
      'receipts.ndjson',
      'manifest.json',
      'oscal.json',
      '## Sample it',
    ]) {
      expect(text).toContain(words);
    }
    expect(readmeText(sampleFacts(), { oscal: false })).not.toContain('oscal.json');
  });

  it('are not broken by names', () => {
    const model = hostileModel('a\n# b | <script> [x](https://example.com) `c` **d**');
    for (const text of [limitationsText(model), readmeText(model, { oscal: true })]) {
      expect(text).not.toMatch(/^# b/m);
      expect(text).not.toContain('<script>');
      expect(text).not.toMatch(/(?<!\\)\]\(/);
      expect(text.match(/^\| Log \|/gm)?.length ?? 0).toBeLessThanOrEqual(1);
    }
  });
});

describe('oscal.json', () => {
  const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  const NCNAME = /^[A-Za-z_][A-Za-z0-9._-]*$/;
  const LINE = /^\S(.*\S)?$/;
  const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$/;

  it('has the UUIDs that RFC 9562 gives', () => {
    expect(uuidV5('www.example.com', '6ba7b810-9dad-11d1-80b4-00c04fd430c8')).toBe(
      '2ed6657d-e927-568b-95e1-2665a8aea6a2',
    );
  });

  it.each([
    ['the sample', sampleModel()],
    ['a clean one', cleanModel()],
    ['hostile names', withOurControls(hostileModel(' x\ny\u0000 \u202e '))],
  ])('has the structure of OSCAL 1.1 assessment results: %s', (_name, model) => {
    const text = oscalDocument(model);
    expect(oscalDocument(structuredClone(model))).toBe(text);
    const { 'assessment-results': document } = JSON.parse(text);
    expect(Object.keys(document)).toEqual(['uuid', 'metadata', 'import-ap', 'results', 'back-matter']);
    expect(document.metadata).toMatchObject({ 'oscal-version': '1.1.3', version: String(model.asOf.size) });
    const uuids: string[] = [];
    const walk = (value: unknown, key: string): void => {
      if (Array.isArray(value)) {
        expect(value.length, key).toBeGreaterThan(0);
        for (const each of value) walk(each, key);
      } else if (typeof value === 'object' && value !== null) {
        for (const [name, each] of Object.entries(value)) {
          walk(each, name);
          if (name === 'uuid') uuids.push(String(each));
        }
        if (key === 'props') {
          expect(Object.keys(value).sort()).toEqual(['name', 'ns', 'value']);
          expect(String((value as { name: unknown }).name)).toMatch(NCNAME);
        }
      } else {
        expect(typeof value).toBe('string');
        expect(value).toMatch(LINE);
        if (key.endsWith('uuid')) expect(value).toMatch(UUID);
        if (/^(control-id|target-id|type|state|reason)$/.test(key)) expect(value).toMatch(NCNAME);
        if (/^(start|end|collected|last-modified)$/.test(key)) expect(value).toMatch(TIME);
      }
    };
    walk(document, '');
    expect(new Set(uuids).size).toBe(uuids.length);

    const resources = document['back-matter'].resources.map(({ uuid }: { uuid: string }) => uuid);
    expect(resources).toContain(document['import-ap'].href.slice(1));
    const [result] = document.results;
    expect(result.findings).toHaveLength(model.controls.length);
    for (const [i, finding] of result.findings.entries()) {
      const row = model.controls[i];
      expect(finding.target.status.state).toBe(row?.result === 'shown' ? 'satisfied' : 'not-satisfied');
      expect(finding.props[0]).toMatchObject({ name: 'result', value: row?.result });
      expect(finding['related-observations'][0]['observation-uuid']).toBe(result.observations[i].uuid);
      expect(finding.target['target-id']).toBe(
        result['reviewed-controls']['control-selections'][0]['include-controls'][i]['control-id'],
      );
    }
    for (const { 'relevant-evidence': evidence, methods } of result.observations) {
      expect(resources).toContain(evidence[0].href.slice(1));
      expect(methods).toEqual(['EXAMINE']);
    }
  });

  it('is another document for another log', () => {
    const model = sampleModel();
    const other = { ...model, log: { ...model.log, origin: 'belay.example/other' } };
    const idOf = (text: string): string => JSON.parse(text)['assessment-results'].uuid;
    expect(idOf(oscalDocument(model))).not.toBe(idOf(oscalDocument(other)));
  });
});
