/*===- ffd.h - The C interface of the FFD runtime ------------------*- C -*-===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*
|*
|* What an inference engine links against: contexts, kernels, paged split caches
|* and the operations on their sequences. C11; no LLVM, no CUDA at link time.
|* docs/runtime.md tells the story, docs/numerics.md what every number means,
|* ffd.hpp wraps the handles for C++.
|*
|* Conventions of every function
|*   Errors     An ffdStatus; anything but FFD_SUCCESS leaves all objects and
|*              outputs as they were unless said otherwise, and leaves a message
|*              that names the thing, its value and what was expected in
|*              ffdLastErrorMessage() of the calling thread.
|*   Options    Structs begin with their own size. Call the Init function, then
|*              set fields: programs built against an older header keep working.
|*              New fields come at the end, with 0 for what the library did
|*              before; those that a program's struct is too short for are 0.
|*              Structs without a size (ffdSpec, ffdLayerMemory,
|*              ffdHeadStatistics) stay as they are in the versions that
|*              FFD_API_VERSION says to go together.
|*   Units      Lengths and positions are tokens, sizes are bytes, strides are
|*              elements, delta and lse are natural-log units.
|*   Ownership  Create functions return objects that the caller destroys. A
|*              kernel or cache keeps its context alive, a cache its kernel, so
|*              the order of destruction does not matter. Destroying NULL is
|*              allowed. Pointers in options are read during the call only,
|*              except the memory of a cache (ffdCacheOptions.memory).
|*   Threads    A context and a kernel may be used from any number of threads at
|*              once. A cache is used by one thread at a time; different caches
|*              are independent.
|*   Streams    An ffdStream is a CUstream of the context's device (NULL: the
|*              default stream). Functions that take one enqueue their device
|*              work there; unless marked "waits" they do not wait for it. A
|*              cache's calls must be ordered with each other, by one stream or
|*              by events. Ignored on the CPU, where every call has finished its
|*              work when it returns. The thread's current CUDA context is as
|*              before after every call.
|*   State      There is none outside of the objects (and each thread's last
|*              message).
|*
\*===----------------------------------------------------------------------===*/
#ifndef FFD_FFD_H
#define FFD_FFD_H

#include "ffd/abi.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define FFD_API __attribute__((visibility("default")))
#else
#define FFD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*===--- Versions and errors -----------------------------------------------===*/

/* The version of this header: 10000 * major + 100 * minor + patch. A library
 * serves headers of its own major version (before 1.0: its own minor version)
 * that are not newer than itself. */
#define FFD_API_VERSION 100

/* FFD_API_VERSION of the library. */
FFD_API uint32_t ffdApiVersion(void);
/* FFD_ABI_VERSION (abi.h) of the library: which kernels it can run. */
FFD_API uint32_t ffdAbiVersion(void);

typedef enum ffdStatus {
  FFD_SUCCESS = 0,
  FFD_INVALID_ARGUMENT = 1, /* the caller passed what the documents rule out  */
  FFD_OUT_OF_MEMORY = 2,    /* host or device memory, or a size overflows     */
  FFD_NOT_FOUND = 3,        /* a file, library, kernel or device is not there */
  FFD_UNSUPPORTED = 4,      /* valid, but not on this machine or version      */
  FFD_CORRUPT = 5,          /* data that fails its own checks                 */
  FFD_IO_ERROR = 6,         /* the system refused a read or a write           */
  FFD_DEVICE_ERROR = 7,     /* the CUDA driver reported an error              */
  FFD_COMPILE_ERROR = 8,    /* the compiler reported an error                 */
  FFD_OUT_OF_PAGES = 9,     /* the page pool is exhausted; nothing changed    */
  FFD_OUT_OF_SEQUENCES = 10,/* all sequence slots are taken                   */
  FFD_NOT_READY = 11        /* an enqueued result is not there yet            */
} ffdStatus;

/* "FFD_SUCCESS" ...; never NULL, whatever the number. */
FFD_API const char *ffdStatusName(int32_t status);
/* Why the last call of this thread that failed did so; "" if none has. Valid
 * until the next failing call of the thread. */
FFD_API const char *ffdLastErrorMessage(void);

