// Every measured constant of the kernels: what it decides and how it was measured.
//
// Unless an entry says more, the record is this: the value was chosen among its neighbors by the
// time of `adasparse bench attention` or `adasparse bench ops` on an AMD EPYC with AVX-512 and 2
// threads. The curves around these values are flat, so other processors lose little; to tune for
// one, change a constant, rebuild and run the command again. None of them changes a result by more
// than rounding, and none depends on the number of threads, so results do not either.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adasparse {

// ---------------------------------------------------------------- tasks

// Numbers in the rows of one task of a row operator or loss: about the size of an L2 cache with
// inputs and outputs, and enough to hide the cost of taking a task.
constexpr int64_t kBlockNumbers = 32768;
// A task of a row operator has a multiple of this many rows, so that lanes of any width are full.
constexpr int64_t kRowMultiple = 16;
// Heads of a sequence form one task if each thread then still gets this many sequences.
constexpr int64_t kSequencesPerThread = 4;

// A sequence of a packed batch is divided among all threads if its share of the work is more than
// one in this many of a thread's.
constexpr int64_t kLongSequenceShare = 2;

// ---------------------------------------------------------------- rows

// Up to here the row operator solves one row per lane, rather than one row at a time. Attention,
// whose rows are in the cache already, does so up to kLaneKeys.
constexpr int64_t kOperatorLaneRow = 64;
constexpr int64_t kLaneKeys = 128;
// Above this alpha - 1, other than 1/2 and 1, only candidates of such rows are solved: packing them
// pays where they are about half of the scores. 8192 rows of 64 normal scores, AVX-512: 0.8 of the
// speed at 0.25, 0.9 at 0.3, 1.2 times at 0.4, 2.1 at 0.75.
constexpr double kPackedEpsilon = 0.35;
// Vectors at the start of a row from which the share of candidates is estimated.
constexpr int64_t kSampledVectors = 8;
// Bounds of c are improved until the sum is within this of one. Further steps cost more than they
// save the steps that follow.
constexpr double kGuessSlack = 0.03;

// Weights, and rows, whose gradients are computed together in the backward pass of the row
// operator, and the share of weights of a row that are not zero up to which they are packed first:
// at 0.75, packing costs what it saves.
constexpr int64_t kSlopeNumbers = 2048, kGradientRows = 32;
constexpr double kPackedShare = 0.5;
// Longer rows take their turn, unless there is a gradient with respect to alpha: in rows of 1,024
// that takes three quarters of the time where half of the weights are zero.
constexpr int64_t kSeparateSlopes = 256;

// ---------------------------------------------------------------- attention, forward

// Queries scored together: a multiple of the rows of every register tile (12, 6 and 4). Their
// scores of one chunk of keys fit an L1 cache.
constexpr int64_t kStripRows = 24;
// Keys scored at a time while candidates are selected, and summed at a time in products.
constexpr int64_t kChunkKeys = 256;
// A strip of scores of up to this many keys fits an L2 cache: rows with many candidates are then
// selected from all scores at once, which bounds the normalizer better than chunk by chunk.
constexpr int64_t kCachedKeys = 4096;
// Share of candidates in the first chunk of keys above which a row is solved without selecting any,
// and above which its scores are computed before candidates are selected.
constexpr double kBroadSample = 0.8, kManySample = 0.15;
// Up to this many queries per head of keys, packing the keys into panels does not pay.
constexpr int64_t kUnpackedQueries = 3;
// Rows that see at most one in this many of the keys are too few to call a head dense.
constexpr int64_t kFewKeys = 4;
// Rows of up to this many candidates are solved one per lane. Twice as many gain nothing.
constexpr int64_t kFewCandidates = 64;
// Candidates of a row that are not worth a better bound of its normalizer.
constexpr int64_t kLooseCandidates = 128;
// The bound of a normalizer, before its row is solved, is a multiple of this above the maximum,
// found once the sum of weights is within kSettledMass of one, and known within kSettledError: a
// larger step leaves more candidates and work for the solver, a smaller one decides more often on
// which side of a multiple the root lies.
constexpr double kSettledStep = 1. / 256, kSettledMass = 1e-4, kSettledError = 1e-4;
// Scores are screened in int8 first for rows of at least this many keys and this head size, where
// this many queries share the codes of a head of keys,
constexpr int64_t kScreenedKeys = 320, kScreenedSize = 16, kScreenedQueries = 48;
// if at most this share of a sample, the first chunk of keys of one row, would be left as
// candidates by their codes. Measured at head size 64 with alpha 1.36, 1.44 and 1.5 for 384 to 4096
// keys, and limits from 0.15 to 0.4: the largest with which no forward is slower by more than 3
// percent. Long rows have fewer candidates than their sample.
inline double screened_sample(int64_t keys) { return keys < 768 ? 0.15 : keys < 2048 ? 0.2 : 0.3; }
// Screening ends where more than this share of all scanned keys is left: computing their scores one
// by one then costs more than the tiles of all.
constexpr double kScreenedShare = 0.15;
// A channel of keys whose largest number is this many times the mean of those of all channels is
// scaled down before it is coded. With one channel 10 and 30 times the others (and queries a tenth
// there), 2048 keys and alpha 1.5, the forward is 1.4 and 1.9 times as fast as without.
constexpr float kBalancedExcess = 4;
// Keys whose codes are scored before candidates are taken: a strip of their scores fits an L2
// cache.
constexpr int64_t kScannedKeys = 4096;
// Heads of single queries (decoding) that one task scores, one sequence per lane.
constexpr int64_t kDecodeHeads = 8;
// Up to this many queries per head, more than kLaneKeys keys are read once for all of a group and
// in parts, see decode.h; then the number of keys of a part, and the bytes of scores that may wait.
constexpr int64_t kDecodeQueries = 16;
constexpr int64_t kDecodeKeys = 2048, kDecodeBytes = int64_t{1} << 22;
// Panels of codes that are scored while the next ones are fetched from memory.
constexpr int64_t kFetchedPanels = 8;
// Fewer keys than this are scored as they are, even if they come with codes; so are all if an alpha
// of the group is at most the second. Rows with more than one in so many of the keys left after
// screening are scored again, as they are.
constexpr int64_t kDecodedCodes = 512;
constexpr double kDecodedAlpha = 1.1;
constexpr int64_t kDecodedShare = 4;

