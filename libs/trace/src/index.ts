/**
 * The local record: what crossed the proxy, byte for byte, as a chain of JSON lines. FORMAT.md beside this package
 * has the bytes.
 */
export { ContentReader, contentPath } from './beside.js';
export {
  checkTrace,
  fileLines,
  readRecordAt,
  readTrace,
  repairTrace,
  type FileLine,
  type TraceLine,
  type TraceProblem,
  type TraceProblemCode,
  type TraceRepair,
  type TraceReport,
} from './reader.js';
export {
  recordData,
  RecordError,
  type Command,
  type ImportSource,
  type RecordBody,
  type TraceRecord,
  type WireBody,
  type WorkspaceState,
} from './record.js';
export { TraceWriter, type TraceClock, type TraceEnd, type TraceTail } from './writer.js';