/* Called with every error of a context and its objects, and with notes that are
 * no errors (`status` is FFD_SUCCESS): packages passed over, caches that cannot
 * be written. From the thread of the call; must not call back into the object.
 */
typedef void (*ffdDiagnosticFn)(void *user, ffdStatus status,
                                const char *message);

/*===--- Contexts ----------------------------------------------------------===*/

typedef struct ffdContext ffdContext;
typedef void *ffdStream;

typedef enum ffdDevice { FFD_DEVICE_CPU = 0, FFD_DEVICE_CUDA = 1 } ffdDevice;

typedef struct ffdContextOptions {
  size_t struct_size;
  int32_t device;       /* ffdDevice                                          */
  int32_t ordinal;      /* CUDA: which device                                 */
  void *cuda_context;   /* CUDA: a CUcontext of that device that outlives the
                           context; NULL: the primary one, retained           */
  int32_t threads;      /* CPU: threads of the pool; 0: every core the process
                           may run on                                         */
  int32_t use_compiler; /* nonzero: load libffd-jit for kernels that are found
                           nowhere else                                       */
  const char *package_dir; /* folder of kernel packages; NULL: none           */
  const char *compiler;    /* path of libffd-jit; NULL: beside libffd, then
                              where the system looks                          */
  const char *kernel_cache_dir; /* folder for compiled kernels; NULL:
                              $FFD_CACHE_DIR, else $XDG_CACHE_HOME/ffd, else
                              $HOME/.cache/ffd; "": none                      */
  const char *cuda_driver; /* path of libcuda; NULL: as the system finds it   */
  ffdDiagnosticFn diagnostic; /* or NULL                                      */
  void *diagnostic_user;
} ffdContextOptions;

static inline void ffdContextOptionsInit(ffdContextOptions *options) {
  memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
  options->use_compiler = 1;
}

/* Opens a device. NULL options: the CPU with all defaults. */
FFD_API ffdStatus ffdContextCreate(const ffdContextOptions *options,
                                   ffdContext **context);
FFD_API void ffdContextDestroy(ffdContext *context);

typedef struct ffdContextInfo {
  size_t struct_size;
  int32_t device;          /* ffdDevice                                       */
  int32_t threads;         /* CPU                                             */
  int32_t multiprocessors; /* CUDA                                            */
  int32_t driver_version;  /* CUDA: 12040 is CUDA 12.4                        */
  uint64_t memory_bytes;   /* CUDA: of the device                             */
  char name[64];           /* of the device; "cpu"                            */
  char arch[16];           /* what kernels are compiled for: "sm_90a", "cpu"  */
} ffdContextInfo;

/* The caller sets struct_size. */
FFD_API ffdStatus ffdContextGetInfo(const ffdContext *context,
                                    ffdContextInfo *info);

/*===--- Kernels -----------------------------------------------------------===*/

typedef struct ffdKernel ffdKernel;

/* Finds the kernels of a specification: in the context's package folder, else
 * in its cache of compiled kernels, else by compiling them (which takes up to a
 * second, and stores them). Kernels stay loaded as long as the context: asking
 * again is cheap. May allocate and wait. */
FFD_API ffdStatus ffdKernelCreate(ffdContext *context, const ffdSpec *spec,
                                  ffdKernel **kernel);
FFD_API void ffdKernelDestroy(ffdKernel *kernel);
/* What it was compiled for: "cpu:avx512", "sm_90a". Lives as long as the
 * kernel. */
FFD_API const char *ffdKernelTarget(const ffdKernel *kernel);

/* Bytes of workspace that a decode needs (ffdDecodeArgs.workspace). */
FFD_API ffdStatus ffdKernelWorkspaceBytes(const ffdKernel *kernel,
                                          int32_t batch, int32_t kv_heads,
                                          int32_t splits, uint64_t *bytes);
/* One decode over memory that is all the caller's, for engines that manage
 * pages, tails and lengths themselves: abi.h describes the arguments. Host
 * pointers on the CPU, where everything is checked; device pointers on CUDA,
 * where only what the host sees is. `splits` at least 1 and a workspace are
 * required. */
