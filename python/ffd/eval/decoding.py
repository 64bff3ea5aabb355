# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding a model with its attention replaced by a method.

The prompt is processed with exact attention. The tokens after it are given
(teacher forcing), so they can run as one chunk per layer in which every query
sees its own prefix: the same numbers as one token after the other, since in
either case layer l of token t depends on K and V of layer l up to t alone.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np

from .methods import Method
from .problem import Problem
from .smollm.model import Cache, Model, causal_attention, half, spread

STRIDE = 128  # rows of one Problem; they then share FFD's committed blocks


@dataclass
class Traffic:
    """What a method read, summed over layers, kv heads and tokens."""

    read: float = 0.0
    dense: float = 0.0
    kept: float = 0.0
    visible: float = 0.0

    def add(self, other: Traffic) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Context:
    """A prompt that exact attention has processed. `store` is what methods
    precompute of it, per layer and kv head."""

    model: Model
    cache: Cache
    last: np.ndarray  # [C], the state after the last token
    store: dict = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.cache.length

    def behind(self, states: np.ndarray) -> Context:
        """The context with the tokens that follow() has just decoded. It holds
        until follow() is called on this one again."""
        cache = copy.copy(self.cache)
        cache.length += len(states)
        return Context(self.model, cache, states[-1], self.store)


def prefill(model: Model, tokens: list[int], room: int, progress=lambda layers: None) -> Context:
    """Processes a prompt; `room` tokens can follow."""
    cache = Cache(model, len(tokens) + room)

    def attention(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        progress(1)
        return causal_attention(q, k, v, threads=model.threads)
    hidden = model.extend(tokens, cache, attention)
    return Context(model, cache, hidden[-1])


def follow(context: Context, tokens: list[int], method: Method, fixed: int | None = None,
           threads: int = 1) -> tuple[np.ndarray, Traffic]:
    """States [len(tokens), C] of tokens decoded behind the context with `method`;
    the context stays as it is. `fixed` tokens of it never change between calls
    (all, unless said otherwise)."""
    cache = copy.copy(context.cache)  # shares K and V, whose end is overwritten
    total = Traffic()
    fixed = context.length if fixed is None else fixed

    def attention(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        count, heads, D = q.shape
        kv_heads = k.shape[1]
        start = len(k) - count
        out = np.empty((count, kv_heads, heads // kv_heads, v.shape[2]), np.float32)
        q = q.reshape(count, kv_heads, -1, D)
        # Pieces end where a block does.
        ends = [*range(STRIDE - (start + 1) % STRIDE, count, STRIDE), count]
        rows = list(zip([0, *ends], ends))
        keys, values = (np.ascontiguousarray(x.transpose(1, 0, 2)) for x in (k, v))

        def piece(item: int) -> Traffic:
            head, (first, stop) = item // len(rows), rows[item % len(rows)]
            lengths = start + 1 + np.arange(first, stop)
            store = context.store.setdefault((layer, head), {})
            problem = Problem(q[first:stop, head], keys[head], values[head], lengths, layer, head,
                              store=store, fixed=fixed)
            result = method.run(problem)
            out[first:stop, head] = half(result.o)
            shares = np.broadcast_to(result.kept.sum(axis=-1), result.lse.shape)
            return Traffic(float(result.bytes.sum()), float(lengths.sum()) * problem.token_bytes,
                           float(shares.mean(axis=1).sum()), float(lengths.sum()))

        for traffic in spread(piece, list(range(kv_heads * len(rows))), threads):
            total.add(traffic)
        return out.reshape(count, heads, -1)

    return context.model.extend(tokens, cache, attention), total


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


@dataclass
class Predictions:
    """Of N given tokens, each predicted from those before it."""

    nll: np.ndarray  # [N], natural log
    top: np.ndarray  # [N], the most likely token
    logp: np.ndarray | None = None  # [N, vocabulary], if asked for


def predict(context: Context, tokens: list[int], states: np.ndarray, reference: np.ndarray | None,
            keep: bool = False) -> tuple[Predictions, np.ndarray | None]:
    """What the model says about `tokens`: the context's last state predicts the
    first, states [len(tokens), C] the following ones. With `reference`, log
    probabilities of exact attention, also the divergence KL(reference || this)
    per token."""
    hidden = np.concatenate((context.last[None], states[:-1]))
    nll, top = np.empty(len(tokens)), np.empty(len(tokens), int)
    divergence = np.empty(len(tokens)) if reference is not None else None
    kept = []
    for start in range(0, len(tokens), 128):
        part = slice(start, min(start + 128, len(tokens)))
        logp = log_softmax(context.model.logits(hidden[part]))
        nll[part] = -logp[np.arange(len(logp)), tokens[part]]
        top[part] = logp.argmax(axis=-1)
        if reference is not None:
            want = reference[part].astype(np.float32)
            divergence[part] = (np.exp(want) * (want - logp)).sum(axis=-1)
        if keep:
            kept.append(logp)
    return Predictions(nll, top, np.concatenate(kept) if keep else None), divergence
