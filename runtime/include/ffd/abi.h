/*===- abi.h - What a compiled decode kernel is called with -------*- C -*-===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*
|*
|* The binary interface between generated kernels and whoever launches them: the
|* same struct on every target. C11.
|*
|*   CPU  void NAME(const ffdDecodeArgs *args, int64_t row, int64_t split);
|*        called once for every row < batch * kv_heads and split < splits, in
|*        any order, from any thread.
|*   GPU  one kernel parameter, the struct by value; grid = batch * kv_heads *
|*        splits CTAs in x (row-major: row * splits + split), or `pieces` with a
|*        plan; block and dynamic shared memory as the package says.
|*
|* All pieces of a row leave partial results in the workspace; the one that
|* arrives last merges them in a fixed order, so results do not depend on
|* scheduling.
|*
\*===----------------------------------------------------------------------===*/
#ifndef FFD_ABI_H
#define FFD_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a field of the structs below or the layout changes. */
#define FFD_ABI_VERSION 6

typedef enum ffdElement { FFD_F16 = 0, FFD_BF16 = 1 } ffdElement;

/* What is subtracted from the keys of a row (sequence and kv head) before
 * anything else sees them: nothing, or the mean of the row's first block
 * (docs/numerics.md, "Centred keys"). */
typedef enum ffdCentre { FFD_CENTRE_NONE = 0, FFD_CENTRE_ROW = 1 } ffdCentre;

/* Which scores of the first and the last committed block the pseudo-max is
 * taken from (select_c1, select_c5 of docs/numerics.md). Refined ones are
 * recommended (docs/quality.md); 0 remains the scan's, or programs that know no
 * such field would compute something else. */
typedef enum ffdPseudoMax {
  FFD_PSEUDO_MAX_SCAN = 0,   /* the scan's: nothing more is read              */
  FFD_PSEUDO_MAX_REFINED = 1 /* refined ones: residuals of two blocks are read,
                                and their maximum has no noise to rise with   */
} ffdPseudoMax;

/* Whether a decode also estimates the softmax mass of what it skips (cert_c1 to
 * cert_c4 of docs/numerics.md). */
typedef enum ffdCertificate {
  FFD_CERTIFICATE_NONE = 0,  /* no                                            */
  FFD_CERTIFICATE_PLAIN = 1, /* from the scan's estimates as they are: nearly
                                always too much rather than too little        */
  FFD_CERTIFICATE_NOISE = 2  /* less what their noise adds: nearer, no bound  */
} ffdCertificate;

/* One kernel specialisation. Limits: head_dim 64, 80, 96, 128, 192 or 256;
 * value_dim a multiple of 16 up to 256; group 1..16; scan_bits 2, 4 or 8;
 * quant_block 128; select_block 16, 32, 64 or 128. For ablations on a CPU also
 * no_residuals 1, and scan_bits 16, keys that are not split, with no_residuals 1. */
typedef struct ffdSpec {
  int32_t head_dim;
  int32_t value_dim;
  int32_t group;        /* query heads per kv head */
  int32_t element;      /* ffdElement of q, K, V, scales and smax */
  int32_t scan_bits;
  int32_t quant_block;
  int32_t select_block;
  int32_t no_residuals; /* 1: attention over the thumbnails alone; else 0    */
  int32_t query_tokens; /* newest tokens of a sequence that ask at once, 1..8,
                           group * query_tokens at most 16; 0 is 1 */
  int32_t centre;       /* ffdCentre: what the cache's keys are relative to   */
  /* Of a decode; other programs do not depend on them. They share a word, so
   * that the struct stays 44 bytes: an int32 pseudo_max reads as certificate 0. */
  int16_t pseudo_max;   /* ffdPseudoMax                                       */
  int16_t certificate;  /* ffdCertificate, with scan_bits 2, 4 or 8           */
} ffdSpec;

/* One piece of a planned launch on a GPU: CTA i does piece i. 48 bytes. */
typedef struct ffdPiece {
  int32_t row;    /* slot * kv_heads + head: of tables, tails, smax, kept mask
                     and counters; negative: nothing to do                    */
  int32_t split;  /* which piece of the row                                   */
  int32_t splits; /* pieces of the row, >= 1                                  */
  int32_t first;  /* partial results of the row start at this one             */
  int32_t length; /* visible tokens of the sequence                           */
  int32_t reserved[3];
  int32_t place;  /* of the sequence in q, out and lse, below batch           */
  int32_t blocks; /* committed blocks of the sequence                         */
  int32_t reserved2[2];
} ffdPiece;

/* Shapes are in elements, strides as named; row = sequence * kv_heads + head.
 * Pointers are device pointers on a GPU. Everything is contiguous unless it has
 * a stride. Planes are laid out as layout.h says. Alignment: 16 bytes for q,
 * planes, smax, centre, tails, out and workspace. Strides of q are multiples of
 * 8. */
