/**
 * The Merkle tree of RFC 6962 (section 2.1; the same in RFC 9162): hashes, compact ranges, inclusion,
 * consistency, subtree and range proofs, and the C2SP tile layout. Pure: no I/O, no clock, no randomness.
 *
 * Sizes and indexes are `bigint`, unsigned 64-bit. Hashes are Buffers of exactly 32 bytes. Functions that verify
 * return nothing and throw `MerkleError`.
 */
export { MerkleError, type MerkleErrorCode, type MerkleEvidence } from './error.js';
export { EMPTY_ROOT, foldNodes, type Hash, HASH_SIZE, leafHash, leafHashOf, nodeHash } from './hash.js';
export {
  CompactRange,
  decompose,
  MAX_PROOF,
  MAX_SIZE,
  type NodeId,
  type RangeProof,
  rangeRoot,
  verifyRange,
} from './range.js';
export {
  type ConsistencyProof,
  consistencyPlan,
  type InclusionProof,
  inclusionPlan,
  verifyConsistency,
  verifyInclusion,
} from './proof.js';
export { type Subtree, verifySubtreeConsistency, verifySubtreeInclusion } from './subtree.js';
export {
  entriesPath,
  entryBundle,
  hashTile,
  MAX_BUNDLE_ENTRY,
  parseEntryBundle,
  parseTilePath,
  partialWidth,
  TILE_WIDTH,
  type TilePath,
  tileOf,
  tilePath,
  type TileSpan,
} from './tile.js';