// ---------------------------------------------------------------- what is saved for backward

// Up to this many keys, and queries of a head, weights are saved whole rather than as a support.
constexpr int64_t kWholeKeys = 64, kWholeQueries = 1024;
// Bytes that the support of one call may take; heads beyond that are recomputed in backward. A
// choice, not a measurement: 512 MiB hold 64 Mi entries of float32.
constexpr int64_t kSupportBytes = int64_t{1} << 29;
// A row may always keep this many entries, within kSupportBytes.
constexpr int64_t kLeastRowLimit = 64;
// Density from which recomputing a head costs less than saving and walking its support. Forward and
// backward of 4096 keys: at a density of 0.45 recomputing takes 0.9 of the time, at 0.3 1.25. For
// few keys the support is never worse.
constexpr int64_t kSupportKeys = 32;
constexpr double kDenseShare = 0.4;

// ---------------------------------------------------------------- attention, backward

// Density of whole weights from which products of matrices beat walking what is not zero.
constexpr double kWholeDenseShare = 0.4;
// Queries of a task that walks the support, and of a transposed tile of entries.
constexpr int64_t kWalkRows = 128;
// Entries that are walked and summed before the next chunk: they are still in an L2 or L3 cache.
constexpr int64_t kChunkEntries = int64_t{1} << 19;
// Tasks wanted for sums over queries, and the bytes they add up in where possible (an L2 cache).
constexpr int64_t kSumTasks = 16, kSumBytes = int64_t{1} << 18;
// Keys of a tile of entries that is transposed, and the entries per row of a tile from which
// transposing pays.
constexpr int64_t kTileKeys = 256, kTileEntries = 8;
// Rows of a tile, and entries of a row, that are fetched ahead of their use.
constexpr int64_t kRowsAhead = 3, kEntriesAhead = 4;
// Dense heads: up to this many queries per chunk if that leaves no more chunks over all heads than
// the second number, and the bytes that their sums may take where possible. Half as many queries
// leave twice the sums to clear and to add up.
constexpr int64_t kChunkRows = 480, kDenseTasks = 64, kChunkBytes = int64_t{1} << 27;

// ---------------------------------------------------------------- memory

// Results and scratch memory of at least this many bytes lie in large pages. Smaller ones mostly
// get the memory of earlier ones, which needs no fresh pages. A choice, not a measurement: packed
// batches of 64 sequences, with results of 50 MB, and rows of 32,000 classes gain, nothing was seen
// to lose.
constexpr size_t kLargeResult = size_t{8} << 20;
// Scratch memory that a thread keeps for its next call.
constexpr int kKeptBlocks = 16;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kKeptBytes = 0;  // so that AddressSanitizer sees a use after the end
#else
constexpr size_t kKeptBytes = size_t{8} << 20;
#endif

}  // namespace adasparse
