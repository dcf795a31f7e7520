export type {
  AbsenceRow,
  ControlRow,
  DispositionStatus,
  ReportEpoch,
  ReportModel,
  ReportSession,
  ReportSink,
  VerdictCounts,
} from './report-model.js';
