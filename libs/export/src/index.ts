export { absenceRows } from './absence.js';
export { controlRows } from './controls.js';
export { limitationsOf, limitationsText, readmeText } from './limitations.js';
export { oscalDocument } from './oscal.js';
export type {
  AbsenceRow,
  ControlRow,
  DispositionStatus,
  FoundCounts,
  ReportEpoch,
  ReportFacts,
  ReportModel,
  ReportSession,
  ReportSink,
  VerdictCounts,
} from './report-model.js';