typedef struct ffdDecodeArgs {
  const void *q;             /* [batch][query_tokens][kv_heads * group]
                                [head_dim] element                            */
  const void *thumbnails;    /* plane, see layout.h                           */
  const void *residuals;     /* plane                                         */
  const void *values;        /* plane                                         */
  const void *smax;          /* [row][padded head_dim] element, scale order   */
  const void *tail_k;        /* [sequence][kv head][token][head_dim] element  */
  const void *tail_v;        /* [sequence][kv head][token][value_dim] element */
  const int32_t *page_table; /* [batch][page_stride] page ids                 */
  const int32_t *lengths;    /* [batch] visible tokens, >= 0                  */
  const float *delta;        /* [batch] threshold in natural-log units        */
  float *out;                /* [batch][query_tokens][kv_heads * group]
                                [value_dim]                                   */
  float *lse;                /* [batch][query_tokens][kv_heads * group] natural
                                log, or NULL                                  */
  uint8_t *kept;             /* [row][kept_stride] one byte per selection
                                block of the committed tokens, or NULL        */
  void *workspace;           /* Layout::workspaceBytes, counters zero         */
  uint64_t *kept_count;      /* [row] the number of selection blocks kept is
                                added here, or NULL                           */
  const ffdPiece *plan;      /* [pieces] on a GPU, or NULL: every row has
                                `splits` pieces                               */
  int64_t q_batch_stride;    /* elements                                      */
  int64_t q_head_stride;     /* elements                                      */
  int64_t q_token_stride;    /* elements; not read with one query token       */
  int64_t page_stride;       /* entries                                       */
  int64_t kept_stride;       /* bytes                                         */
  int64_t tail_batch_stride; /* token rows (head_dim or value_dim elements)   */
  int64_t tail_head_stride;  /* token rows                                    */
  int32_t batch;
  int32_t kv_heads;
  int32_t splits;            /* pieces per row, >= 1; not read with a plan    */
  int32_t lag;               /* newest tokens that stay in 16 bit, >= 0       */
  float sm_scale;            /* softmax scale, > 0                            */
  int32_t pieces;            /* entries of plan, 0 without one                */
  const void *centre;        /* [row][head_dim] element: c, 0 for a row without
                                committed blocks. Read for lse where the spec
                                has FFD_CENTRE_ROW; else NULL will do         */
  float *skipped_lse;        /* [batch][query_tokens][kv_heads * group] natural
                                log of the estimated mass that is skipped, or
                                NULL; not read without a certificate          */
} ffdDecodeArgs;

/* Without a plan, sequence b of the batch is slot b of the tables, tails and
 * smax, and has floor(max(0, length - lag) / 128) committed blocks. With one, its
 * slot and blocks are what its pieces say; workspace counters go by
 * place * kv_heads + head.
 * Also part of the contract:
 *  - query token i of n sees the first length - n + i + 1 tokens; lag is at
 *    least n - 1, so that they are all or partly in the tail;
 *  - pieces may be empty (splits may exceed the blocks of a row);
 *  - planes and page_table may be NULL if no sequence has committed blocks, the
 *    tails if none has tail tokens: kernels do not read them then;
 *  - bytes of kept beyond the selection blocks of a sequence are not written;
 *  - tail_batch_stride may be 0 (all sequences share K and V). */

/* Arguments of an exact decode (`ffd.exact`) are the same struct: K and V are
 * the whole sequence, row-major, in tail_k and tail_v with the tail strides;
 * planes, smax, centre, page_table, delta and kept are not read, skipped_lse is
 * not written. */

/* The kernel "plan" (GPU only) writes a plan for a batch whose lengths are on
 * the device: what planPieces of Plan.h does. One parameter, this struct by
 * value; one CTA, block and shared memory as the package says. One launch
 * serves all layers of a step. */
#define FFD_PLAN_MAX_BATCH 4096

typedef struct ffdPlanArgs {
  const int32_t *lengths;   /* [slot] visible tokens                          */
  ffdPiece *plan;           /* [pieces], 16-byte aligned                      */
  int32_t *error;           /* set to 1 if the pieces do not fit, or NULL; the
                               plan is then empty                             */
  int32_t batch;            /* 1 .. FFD_PLAN_MAX_BATCH                        */
  int32_t kv_heads;
  int32_t lag;              /* newest tokens that stay in 16 bit, >= 0        */
  int32_t pieces;           /* entries to write: the grid of the decode; at
                               least target and batch * kv_heads              */
  int32_t target;           /* pieces to aim at                               */
  int32_t blocks_per_piece; /* 0, or the size of a piece: results of a row then
                               do not depend on its batch                     */
  const int32_t *slots;     /* [batch] where each sequence is, at most once; no
                               slot (negative, or not below slot_count) gets no
                               piece, and its results are not written. NULL:
                               sequence b in slot b                           */
  const int32_t *committed; /* [slot] blocks that are committed although fewer
                               are older than the lag, or NULL: none are      */
  int32_t slot_count;       /* slots there are; not read without `slots`      */
  int32_t multiprocessors;  /* 0, or to aim at fewer pieces than target where
                               that is better (Plan.h): of the GPU            */
  int32_t resident;         /* CTAs of the decode that it holds at a time     */
} ffdPlanArgs;

