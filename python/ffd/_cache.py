# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The split cache and decoding over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arguments as check
from . import _ffd
from ._runtime import Runtime, has_residuals, native, takes_refined

SCAN_BITS = (2, 4, 8, 16)
SELECT_BLOCKS = (16, 32, 64, 128)
QUANT_BLOCK = 128


@dataclass(frozen=True)
class Result:
    """What a decode gives; arrays are numpy and offer DLPack
    (`torch.from_dlpack(result.out)`)."""

    out: np.ndarray
    """float32 [batch, heads, value_dim]; 0 for a sequence without tokens. With an
    axis of query tokens in q, [batch, query tokens, heads, ...] here and below."""
    lse: np.ndarray
    """float32 [batch, heads]: natural log of the sum of exp(score) over the
    tokens attended to; -inf for a sequence without tokens."""
    kept: np.ndarray | None = None
    """bool [batch, kv_heads, blocks]: which selection blocks of the committed
    tokens were attended to, False beyond the sequence. None for exact
    attention."""
    pseudo_max: np.ndarray | None = None
    """float32 [batch, heads] in natural-log units, if asked for."""
    scores: np.ndarray | None = None
    """float32 [batch, heads, tokens] in natural-log units, if asked for: see
    `Scan.scores`."""
    skipped_lse: np.ndarray | None = None
    """float32 [batch, heads], with a certificate: natural log of the softmax mass
    that the scan estimates for the tokens not attended to; -inf where all were."""

    @property
    def missed(self) -> np.ndarray | None:
        """float32 [batch, heads], with a certificate: the estimated share of the
        softmax mass that was not attended to, 0 to 1; NaN where lse is."""
        if self.skipped_lse is None:
            return None
        with np.errstate(invalid="ignore"):
            whole = np.logaddexp(self.lse, self.skipped_lse)
            share: np.ndarray = np.exp(self.skipped_lse - whole)
        nothing = np.isneginf(self.skipped_lse) & ~np.isnan(self.lse)
        return np.where(nothing, np.float32(0), share)


@dataclass(frozen=True)
class Scan:
    """What the selector sees of a query; all in natural-log units but `units`.
    With an axis of query tokens in q, every field has one after the batch.
    Over centred keys, scores are those of the keys relative to the centre: the
    same number is missing from all of a head's."""

    units: np.ndarray
    """int32 [batch, heads, committed tokens]: the integer scores `a_int` of
    docs/numerics.md; 0 beyond the committed tokens and in a non-finite row."""
    unit: np.ndarray
    """float32 [batch, heads]: F, what one scan unit is worth."""
    scores: np.ndarray
    """float32 [batch, heads, tokens]: F * a_int of committed tokens, the exact
    score of tail tokens, -inf beyond what the query sees, NaN for committed
    tokens of a row whose query or scales are not finite."""
    pseudo_max: np.ndarray
    """float32 [batch, heads]: the largest score of the first committed block,
    the last one (both refined, unless asked otherwise) and the tail; -inf without tokens.
    Kernels compare in scan units, rounded down."""


@dataclass(frozen=True)
class ReadBytes:
    """Bytes that one decode has to read, summed over sequences and kv heads."""

    scan: int
    """Thumbnails of all committed blocks."""
    kept: int
    """Residuals and V of kept blocks."""
    tail: int
    """16-bit K and V of the tails."""
    dense: int
    """16-bit K and V of all tokens: what exact attention reads."""
    kept_blocks: int
    """Kept selection blocks, in units of 16 tokens."""
    select_blocks: int
    """All selection blocks of committed tokens, in units of 16 tokens."""

    @property
    def total(self) -> int:
        return self.scan + self.kept + self.tail

    @property
    def keep_ratio(self) -> float:
        """Share of committed tokens that is kept; 1 without any."""
        return self.kept_blocks / self.select_blocks if self.select_blocks else 1.0