FFD_API ffdStatus ffdKernelDecode(const ffdKernel *kernel,
                                  const ffdDecodeArgs *args, ffdStream stream);

/*===--- Caches ------------------------------------------------------------===*/

/* A cache holds the keys and values of up to `sequences` sequences in `layers`
 * layers. Pages of 128 tokens come from one pool: a page id means the same slot
 * in every layer's planes. Each sequence has a slot for its newest tokens, the
 * tail, in 16 bit. */
typedef struct ffdCache ffdCache;

/* The memory of one layer, in the layout of docs/layout.md: host memory for a
 * CPU context, memory that the device can access for CUDA. 16-byte aligned.
 * Sizes from ffdCacheMeasure. Contents need no initialisation. */
typedef struct ffdLayerMemory {
  void *thumbnails; /* [pages][kv_heads] codes and scales                     */
  void *residuals;  /* [pages][kv_heads]                                      */
  void *values;     /* [pages][kv_heads]                                      */
  void *smax;       /* [sequences][kv_heads][padded head_dim] element         */
  void *tail_k;     /* [sequences][kv_heads][tail capacity][head_dim]         */
  void *tail_v;     /* [sequences][kv_heads][tail capacity][value_dim]        */
  void *centre;     /* [sequences][kv_heads][head_dim] element, where the spec
                       has FFD_CENTRE_ROW; else not used                      */
} ffdLayerMemory;

typedef struct ffdCacheOptions {
  size_t struct_size;
  ffdSpec spec;
  int32_t layers;     /* at least 1                                           */
  int32_t kv_heads;   /* of each layer                                        */
  int32_t sequences;  /* slots                                                */
  int32_t lag;        /* newest tokens that stay in 16 bit at least           */
  int64_t max_tokens; /* the longest a sequence may get                       */
  int64_t pages;      /* of the pool; ffdCacheFit computes it from bytes      */
  float delta;        /* threshold of new sequences, natural-log units        */
  float sm_scale;     /* softmax scale; 0: 1 / sqrt(head_dim)                 */
  const ffdLayerMemory *memory; /* [layers], the caller's, which outlives the
                         cache; NULL: the library allocates                   */
  int32_t caller_pages; /* nonzero: which pages a sequence has is the caller's
                         (ffdSequenceSetPages); the pool is not used          */
  int32_t host_pages; /* CUDA: residuals and values in pinned host memory     */
  int32_t batch_invariant; /* nonzero: the bits of a sequence's results do not
                         depend on the others in its batch (as on the CPU at
                         all times)                                           */
  int32_t piece_tokens; /* CUDA, with batch_invariant: tokens of the pieces that
                         sequences are cut into, a multiple of 128; 0: chosen so
                         that one of max_tokens keeps the GPU busy            */
} ffdCacheOptions;

static inline void ffdCacheOptionsInit(ffdCacheOptions *options) {
  memset(options, 0, sizeof *options);
  options->struct_size = sizeof *options;
  options->layers = 1;
  options->delta = 5.0f;
}

typedef struct ffdCacheSizes {
  size_t struct_size;
  /* Bytes of one layer's memory, as in ffdLayerMemory. */
  uint64_t thumbnails, residuals, values, smax, tail_k, tail_v;
  uint64_t page_bytes;     /* of one page in all layers                       */
  uint64_t sequence_bytes; /* of one slot in all layers, tables included      */
  uint64_t total_bytes;    /* of the whole cache                              */
  int64_t tail_capacity;   /* token rows of a tail                            */
  uint64_t centre;         /* bytes of one layer's memory; 0 for plain keys   */
} ffdCacheSizes;

/* What a cache of these options takes; allocates nothing. The caller sets
 * struct_size of `sizes`. */
FFD_API ffdStatus ffdCacheMeasure(const ffdCacheOptions *options,
                                  ffdCacheSizes *sizes);
/* How many pages fit in `bytes` beside the slots of the options (whose `pages`
 * is not read), and how many tokens those pages hold. */
FFD_API ffdStatus ffdCacheFit(const ffdCacheOptions *options, uint64_t bytes,
                              int64_t *pages, int64_t *tokens);

