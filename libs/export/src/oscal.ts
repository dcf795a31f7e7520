/**
 * The table of controls as OSCAL assessment results, for tools that take those. OSCAL knows `satisfied` and
 * `not-satisfied`; our four results are in properties, and only what is shown whole counts as satisfied.
 * https://pages.nist.gov/OSCAL-Reference/models/v1.1.3/assessment-results/json-reference/
 */

import { createHash } from 'node:crypto';
import type { ControlRow, ReportModel } from './report-model.js';
import { visible } from './report-words.js';

const OSCAL_VERSION = '1.1.3';
const PROPERTY_NAMESPACE = 'https://belay.example/ns/oscal';
/** RFC 9562, appendix A: the namespace of URLs. */
const URL_NAMESPACE = '6ba7b811-9dad-11d1-80b4-00c04fd430c8';

/** A UUID of version 5 (RFC 9562, section 5.5). */
export function uuidV5(name: string, namespace: string = URL_NAMESPACE): string {
  const bytes = createHash('sha1')
    .update(Buffer.from(namespace.replaceAll('-', ''), 'hex'))
    .update(name)
    .digest()
    .subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x50, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

interface Property {
  readonly name: string;
  readonly ns: string;
  readonly value: string;
}

/** A name of ours is an NCName; a value is one line without spaces around it. */
const property = (name: string, value: string | number): Property => ({
  name,
  ns: PROPERTY_NAMESPACE,
  value: oneLine(String(value)),
});

const oneLine = (text: string): string => {
  const line = visible(text).replaceAll(/\s+/g, ' ').trim();
  return line === '' ? '-' : line;
};

/** `EU AI Act`, `Art. 12(1)` as a token: `eu-ai-act_art-12-1`. */
const token = ({ framework, control }: ControlRow): string =>
  `${slug(framework)}_${slug(control)}`.replace(/^(?=[^A-Za-z_])/, '_');

const slug = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9.]+/g, '-')
    .replaceAll(/^[-.]+|[-.]+$/g, '');

/** The document as text, the same for the same model: UUIDs are made from the log's origin, size and scope. */
export function oscalDocument(model: ReportModel): string {
  const { log, asOf, project } = model;
  const about = `tlog://${log.origin}?size=${asOf.size}&scope=${encodeURIComponent(model.scope)}`;
  const id = (what: string): string => uuidV5(`${about}#${what}`);
  const time = asOf.time;
  const plan = id('assessment-plan');
  const manifest = id('manifest');
  const results = {
    uuid: id('result'),
    title: oneLine(`Evidence from the log ${log.origin}`),
    description: oneLine(
      `What the log shows as of ${asOf.size} entries, scope: ${model.scope}. Evidence only: whether a control is met is for the assessor to say.`,
    ),
    start: model.period?.from ?? model.first ?? time,
    end: time,
    props: [
      property('log-origin', log.origin),
      property('log-size', asOf.size),
      property('entries-included', model.entries.included),
      property('entries-omitted', model.entries.omitted),
      ...Object.entries(model.dispositions).map(([status, count]) => property(`sessions-${status}`, count)),
      ...Object.entries(model.coverage).map(([status, count]) => property(`coverage-${status}`, count)),
    ],
    'reviewed-controls': {
      'control-selections': [
        { 'include-controls': model.controls.map((row) => ({ 'control-id': token(row) })) },
      ],
    },
    observations: model.controls.map((row) => ({
      uuid: id(`observation/${token(row)}`),
      title: oneLine(`${row.framework} ${row.control}`),
      description: oneLine(row.evidence),
      props: [property('result', row.result)],
      methods: ['EXAMINE'],
      types: ['control-objective'],
      'relevant-evidence': [{ href: `#${manifest}`, description: oneLine(row.evidence) }],
      collected: time,
      remarks: oneLine(row.limits),
    })),
    findings: model.controls.map((row) => ({
      uuid: id(`finding/${token(row)}`),
      title: oneLine(`${row.framework} ${row.control}`),
      description: oneLine(row.asks),
      props: [property('result', row.result), property('framework', row.framework)],
      target: {
        type: 'objective-id',
        'target-id': token(row),
        status: {
          state: row.result === 'shown' ? 'satisfied' : 'not-satisfied',
          reason: row.result === 'shown' ? 'pass' : 'other',
          remarks: oneLine(`${row.result.replace('_', ' ')}: ${row.limits}`),
        },
      },
      'related-observations': [{ 'observation-uuid': id(`observation/${token(row)}`) }],
    })),
  };
  const document = {
    'assessment-results': {
      uuid: id('document'),
      metadata: {
        title: oneLine(`Evidence of tool calls of AI agents: ${project.name}`),
        'last-modified': time,
        version: `${asOf.size}`,
        'oscal-version': OSCAL_VERSION,
        props: [property('project', project.id)],
        remarks:
          'Findings say what evidence an export holds. Anything but "shown" is not-satisfied, with the result in a property. Not legal advice.',
      },
      'import-ap': { href: `#${plan}` },
      results: [results],
      'back-matter': {
        resources: [
          {
            uuid: plan,
            title: 'No assessment plan',
            description: 'The export was made on request, not under an OSCAL assessment plan.',
          },
          {
            uuid: manifest,
            title: 'Manifest of the export',
            description: 'Names every file with its SHA-256, signed by the key of the log.',
            rlinks: [{ href: './manifest.json', 'media-type': 'application/json' }],
          },
        ],
      },
    },
  };
  return `${JSON.stringify(document, undefined, 2)}\n`;
}
