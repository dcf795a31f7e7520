import type { ReportModel } from '../src/report-model.js';
import { sampleModel } from './sample-model.js';

/** Words that our own code decides on, or that have a form: everything else is somebody's. */
const OURS = new Set([
  'status',
  'disposition',
  'coverage',
  'result',
  'attrs',
  'time',
  'from',
  'to',
  'first',
  'last',
  'began',
]);

/** The sample with `text` in place of every name and sentence that comes from outside. */
export function hostileModel(text: string): ReportModel {
  const change = (value: unknown, key: string): unknown => {
    if (typeof value === 'string') return OURS.has(key) ? value : text;
    if (Array.isArray(value)) return value.map((each) => change(each, ''));
    if (typeof value === 'object' && value !== null) {
      return Object.fromEntries(
        Object.entries(value).map(([name, each]) => [key === 'causes' ? text : name, change(each, name)]),
      );
    }
    return value;
  };
  return change(sampleModel(), '') as ReportModel;
}
