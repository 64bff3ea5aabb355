# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A KV cache that grows: many sequences in all layers of a model, in host memory or
on a GPU, over the caches of ffd.h."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from . import _arguments as check
from . import _batches as batches
from . import _ffd, _views
from ._cache import SELECT_BLOCKS
from ._views import View

OutOfPages = _ffd.OutOfPages
OutOfSequences = _ffd.OutOfSequences

PAGE = 128  # tokens
_ERRORS = ("beyond what is reserved", "a page that is none", "a tail that is too short",
           "a length that is none")


@dataclass(frozen=True)
class Statistics:
    """uint64 [layers, kv_heads], summed over the sequences of all decodes so far."""

    scanned: np.ndarray
    """Selection blocks of committed tokens that decodes have looked at; not those
    of replayed graphs."""
    kept: np.ndarray
    """Of those, attended to."""


class PagedCache:
    """Keys and values of up to `max_sequences` sequences in all layers, to which
    tokens are appended and over which queries attend.

    layers, heads, kv_heads, head_dim: of the model; heads is a multiple of
        kv_heads, up to 16 times. head_dim 64, 80, 96, 128, 192 or 256.
    value_dim: a multiple of 16 up to 256; None: head_dim.
    dtype: "float16" or "bfloat16" (also as a dtype of numpy or PyTorch), of keys,
        values and queries.
    max_sequences: slots. max_tokens: the longest a sequence may get.
    pages: of 128 tokens, shared by all sequences; None: enough for all to be as
        long as they may be. memory: instead, the bytes that the cache may take.
    delta: the threshold of new sequences, in natural-log units.
    sm_scale: softmax scale; None: 1 / sqrt(head_dim).
    select_block, scan_bits, centre, lag: as of `ffd.Cache` and its `decode`.
    pseudo_max: "refined", or "scan", which keeps fewer blocks at the same delta and
        is further from exact attention (docs/quality.md).
    certificate: "plain" or "noise": decodes can give `skipped_lse`, as
        `ffd.Cache.decode` with a certificate does.
    query_tokens: newest tokens of a sequence that ask at once, 1 to 8; lag is
        query_tokens - 1 at least.
    target: "cpu", "cuda" (the same as "cuda:0") or "cuda:1" ...
    threads, kernel_dir, jit, jit_path: as of `ffd.Runtime`. Caches of the same
        share one thread pool and their kernels.
    host_pages: on a GPU, residuals and values in page-locked host memory.
    batch_invariant, piece_tokens: the bits of a sequence's results do not depend
        on its batch (docs/runtime.md, "The same bits").

    Arrays are where the cache is: of numpy, PyTorch or CuPy, or taken by DLPack.
    Nothing is copied to or from the host. What DLPack lends is kept until the stream
    has read it, but what a captured graph reads is the caller's to keep. On a GPU work
    is enqueued and not waited for, on `stream`: the address of a CUstream, or a stream
    of PyTorch, CuPy or cuda.core; None: the current stream of the framework of the
    arrays (of the last ones, in calls without; before there were any, of PyTorch if it
    uses the GPU), the default stream for other frameworks. All calls of a cache belong
    on one stream, or on streams that events put in order.

    Threads may share a cache; its calls run one after the other. Errors are
    TypeError and ValueError for arguments, MemoryError, OSError, and ffd.Error,
    of which OutOfPages and OutOfSequences are two. A call that failed because of its
    arguments, pages or slots has changed nothing. A decode that fails for want of a
    kernel or memory may have set the thresholds that it was given.
    """

    def __init__(self, *, layers: int, heads: int, kv_heads: int, head_dim: int,
                 max_sequences: int, max_tokens: int, value_dim: int | None = None,
                 dtype: Any = "float16", pages: int | None = None, memory: int | None = None,
                 delta: float = 5.0, sm_scale: float | None = None, select_block: int = 16,
                 scan_bits: int = 2, centre: str = "none", pseudo_max: str = "refined",
                 certificate: str = "none", lag: int = 0, query_tokens: int = 1,
                 target: str = "cpu", threads: int = 0,
                 kernel_dir: str | os.PathLike[str] | None = None, jit: bool = True,
                 jit_path: str | os.PathLike[str] | None = None, host_pages: bool = False,
                 batch_invariant: bool = False, piece_tokens: int = 0) -> None:
        self.layers = check.integer("layers", layers, 1)
        self.kv_heads = check.integer("kv_heads", kv_heads, 1)
        self.heads = check.integer("heads", heads, 1)
        if self.heads % self.kv_heads:
            raise ValueError(f"argument 'heads' is {heads}, expected a multiple of the {kv_heads} "
                             "kv_heads")
        self.head_dim = check.integer("head_dim", head_dim, 1)
        self.value_dim = self.head_dim if value_dim is None else check.integer(
            "value_dim", value_dim, 1)
        self.dtype = batches.dtype_of(dtype)
        self.max_sequences = check.integer("max_sequences", max_sequences, 1)
        self.max_tokens = check.integer("max_tokens", max_tokens, 1)
        self.query_tokens = check.integer("query_tokens", query_tokens, 1, 8)
        self.lag = check.integer("lag", lag, 0)
        if pages is not None and memory is not None:
            raise ValueError("arguments 'pages' and 'memory' are both given, expected one of them")
        if pages is None:
            pages = self.max_sequences * -(-self.max_tokens // PAGE)
        if check.text("pseudo_max", pseudo_max) not in ("scan", "refined"):
            raise ValueError(f"argument 'pseudo_max' is '{pseudo_max}', expected 'refined' or "
                             "'scan'")
        kind = check.certificate(certificate)
        self.certificate = certificate
        self.device, self._number = batches.device_of(target)
        self._framework: str | None = None
        options = dict(
            head_dim=self.head_dim, value_dim=self.value_dim, group=self.heads // self.kv_heads,
            element=int(self.dtype == "bfloat16"),
            scan_bits=check.choice("scan_bits", scan_bits, (2, 4, 8)),
            select_block=check.choice("select_block", select_block, SELECT_BLOCKS),
            query_tokens=self.query_tokens, centre=check.centre(centre),
            pseudo_max=int(pseudo_max == "refined"),
            certificate=kind, layers=self.layers, kv_heads=self.kv_heads,
            sequences=self.max_sequences, lag=self.lag, max_tokens=self.max_tokens,
            pages=check.integer("pages", pages, 0), delta=batches.delta_of(delta),
            sm_scale=check.sm_scale(sm_scale, self.head_dim), host_pages=int(bool(host_pages)),
            batch_invariant=int(bool(batch_invariant)),
            piece_tokens=check.integer("piece_tokens", piece_tokens, 0))
        bytes_ = None if memory is None else check.integer("memory", memory, 0, 2 ** 63 - 1)
        context = _context(self._number if self.device != "cpu" else -1,
                           check.integer("threads", threads, 0, 4096), kernel_dir, bool(jit),
                           jit_path)
        self._native = _ffd.PagedCache(context, options, bytes_)

    # --- The whole cache ----------------------------------------------------------------

    def close(self) -> None:
        """Waits for the device and gives the memory back. Calls of a closed cache
        are a ValueError; closing again is none."""
        self._native.close()

    @property
    def closed(self) -> bool:
        return self._native.closed

    def __enter__(self) -> PagedCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def pages(self) -> int:
        """Of 128 tokens in all layers."""
        return self._native.info()[0]

    @property
    def pages_free(self) -> int:
        return self._native.info()[1]

    @property
    def sequences(self) -> int:
        """How many there are."""
        return self._native.info()[2]

    @property
    def nbytes(self) -> int:
        """Bytes that the cache takes."""
        return self._native.sizes()["total"]

    def fit(self, memory: int) -> tuple[int, int]:
        """(pages, tokens of those) that a cache like this one has in so many bytes,
        slots included."""
        return self._native.fit(check.integer("memory", memory, 0, 2 ** 63 - 1))

    # --- Sequences ----------------------------------------------------------------------

    def create(self, *, delta: float | None = None, stream: Any = None) -> int:
        """An empty sequence: the number of the lowest free slot. delta: its threshold;
        None: the cache's."""
        return self._native.create(None if delta is None else batches.delta_of(delta),
                                   self._stream(stream))

    def free(self, sequence: int, *, stream: Any = None) -> None:
        """Gives slot and pages back; pages shared with forks stay with those."""
        self._native.free(batches.slot_of(sequence), self._stream(stream))

    def fork(self, sequence: int, *, stream: Any = None) -> int:
        """A second sequence of the same tokens: shares the pages, copies the tail."""
        return self._native.fork(batches.slot_of(sequence), self._stream(stream))

    def truncate(self, sequence: int, length: int, *, stream: Any = None) -> None:
        """Shortens to `length` tokens: anywhere in the tail, or to a multiple of 128
        below it; inside of a committed block is an ffd.Error."""
        self._native.truncate(batches.slot_of(sequence), check.integer("length", length, 0),
                              self._stream(stream))

    def set_delta(self, sequences: Any, delta: Any, *, stream: Any = None) -> None:
        """The threshold of sequences from now on, one for all or one each."""
        slots = batches.slots_of(sequences)
        self._native.set_deltas(slots, check.deltas(delta, len(slots)).tolist(),
                                self._stream(stream))

    def length(self, sequence: int) -> int:
        """Tokens, in the layer that has the fewest."""
        return self._native.sequence(batches.slot_of(sequence))[0]

    def committed(self, sequence: int) -> int:
        """Tokens of the split pages; the rest is the tail."""
        return self._native.sequence(batches.slot_of(sequence))[1]

    def reserved(self, sequence: int) -> int:
        """Tokens that the sequence can grow to without taking pages."""
        return self._native.sequence(batches.slot_of(sequence))[2]

    def reserve(self, sequences: Any, tokens: Any, *, stream: Any = None) -> None:
        """Takes pages so that sequences can grow by `tokens`, one number or one each,
        without taking more: all of them, or none and OutOfPages. Appending does so
        by itself, but not in a captured graph."""
        slots = batches.slots_of(sequences)
        self._native.reserve(slots, batches.counts_of("tokens", tokens, len(slots)),
                             self._stream(stream))

    def advance(self, sequences: Any, tokens: Any = 1) -> None:
        """Says that replayed graphs have appended `tokens` to all layers of sequences.
        Before the next call on them outside of graphs."""
        slots = batches.slots_of(sequences)
        self._native.advance(slots, batches.counts_of("tokens", tokens, len(slots)))

    # --- Append and decode --------------------------------------------------------------

    def append(self, layer: int, sequences: Any, k: Any, v: Any, *, tokens: Any = None,
               offsets: Any = None, stream: Any = None) -> None:
        """Copies new tokens of sequences into one layer. Takes pages where needed, for
        all of the batch or, with OutOfPages, for none.

        sequences: one, a list, or None: 0, 1 ... In a capture they are in a row, or
            int32 in device memory, read when the graph runs, -1 for none.
        k: [rows, kv_heads, head_dim] of all sequences, one after the other; shared
            out equally, or by tokens, the number of each, or offsets [sequences + 1],
            whose sequence i gets rows offsets[i] to offsets[i + 1] - 1. Or
            [sequences, tokens, kv_heads, head_dim], as many each.
        v: the same with value_dim.
        offsets may be int32 in device memory in a capture; without, a captured
            append has one token of each sequence.

        Strides are free as long as channels are side by side and the tokens of all
        sequences equally far apart; on a GPU addresses and strides are multiples of
        16 bytes. Others are copied by their framework first.
        """
        layer = check.integer("layer", layer, 0)
        on, views = self._enter(stream, {"k": k, "v": v}, (sequences, offsets))
        keys, values = views
        slots, listed = self._batch(sequences, on)
        rows = self._tokens_of(keys, self.head_dim)
        self._tokens_of(values, self.value_dim)
        if values.shape[:-1] != keys.shape[:-1]:
            raise ValueError(f"argument 'v' has shape {list(values.shape)}, expected "
                             f"{[*keys.shape[:-1], self.value_dim]}, the tokens of 'k'")
        four = len(keys.shape) == 4
        count = len(slots) if slots is not None else (
            listed.shape[0] if listed else keys.shape[0] if four or offsets is None else
            batches.count_of(offsets) - 1)
        if slots is None and listed is None and tokens is not None:
            count = np.size(tokens)
        limits = None
        if offsets is not None and tokens is not None:
            raise ValueError("arguments 'tokens' and 'offsets' are both given, expected one of "
                             "them")
        if four and keys.shape[0] != count:
            raise ValueError(f"argument 'k' has shape {list(keys.shape)}, expected {count} in axis "
                             "0, one per sequence")
        if four and (tokens is not None or offsets is not None):
            raise ValueError(f"argument '{'offsets' if tokens is None else 'tokens'}' is given "
                             "with 'k' of 4 axes, expected [rows, kv_heads, head_dim]")
        if offsets is not None and batches.on_device(offsets):
            limits = self._integers("offsets", offsets, on)
            if limits.shape != (count + 1,):
                raise ValueError(f"argument 'offsets' has shape {list(limits.shape)}, expected "
                                 f"[{count + 1}], one more than sequences")
            each: list[int] = []
        else:
            each = batches.rows_of_each(tokens, offsets, count, rows)
        keys, k_strides = batches.row_strides(keys, self.kv_heads, self.device != "cpu")
        values, v_strides = batches.row_strides(values, self.kv_heads, self.device != "cpu")
        if each and all(n == 1 for n in each):
            each = []
        self._enqueue([keys, values, *filter(None, (listed, limits))], on, lambda: (
            self._native.append(layer, count, slots or [], each, listed.address if listed else 0,
                                limits.address if limits else 0, keys.address, values.address,
                                k_strides, v_strides, on)))

    def decode(self, layer: int, sequences: Any, q: Any, *, delta: Any = None, lse: Any = False,
               skipped_lse: Any = False, out: Any = None, stream: Any = None) -> Any:
        """Attention of the newest token of each sequence, or of the query_tokens newest,
        over its tokens in one layer.

        sequences: as of append, each at most once.
        q: [sequences, heads, head_dim], or [sequences, query_tokens, heads, head_dim],
            oldest token first.
        delta: sets the threshold of the sequences first, as set_delta does: it stays.
            None leaves it as it is. Not in a capture.
        lse, skipped_lse: True: also give it. Or an array to write it to. skipped_lse is
            the log of the softmax mass that the scan estimates for the tokens not
            attended to, -inf where all were; the cache needs a certificate.
        out: the array to write to, float32 with value_dim in place of head_dim; None:
            a new one of the framework of q, on its device (numpy's for others in host
            memory).

        Returns out, or (out, lse), (out, skipped_lse) or (out, lse, skipped_lse): float32
        [sequences, heads] or [sequences, query_tokens, heads], natural log. A sequence
        without tokens gives 0, -inf and -inf.
        """
        layer = check.integer("layer", layer, 0, self.layers - 1)
        given = {"q": q}
        if out is not None:
            given["out"] = out
        for name, array in (("lse", lse), ("skipped_lse", skipped_lse)):
            if array is not False and array is not True and array is not None:
                given[name] = array
        if self.certificate == "none" and (skipped_lse is True or "skipped_lse" in given):
            raise ValueError("argument 'skipped_lse' is given, expected a cache with certificate "
                             "'plain' or 'noise'")
        on, views = self._enter(stream, given, (sequences,))
        by_name = dict(zip(given, views))
        query = by_name["q"]
        slots, listed = self._batch(sequences, on)
        batches.expect_dtype(query, self.dtype, ", the dtype of the cache")
        expected = [self.heads, self.head_dim]
        if len(query.shape) == 4 or self.query_tokens > 1:
            expected.insert(0, self.query_tokens)
        count = len(slots) if slots is not None else listed.shape[0] if listed else (
            query.shape[0] if query.shape else 0)
        if list(query.shape) != [count, *expected]:
            raise ValueError(f"argument 'q' has shape {list(query.shape)}, expected "
                             f"{[count, *expected]}: sequences, "
                             + ("query tokens, " if len(expected) == 3 else "")
                             + "heads, head_dim")
        if slots is None and listed is None:
            slots = list(range(count))
        query, strides = batches.query_strides(query)
        shape = query.shape[:-1]
        result = self._result(by_name.get("out"), (*shape, self.value_dim), query)
        logs, skipped = by_name.get("lse"), by_name.get("skipped_lse")
        if lse is True or logs is not None:
            logs = self._result(logs, shape, query)
            batches.check_apart(result, logs)
        if skipped_lse is True or skipped is not None:
            skipped = self._result(skipped, shape, query)
            batches.check_apart(result, skipped)
            if logs is not None:
                batches.check_apart(logs, skipped)
        values: list[float] = []
        if delta is not None:
            if listed is not None:
                raise ValueError("argument 'delta' is given with 'sequences' in device memory, "
                                 "expected set_delta before")
            assert slots is not None
            if len(set(slots)) < count:
                raise ValueError(f"argument 'sequences' is {slots}, expected each at most once")
            values = check.deltas(delta, count).tolist()
        self._enqueue([query, result, *filter(None, (logs, skipped, listed))], on, lambda: (
            self._native.decode(layer, count, slots or [], values,
                                listed.address if listed else 0, query.address, strides,
                                result.address, logs.address if logs else 0,
                                skipped.address if skipped else 0, on)))
        more = [v.array for v in (logs, skipped) if v is not None]
        return (result.array, *more) if more else result.array

    def gather(self, layer: int, sequence: int, *, first: int = 0, tokens: int | None = None,
               like: Any = None, stream: Any = None) -> tuple[Any, Any]:
        """(K, V) of a range of tokens, [tokens, kv_heads, ...] of the cache's dtype: K as
        decodes see it, exact in the tail and reconstructed elsewhere, V exact. Arrays
        of the framework of `like`; None: numpy's in host memory, on a GPU those of the
        framework of the last call. Waits."""
        on, views = self._enter(stream, {} if like is None else {"like": like}, ())
        first = check.integer("first", first, 0)
        if tokens is None:
            tokens = max(0, self.length(sequence) - first)
        shape = (check.integer("tokens", tokens, 0), self.kv_heads)
        if views:
            framework = views[0].framework
        else:
            framework = "numpy" if self.device == "cpu" else (
                self._framework or _views.known_framework())
        k, v = (_views.empty(framework, (*shape, dim), self.dtype, self.device,
                             "'like', an array of one of them")
                for dim in (self.head_dim, self.value_dim))
        layer, sequence = check.integer("layer", layer, 0), batches.slot_of(sequence)
        self._enqueue([k, v], on, lambda: self._native.gather(
            layer, sequence, first, shape[0], k.address, v.address, on))
        return k.array, v.array

    # --- What happened --------------------------------------------------------------------

    def request_statistics(self, *, stream: Any = None) -> None:
        """Enqueues reading the counters of decodes; does not wait."""
        self._native.request_statistics(self._stream(stream))

    def statistics(self) -> Statistics | None:
        """What the last request read; None while it is on its way."""
        both = self._native.statistics()
        return None if both is None else Statistics(both[..., 0], both[..., 1])

    def append_errors(self) -> dict[int, str]:
        """Why appends in graphs have left sequences as they were, by sequence, since
        clear_errors. Reads what finished work has set, does not wait for more."""
        return {int(s): ", ".join(text for bit, text in enumerate(_ERRORS) if e >> bit & 1)
                for s, e in enumerate(self._native.errors()) if e}

    def clear_errors(self) -> None:
        self._native.clear_errors()

    # --- Files ------------------------------------------------------------------------------

    def save(self, sequence: int, path: str | os.PathLike[str], *, stream: Any = None) -> None:
        """Writes a sequence to a file, with checksums. Waits."""
        self._native.save(batches.slot_of(sequence), os.fspath(path), self._stream(stream))

    def load(self, path: str | os.PathLike[str], *, stream: Any = None) -> int:
        """A new sequence of a file of any cache of the same layout, on any device."""
        return self._native.load(os.fspath(path), self._stream(stream))

    def __repr__(self) -> str:
        return (f"ffd.PagedCache(layers={self.layers}, heads={self.heads}, "
                f"kv_heads={self.kv_heads}, head_dim={self.head_dim}, "
                f"value_dim={self.value_dim}, dtype='{self.dtype}', "
                f"max_sequences={self.max_sequences}, max_tokens={self.max_tokens}, "
                f"target='{self.device}')")

    # --- Helpers -----------------------------------------------------------------------------

    def _stream(self, stream: Any) -> int:
        if self.device == "cpu":
            return 0
        if stream is not None:
            return _views.stream_address(stream, self.device)
        framework = self._framework
        if framework is None:
            framework = _views.known_framework()
        return _views.current_stream(framework, self._number)

    def _enter(self, stream: Any, arrays: dict[str, Any],
               others: tuple[Any, ...]) -> tuple[int, list[View]]:
        """The stream of a call, and views of its arrays, which are on the device."""
        if self.device != "cpu":
            for array in (*arrays.values(), *others):
                framework = _views.framework_of(array)
                if framework and framework != "numpy":
                    self._framework = framework
                    break
        on = self._stream(stream)
        views = [_views.view(name, array, on, write=name in ("out", "lse", "skipped_lse"))
                 for name, array in arrays.items()]
        for v in views:
            if v.device != self.device:
                raise TypeError(f"argument '{v.name}' is on {v.device}, expected "
                                f"{self.device}, the device of the cache")
        return on, views

    def _enqueue(self, views: list[View], on: int, call: Callable[[], None]) -> None:
        """A call of the extension, ordered with the streams that its arrays belong to."""
        if self.device == "cpu":
            call()
            return
        after = _views.order(views, on, self._number)
        try:
            call()
        finally:  # some of the work may be enqueued when a call fails
            if after is not None:
                after()
            owners = [v.owner for v in views if v.owner is not None]
            if owners:
                self._native.keep(owners, on)

    def _batch(self, sequences: Any, on: int) -> tuple[list[int] | None, View | None]:
        """The slots of a batch, or where they are on the device; neither: 0, 1 ..."""
        if sequences is None:
            return None, None
        if batches.on_device(sequences):
            return None, self._integers("sequences", sequences, on)
        return batches.slots_of(sequences), None

    def _integers(self, name: str, array: Any, on: int) -> View:
        v = _views.view(name, array, on)
        if v.device != self.device:
            raise TypeError(f"argument '{name}' is on {v.device}, expected {self.device}, the "
                            "device of the cache, or integers in host memory")
        batches.expect_dtype(v, "int32")
        if len(v.shape) != 1 or v.strides != (1,) and v.shape[0] > 1:
            raise ValueError(f"argument '{name}' has shape {list(v.shape)} and strides "
                             f"{list(v.strides)}, expected one contiguous axis")
        return v

    def _tokens_of(self, v: View, dim: int) -> int:
        """Rows of k or v, checked."""
        batches.expect_dtype(v, self.dtype, ", the dtype of the cache")
        axes = len(v.shape)
        if axes not in (3, 4) or v.shape[-2:] != (self.kv_heads, dim):
            kind = "value_dim" if v.name == "v" else "head_dim"
            raise ValueError(f"argument '{v.name}' has shape {list(v.shape)}, expected [rows, "
                             f"kv_heads, {kind}] or [sequences, tokens, kv_heads, {kind}] with "
                             f"{self.kv_heads} and {dim} in the last axes")
        return v.shape[0] * (v.shape[1] if axes == 4 else 1)

    def _result(self, given: View | None, shape: tuple[int, ...], query: View) -> View:
        if given is None:
            return _views.empty(query.framework, shape, "float32", self.device,
                                "arrays of one of them, or 'out' to write to")
        batches.check_result(given, shape)
        return given


# --- Contexts -------------------------------------------------------------------------------

_lock = threading.Lock()
_contexts: weakref.WeakValueDictionary[tuple[Any, ...], _ffd.PagedContext] = (
    weakref.WeakValueDictionary())


def _context(ordinal: int, threads: int, kernel_dir: Any, jit: bool,
             jit_path: Any) -> _ffd.PagedContext:
    """Shared by the caches alive that ask for the same."""
    key = (ordinal, threads, "" if kernel_dir is None else os.fspath(kernel_dir), jit,
           "" if jit_path is None else os.fspath(jit_path))
    with _lock:
        context = _contexts.get(key)
        if context is None:
            context = _contexts[key] = _ffd.PagedContext(*key)
        return context