/* Why an append left a sequence alone: bits of ffdAppendArgs::errors. */
typedef enum ffdAppendError {
  FFD_APPEND_BEYOND_RESERVATION = 1, /* more committed blocks than reserved   */
  FFD_APPEND_BAD_PAGE = 2,           /* a page id below 0 or not below pages  */
  FFD_APPEND_TAIL_TOO_SHORT = 4,     /* the rest exceeds tail_tokens          */
  FFD_APPEND_BAD_LENGTH = 8          /* a length below 0, offsets that fall, or
                                        a sum above 2^31 - 1                  */
} ffdAppendError;

/* Appends tokens to many sequences at once (`ffd.append`), on a GPU: one kernel
 * parameter, the struct by value; grid = batch * kv_heads * splits CTAs in x.
 * Everything but the grid is read on the device, so a captured launch stays
 * valid while sequences grow.
 *
 * Blocks that are complete and older than `lag` are committed, their bytes the
 * same as the CPU's. A sequence that cannot take its tokens stays as it is, and
 * its word of `errors` gets the reasons; the others are not affected.
 *
 * Shapes, strides and alignment as in ffdDecodeArgs; k and v have 16 bytes too.
 * k and v may be NULL if no sequence gets tokens, planes and page_table if none
 * has or commits blocks. */
typedef struct ffdAppendArgs {
  const void *k;             /* [token][kv head][head_dim] element, the new
                                tokens of all sequences                       */
  const void *v;             /* [token][kv head][value_dim] element           */
  void *thumbnails;          /* plane                                         */
  void *residuals;           /* plane                                         */
  void *values;              /* plane                                         */
  void *smax;                /* [row][padded head_dim]; a row that had no
                                committed blocks starts from zero             */
  void *tail_k;              /* [sequence][kv head][token][head_dim]          */
  void *tail_v;              /* [sequence][kv head][token][value_dim]         */
  const int32_t *page_table; /* [batch][page_stride] page ids                 */
  const int32_t *lengths;    /* [batch] tokens before the append              */
  int32_t *new_lengths;      /* [batch] receives the tokens after it; may be
                                `lengths` itself, or NULL                     */
  const int32_t *offsets;    /* [batch + 1] sequence b gets rows offsets[b] up
                                to offsets[b + 1] - 1 of k and v              */
  const int32_t *reserved;   /* [batch] entries of page_table that are valid;
                                negative: no sequence, which takes no token   */
  int32_t *errors;           /* [batch] bits of ffdAppendError are added, none
                                is ever taken away                            */
  void *workspace;           /* Layout::appendWorkspaceBytes, counters zero (a
                                launch leaves them zero); NULL will do with one
                                split and lengths that stay                   */
  int64_t k_token_stride;    /* elements, a multiple of 8                     */
  int64_t k_head_stride;     /* elements, a multiple of 8                     */
  int64_t v_token_stride;    /* elements, a multiple of 8                     */
  int64_t v_head_stride;     /* elements, a multiple of 8                     */
  int64_t page_stride;       /* entries                                       */
  int64_t tail_batch_stride; /* token rows, not 0                             */
  int64_t tail_head_stride;  /* token rows                                    */
  int32_t batch;
  int32_t kv_heads;
  int32_t splits;            /* pieces per row, >= 1: they share its blocks    */
  int32_t lag;               /* that of every append and decode of the cache  */
  int32_t pages;             /* slots of the planes: ids are below it         */
  int32_t tail_tokens;       /* token rows of one (sequence, kv head) tail    */
  void *centre;              /* [row][head_dim] element, where the spec has
                                FFD_CENTRE_ROW: receives c with the row's first
                                committed block, 0 before; else NULL will do  */
  const int32_t *slots;      /* [batch] where each sequence is in smax, tails,
                                page_table, lengths, new_lengths, reserved,
                                errors and committed, at most once; no slot
                                (negative, or not below slot_count) takes no
                                token. NULL: sequence b in slot b             */
  const int32_t *committed;  /* [slot] blocks that are committed although fewer
                                are older than the lag (after a truncation), or
                                NULL: none are                                */
  int32_t slot_count;        /* slots there are; not read without `slots`     */
} ffdAppendArgs;

#ifdef __cplusplus
}
#endif
#endif /* FFD_ABI_H */