/* Allocates all that appends and decodes of the cache need; on CUDA also finds
 * the kernels, and waits. */
FFD_API ffdStatus ffdCacheCreate(ffdContext *context,
                                 const ffdCacheOptions *options,
                                 ffdCache **cache);
/* On CUDA the work enqueued on the cache must have finished. */
FFD_API void ffdCacheDestroy(ffdCache *cache);

typedef struct ffdCacheInfo {
  size_t struct_size;
  int64_t pages;      /* of the pool                                          */
  int64_t free_pages; /* of those, in no sequence                             */
  int32_t sequences;  /* slots in use                                         */
} ffdCacheInfo;
FFD_API ffdStatus ffdCacheGetInfo(const ffdCache *cache, ffdCacheInfo *info);

/*===--- Sequences ---------------------------------------------------------===*/

/* A sequence is the number of its slot, 0 to sequences - 1; new ones get the
 * lowest free slot. The functions below that change tables on a CUDA device must
 * not be called while `stream` is being captured. */

/* An empty sequence. */
FFD_API ffdStatus ffdSequenceCreate(ffdCache *cache, ffdStream stream,
                                    int32_t *sequence);
/* Gives slot and pages back. Pages shared with forks stay with those. */
FFD_API ffdStatus ffdSequenceFree(ffdCache *cache, int32_t sequence,
                                  ffdStream stream);
/* A second sequence of the same tokens. Committed pages are shared, only the
 * tail is copied; both grow on independently. */
FFD_API ffdStatus ffdSequenceFork(ffdCache *cache, int32_t sequence,
                                  ffdStream stream, int32_t *fork);
/* Shortens to `length` tokens. Allowed is what stays exact: any length that
 * keeps all committed blocks, and multiples of the block below. A length inside
 * a committed block is FFD_UNSUPPORTED: its 16-bit keys no longer exist. A tail
 * can thereby get shorter than `lag`. Where committed blocks go, their pages are
 * given back and smax is recomputed, which waits on CUDA. With FFD_CENTRE_ROW a
 * sequence keeps its centres until its first block goes. */
FFD_API ffdStatus ffdSequenceTruncate(ffdCache *cache, int32_t sequence,
                                      int64_t length, ffdStream stream);
/* The threshold of a sequence in later decodes, at least 0; infinity keeps
 * everything. */
FFD_API ffdStatus ffdSequenceSetDelta(ffdCache *cache, int32_t sequence,
                                      float delta, ffdStream stream);

typedef struct ffdSequenceInfo {
  size_t struct_size;
  int64_t length;    /* tokens; the smallest over the layers                  */
  int64_t committed; /* of those, in split pages                              */
  int64_t reserved;  /* tokens it can grow to without taking pages            */
} ffdSequenceInfo;
FFD_API ffdStatus ffdSequenceGetInfo(const ffdCache *cache, int32_t sequence,
                                     ffdSequenceInfo *info);

/* Takes pages so that sequence i can grow by tokens[i] without taking more:
 * all of them, or none and FFD_OUT_OF_PAGES. Appending does it by itself, but
 * not inside a captured graph. */
FFD_API ffdStatus ffdReserve(ffdCache *cache, int32_t count,
                             const int32_t *sequences, const int64_t *tokens,
                             ffdStream stream);
/* With caller_pages: blocks first .. first + count - 1 of the sequence are at
 * these pages, each 0 .. pages - 1. Blocks come in order (`first` is at most
 * the number of blocks that have pages). */
FFD_API ffdStatus ffdSequenceSetPages(ffdCache *cache, int32_t sequence,
                                      int64_t first, const int32_t *pages,
                                      int64_t count, ffdStream stream);

/*===--- Append and decode -------------------------------------------------===*/

/* New tokens of several sequences in one layer. Rows are tokens: those of
 * sequences[0], then of sequences[1] ... Every layer of a sequence is appended
 * to in its own call; a sequence may be forked, truncated and saved when its
 * layers are equally long. */