class Cache:
    """A split cache, built once from K and V; both are copied.

    k: float16 or bfloat16 [batch, tokens, kv_heads, head_dim] in host memory,
        any strides; head_dim 64, 80, 96, 128, 192 or 256. A batch of 1 may serve
        any number of sequences (see lengths). numpy, PyTorch, JAX or anything
        that offers DLPack or the buffer protocol; bfloat16 from numpy is
        ml_dtypes.bfloat16.
    v: of the same dtype, [batch, tokens, kv_heads, value_dim]; value_dim a
        multiple of 16 up to 256.
    lengths: integers [batch], visible tokens of each sequence, 0 to tokens; None:
        all. Tokens beyond are never read.
    scan_bits: bits of a thumbnail: 2, 4 or 8; 16 leaves K as it is, for
        ablations on the CPU.
    residual_bits: 8; 0 attends to the thumbnails alone, for ablations on the
        CPU. None: 8, or 0 where K is not split.
    lag: newest tokens that stay in 16 bit at least; full blocks of 128 tokens
        older than that are split ("committed"), the rest is the tail.
    centre: "none", or "row": all keys of a sequence and kv head are taken
        relative to the mean of its first committed block. Outputs and lse are
        the same up to rounding, and the scan is more precise where the keys of
        a model have a mean (docs/quality.md).
    runtime: whose threads pack; None: default_runtime().

    A cache does not change, so threads may share it. Raises TypeError or
    ValueError naming the argument, its value and what was expected.
    """

    def __init__(self, k: Any, v: Any, *, lengths: Any = None, scan_bits: int = 2,
                 residual_bits: int | None = None, lag: int = 0, centre: str = "none",
                 runtime: Runtime | None = None) -> None:
        bits = check.choice("scan_bits", scan_bits, SCAN_BITS)
        self._native = _ffd.Cache(native(runtime), k, v, check.lengths(lengths), bits,
                                  has_residuals(bits, residual_bits), check.integer("lag", lag, 0),
                                  check.centre(centre))

    @property
    def batch(self) -> int:
        return self._native.batch

    @property
    def kv_heads(self) -> int:
        return self._native.kv_heads

    @property
    def head_dim(self) -> int:
        return self._native.head_dim

    @property
    def value_dim(self) -> int:
        return self._native.value_dim

    @property
    def dtype(self) -> str:
        """Of K, V and the queries: "float16" or "bfloat16"."""
        return self._native.element

    @property
    def scan_bits(self) -> int:
        return self._native.scan_bits

    @property
    def residual_bits(self) -> int:
        return 8 if self._native.residuals else 0

    @property
    def centre(self) -> str:
        """"none" or "row"."""
        return check.CENTRES[self._native.centred]

    @property
    def centres(self) -> np.ndarray | None:
        """float32 [batch, kv_heads, head_dim], what the keys are relative to, 0
        for a sequence without committed blocks; None for plain keys."""
        bits = self._native.centres
        if bits is None:
            return None
        if self.dtype == "float16":
            return bits.view(np.float16).astype(np.float32)
        wide: np.ndarray = bits.astype(np.uint32) << 16
        return wide.view(np.float32)

    @property
    def lag(self) -> int:
        return self._native.lag

    @property
    def lengths(self) -> np.ndarray:
        """int64 [batch], visible tokens."""
        return np.array(self._native.lengths, np.int64)

    @property
    def committed(self) -> np.ndarray:
        """int64 [batch], tokens of the split blocks; the rest is the tail."""
        tokens: np.ndarray = np.maximum(self.lengths - self.lag, 0) // QUANT_BLOCK * QUANT_BLOCK
        return tokens

    @property
    def nbytes(self) -> int:
        """Bytes that the cache occupies."""
        return self._native.nbytes

    def decode(self, q: Any, *, delta: Any = 5.0, sm_scale: float | None = None,
               select_block: int = 16, splits: int = 0, selector: str = "top_delta",
               execution: str | None = None, refined_max: bool | None = None,
               certificate: str = "none", pseudo_max: bool = False, scores: bool = False,
               runtime: Runtime | None = None) -> Result:
        """Attends to the kept blocks and the tail: the newest token of each
        sequence asks, or the newest 1 to 8 do.

        q: of the cache's dtype, [batch, heads, head_dim]; heads is a multiple of
            kv_heads, up to 16 times. [batch, n, heads, head_dim] is the queries
            of the n newest tokens, oldest first, with at most 16 queries per kv
            head: each sees the sequence up to itself, all share one kept set, the
            union of what they ask for. The cache's lag must be n - 1 at least.
        delta: at least 0, in natural-log units, a number or one per sequence
            [batch]; infinity keeps everything.
        sm_scale: softmax scale, above 0; None: 1 / sqrt(head_dim).
        select_block: tokens kept or skipped together: 16, 32, 64 or 128.
        splits: pieces per row, merged in a fixed order; 0: as suits the machine.
        selector: "top_delta"; for ablations on the CPU also "top_k=64", the best
            blocks of each row, "top_p=0.9", the best blocks that hold a share of
            the estimated mass, or "all"; these ignore delta.
        execution: "fused", one kernel, or "split", two that meet in the mask
            (on the CPU); None: fused where the rule can be.
        refined_max: "top_delta" takes the pseudo-max from scores of thumbnails and
            residuals, and always keeps both ends (select_c5 and select_c6 of
            docs/numerics.md): much nearer to exact attention, more blocks kept.
            None: True for "top_delta" where the cache has residuals, else False.
        certificate: "plain" or "noise": the kernel also estimates the softmax mass that
            "top_delta" skips (cert_c1 to cert_c4 of docs/numerics.md): `skipped_lse` and
            `missed` of the result. Plain is nearly always too high rather than too
            low, noise nearer in the mean.
        pseudo_max, scores: also compute these (on the CPU, from the integer scan
            that docs/numerics.md defines; it costs a pass over the cache).

        The same call gives the same bits. Raises ffd.Error where no kernel can
        be found or compiled.
        """
        runtime_ = native(runtime)
        block = check.choice("select_block", select_block, SELECT_BLOCKS)
        scale = check.sm_scale(sm_scale, self.head_dim)
        refined = takes_refined(refined_max, selector, self._native.residuals)
        kind = check.certificate(certificate)
        if kind and self.scan_bits == 16:
            raise ValueError(f"argument 'certificate' is '{certificate}' with scan_bits 16, "
                             "expected 2, 4 or 8 scan bits, or 'none'")
        out, lse, kept, skipped = self._native.decode(
            runtime_, q, check.deltas(delta, self.batch), scale, block,
            check.integer("splits", splits, 0, 1024), check.text("selector", selector),
            check.text("execution", execution or ""), refined, kind)
        best = approximate = None
        if pseudo_max or scores:
            _, _, approximate, best = self._native.scan(runtime_, q, scale, False, bool(scores),
                                                         refined)
        return Result(out, lse, kept.view(np.bool_), best if pseudo_max else None, approximate,
                      skipped)

    def scan(self, q: Any, *, sm_scale: float | None = None, refined_max: bool | None = None,
             runtime: Runtime | None = None) -> Scan:
        """The approximate scores and the pseudo-max of a query, computed on the
        CPU; arguments as of `decode` with "top_delta"."""
        units, unit, scores, best = self._native.scan(
            native(runtime), q, check.sm_scale(sm_scale, self.head_dim), True, True,
            takes_refined(refined_max, "top_delta", self._native.residuals))
        assert units is not None and scores is not None
        return Scan(units, unit, scores, best)

    def read_bytes(self, kept: np.ndarray | None = None) -> ReadBytes:
        """What a decode reads that keeps `kept`, bool [batch, kv_heads, blocks]
        as `Result.kept`; None: everything. Tokens that sequences share count
        once for each. With refined_max (the default of `decode`), residuals of up to
        256 tokens that are not kept come on top."""
        if kept is None:
            return ReadBytes(**self._native.bytes(None))
        mask = check.host_array("kept", kept)
        finest = self._native.selects(16)
        blocks = mask.shape[-1] if mask.ndim == 3 else 0
        expected = [finest // (b // 16) for b in SELECT_BLOCKS]
        if mask.ndim != 3 or mask.shape[:2] != (self.batch, self.kv_heads) \
                or blocks not in expected:
            raise ValueError(f"argument 'kept' has shape {list(mask.shape)}, expected "
                             f"[{self.batch}, {self.kv_heads}, blocks] with "
                             f"{', '.join(map(str, expected[:-1]))} or {expected[-1]} blocks")
        if blocks:
            mask = np.repeat(mask, finest // blocks, axis=2)
        return ReadBytes(**self._native.bytes(np.ascontiguousarray(mask != 0).view(np.uint8)))

    def __repr__(self) -> str:
        return (f"ffd.Cache(batch={self.batch}, kv_heads={self.kv_heads}, "
                f"head_dim={self.head_dim}, value_dim={self.value_dim}, dtype={self.dtype}, "
                f"scan_bits={self.scan_bits}, lag={self.lag}, centre='{self.centre}')")


def decode(q: Any, k: Any, v: Any, *, lengths: Any = None, delta: Any = 5.0,
           sm_scale: float | None = None, scan_bits: int = 2, residual_bits: int | None = None,
           select_block: int = 16, lag: int = 0, centre: str = "none", splits: int = 0,
           selector: str = "top_delta", execution: str | None = None,
           refined_max: bool | None = None, certificate: str = "none", pseudo_max: bool = False,
           scores: bool = False, runtime: Runtime | None = None) -> Result:
    """Builds a `Cache` of k and v and decodes q over it once; arguments as of
    `Cache` and `Cache.decode`. To decode more than once, keep the cache."""
    cache = Cache(k, v, lengths=lengths, scan_bits=scan_bits, residual_bits=residual_bits, lag=lag,
                  centre=centre, runtime=runtime)
    return cache.decode(q, delta=delta, sm_scale=sm_scale, select_block=select_block,
                        splits=splits, selector=selector, execution=execution,
                        refined_max=refined_max, certificate=certificate,
                        pseudo_max=pseudo_max, scores=scores,
                        runtime=runtime)


def exact(q: Any, k: Any, v: Any, *, lengths: Any = None, sm_scale: float | None = None,
          runtime: Runtime | None = None) -> Result:
    """Exact attention over all visible tokens in 16 bit, by a kernel that FFD
    compiles too. q, k, v and lengths as of `decode`."""
    dim = getattr(q, "shape", (0,))[-1:]
    scale = check.sm_scale(sm_scale, int(dim[0]) if dim and int(dim[0]) > 0 else 1)
    out, lse = _ffd.exact(native(runtime), q, k, v, check.lengths(lengths), scale)
    return Result(out, lse)
