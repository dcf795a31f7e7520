export { type ArchivedFile, ArchiveWriter, contentOf, readArchive } from './archive.js';
export {
  buildExport,
  type BuildOptions,
  type BuiltExport,
  type ExportPhase,
  type ExportProgress,
  type ExportSource,
} from './build.js';
export type { IndexSpan, NodeSource } from './entries-file.js';
export { type EpochFacts, selectEntries, type SelectionFacts, wholeEpochs } from './selection.js';
export {
  EXPORT_CHECKS,
  type ExaminedExport,
  type ExportCheck,
  type Unchosen,
  unchosenText,
  verifyExport,
  type VerifyOptions,
  type VerifyProgress,
} from './verify.js';
export { ExportError, type ExportErrorCode } from './error.js';
export {
  EXPORT_FILES,
  EXPORT_PREDICATE_TYPE,
  type ExportFile,
  type ExportManifest,
  type ExportRequest,
  formatManifest,
  MANIFEST_FILE,
  type ManifestFile,
  MAX_MANIFEST_BYTES,
  MAX_REQUEST_SESSIONS,
  normaliseRequest,
  parseManifest,
} from './manifest.js';
export { PAGES_VERSION } from './pages.js';
export { thriftily } from './thrift.js';
export { absenceRows } from './absence.js';
export { controlRows } from './controls.js';
export { limitationsOf, limitationsText, readmeText } from './limitations.js';
export { oscalDocument } from './oscal.js';
export { renderReport } from './report-html.js';
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
} from './report-model.js';