typedef struct ffdAppendBatch {
  size_t struct_size;
  int32_t layer;
  int32_t count;            /* sequences, each at most once                   */
  const int32_t *sequences; /* [count], host; NULL: 0 .. count - 1. In a
                               capture consecutive, ascending slots           */
  const int32_t *tokens;    /* [count], host, each at least 0; NULL: 1 each   */
  const int32_t *device_offsets; /* CUDA, instead of `tokens`: [count + 1] in
                               device memory, read when the work runs:
                               sequence i gets rows offsets[i] up to
                               offsets[i + 1] - 1. For captured graphs        */
  const void *k;            /* [rows][kv_heads][head_dim] element             */
  const void *v;            /* [rows][kv_heads][value_dim] element            */
  int64_t k_token_stride, k_head_stride; /* both 0: contiguous                */
  int64_t v_token_stride, v_head_stride; /* both 0: contiguous                */
  int64_t channel_stride;   /* of k and v: 0 or 1, others are refused         */
  const int32_t *device_sequences; /* in a capture, instead of `sequences`:
                               [count] in device memory, read when the graph
                               runs, each slot at most once; what is no slot
                               (negative, or too large) takes no token        */
} ffdAppendBatch;

static inline void ffdAppendBatchInit(ffdAppendBatch *batch) {
  memset(batch, 0, sizeof *batch);
  batch->struct_size = sizeof *batch;
}

/* Copies the tokens into the cache and commits the blocks that are full and
 * older than the lag. Takes pages where needed: all or none of the batch.
 * k and v are in the context's memory (device memory on CUDA, 16-byte aligned
 * with strides that are multiples of 8; 2-byte aligned on the CPU).
 * While `stream` is being captured nothing changes on the host: the host learns
 * what replays did by ffdAdvance. Such a batch has one token each (`tokens`
 * NULL) or device_offsets; slots without a sequence may be among it and are
 * skipped when the graph runs (row i of one token each is that of slot i). */
FFD_API ffdStatus ffdAppend(ffdCache *cache, const ffdAppendBatch *batch,
                            ffdStream stream);

/* Tells the host that replayed graphs appended tokens[i] tokens to all layers
 * of sequences[i]. Before the next call on these sequences outside of graphs.
 * Costs nothing on the device. FFD_INVALID_ARGUMENT on a CPU, which has no
 * graphs. */
FFD_API ffdStatus ffdAdvance(ffdCache *cache, int32_t count,
                             const int32_t *sequences, const int32_t *tokens);

/* One query per sequence in one layer, or of each of its spec.query_tokens newest
 * tokens; results are valid for any mix of lengths, 0 included (out 0, lse
 * -infinity). With query_tokens n, token i of q sees all but the last n - 1 - i
 * tokens of the sequence, and so do its results. Shapes with n are
 * [count][n][kv_heads * group][...]; tokens of q lie kv_heads * group *
 * q_head_stride apart. */
typedef struct ffdDecodeBatch {
  size_t struct_size;
  int32_t layer;
  int32_t count;            /* sequences                                      */
  const int32_t *sequences; /* [count], host; NULL: 0 .. count - 1. In a
                               capture consecutive, ascending slots           */
  const void *q;            /* [count][kv_heads * group][head_dim] element    */
  int64_t q_batch_stride, q_head_stride; /* both 0: contiguous; multiples of 8*/
  float *out;               /* [count][kv_heads * group][value_dim]           */
  float *lse;               /* [count][kv_heads * group], or NULL             */
  const int32_t *device_sequences; /* in a capture, instead of `sequences`, as
                               in ffdAppendBatch; out, lse and skipped_lse
                               of what is no slot are not written             */
  float *skipped_lse;       /* [count][kv_heads * group], or NULL: natural log
                               of the estimated mass that the decode skips,
                               -infinity where it skips nothing. With a
                               spec.certificate of the cache only. The share
                               that was missed is about exp(skipped_lse) /
                               (exp(lse) + exp(skipped_lse))                  */
} ffdDecodeBatch;

static inline void ffdDecodeBatchInit(ffdDecodeBatch *batch) {
  memset(batch, 0, sizeof *batch);
  batch->struct_size = sizeof *batch;
}

/* Attention of the queries over their sequences, one launch on CUDA, and before
 * the first of a step a small one that divides the work by the lengths on the
 * device: other layers share it where their lengths are the same, in a captured
 * graph where it has appended the same to them (and they were equally long when
 * it began to run). q, out and lse are in the context's memory, 16-byte aligned.
 * May be captured. The same call gives the same bits. Allocates on the CPU when a
 * batch is larger than any before, never on CUDA, where a batch has at most 4096
 * sequences. */
FFD_API ffdStatus ffdDecode(ffdCache *cache, const ffdDecodeBatch *batch,
                            ffdStream stream);

/* Merges results over disjoint token ranges, in host memory: `parts` times
 * out[part] [rows][value_dim] and lse[part] [rows]. `merged_lse` may be NULL.
 * The order of the parts decides the last bits. */
FFD_API ffdStatus ffdMerge(int32_t parts, int64_t rows, int32_t value_dim,
                           const float *const *out, const float *const *lse,
                           float *merged_out, float *merged_lse);

/*===--- Reading back ------------------------------------------------------===*/

/* Tokens first .. first + count - 1 of a sequence in 16 bit: K as decodes see it
 * (exact in the tail, reconstructed in committed blocks), V exact. k_out
 * [count][kv_heads][head_dim], v_out [count][kv_heads][value_dim], contiguous,
 * in the context's memory; either may be NULL. Waits on CUDA. */
FFD_API ffdStatus ffdGather(ffdCache *cache, int32_t layer, int32_t sequence,
                            int64_t first, int64_t count, void *k_out,
                            void *v_out, ffdStream stream);

/* Selection blocks of committed tokens that decodes so far have read and kept,
 * per layer and head, over all sequences. */
typedef struct ffdHeadStatistics {
  uint64_t scanned;
  uint64_t kept;
} ffdHeadStatistics;

/* Enqueues reading the counters; does not wait. */
FFD_API ffdStatus ffdStatisticsRequest(ffdCache *cache, ffdStream stream);
/* What the last request read, [layers][kv_heads]; FFD_NOT_READY while it is on
 * its way, FFD_INVALID_ARGUMENT without one. `scanned` counts decodes that the
 * host saw, not those of replayed graphs. */
FFD_API ffdStatus ffdStatisticsFetch(ffdCache *cache,
                                     ffdHeadStatistics *statistics);

/* Sticky errors of appends that ran on the device, bits of ffdAppendError
 * (abi.h): of all sequences together, and of each if `each` ([sequences]) is not
 * NULL. An append that failed has changed nothing of its sequence. Reads what
 * finished work has set and does not wait for other work. On the CPU there are
 * none: calls return statuses. */
FFD_API ffdStatus ffdCacheGetErrors(const ffdCache *cache, int32_t *errors,
                                    int32_t *each);
FFD_API ffdStatus ffdCacheClearErrors(ffdCache *cache);

/*===--- Save and load -----------------------------------------------------===*/

/* Takes or gives `size` bytes; returns 0, or an errno value. */
typedef int (*ffdWriteFn)(void *user, const void *bytes, size_t size);
typedef int (*ffdReadFn)(void *user, void *bytes, size_t size);

/* A sequence as a stream of bytes: versioned, checksummed, independent of the
 * cache's size and of the device. Waits on CUDA. */
FFD_API ffdStatus ffdSequenceSave(ffdCache *cache, int32_t sequence,
                                  ffdWriteFn write, void *user,
                                  ffdStream stream);
/* Makes a new sequence of it. A stream of another layout or specification is
 * FFD_UNSUPPORTED, with the field that differs; one that fails its checks is
 * FFD_CORRUPT; the cache is unchanged then. Waits on CUDA. */
FFD_API ffdStatus ffdSequenceLoad(ffdCache *cache, ffdReadFn read, void *user,
                                  ffdStream stream, int32_t *sequence);
/* The same with files. Writing goes to a temporary file that is renamed. */
FFD_API ffdStatus ffdSequenceSaveFile(ffdCache *cache, int32_t sequence,
                                      const char *path, ffdStream stream);
FFD_API ffdStatus ffdSequenceLoadFile(ffdCache *cache, const char *path,
                                      ffdStream stream, int32_t *sequence);

#ifdef __cplusplus
}
#endif
#endif /* FFD_FFD_H */
