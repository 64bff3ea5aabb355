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

from .arrays import Array, array_namespace, host, like
from .methods import Method
from .problem import Problem
from .smollm.model import Cache, Model, causal_attention, half, spread

STRIDE = 128  # rows of one Problem on a CPU; they then share FFD's committed blocks
SCORES = 1 << 27  # of one Problem of all kv heads on a GPU: 512 MB for each of a few arrays


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

    def shares(self) -> tuple[float, float]:
        """Bytes read and tokens kept, of what exact attention reads."""
        return float(self.read) / self.dense, float(self.kept) / self.visible


@dataclass
class Context:
    """A prompt that exact attention has processed. `store` is what methods
    precompute of it, per layer and kv head."""

    model: Model
    cache: Cache
    last: Array  # [C], the state after the last token
    store: dict = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.cache.length

    def behind(self, states: Array) -> Context:
        """The context with the tokens that follow() has just decoded. It holds
        until follow() is called on this one again."""
        cache = copy.copy(self.cache)
        cache.length += len(states)
        return Context(self.model, cache, states[-1], self.store)

    def tail(self, start: int) -> tuple[Array, Array]:
        """A copy of K and V of the tokens from `start` on."""
        return tuple(x[:, start:self.length] + 0 for x in (self.cache.k, self.cache.v))

    def restore(self, start: int, tail: tuple[Array, Array]) -> None:
        """Puts back what tail() gave."""
        for x, kept in zip((self.cache.k, self.cache.v), tail):
            x[:, start:self.length] = kept


def prefill(model: Model, tokens: list[int], room: int, progress=lambda layers: None) -> Context:
    """Processes a prompt; `room` tokens can follow."""
    cache = Cache(model, len(tokens) + room)

    def attention(layer: int, q: Array, k: Array, v: Array) -> Array:
        progress(1)
        return causal_attention(q, k, v, threads=model.threads)
    hidden = model.extend(tokens, cache, attention)
    return Context(model, cache, hidden[-1])


def follow(context: Context, tokens: list[int], method: Method, fixed: int | None = None,
           threads: int = 1) -> tuple[Array, Traffic]:
    """States [len(tokens), C] of tokens decoded behind the context with `method`;
    the context stays as it is. `fixed` tokens of it never change between calls
    (all, unless said otherwise)."""
    cache = copy.copy(context.cache)  # shares K and V, whose end is overwritten
    total = Traffic()
    fixed = context.length if fixed is None else fixed
    one_head = context.model.device == "numpy"

    def attention(layer: int, q: Array, k: Array, v: Array) -> Array:
        xp = array_namespace(q)
        count, heads, D = q.shape
        kv_heads = k.shape[1]
        start = len(k) - count
        # [kv heads, count, G, D] and [kv heads, T, D]
        q = xp.permute_dims(q.reshape((count, kv_heads, -1, D)), (1, 0, 2, 3))
        k, v = (xp.permute_dims(x, (1, 0, 2)) for x in (k, v))
        if one_head:
            k, v = np.ascontiguousarray(k), np.ascontiguousarray(v)
        out = xp.empty_like(q)
        if one_head:  # pieces end where a block does
            ends = [*range(STRIDE - (start + 1) % STRIDE, count, STRIDE), count]
        else:
            stride = max(1, SCORES // (heads * v.shape[1]))
            ends = [*range(stride, count, stride), count]
        pieces = [(head, *rows) for head in (range(kv_heads) if one_head else [slice(None)])
                  for rows in zip([0, *ends], ends)]

        def piece(item: int) -> Traffic:
            head, first, stop = pieces[item]
            lengths = start + 1 + np.arange(first, stop)
            store = context.store.setdefault((layer, head if one_head else 0), {})
            problem = Problem(q[head, first:stop], k[head], v[head], lengths, layer,
                              head if one_head else 0, store=store, fixed=fixed)
            result = method.run(problem)
            out[head, first:stop] = half(result.o)
            shares = xp.broadcast_to(xp.sum(result.kept, axis=-1), result.lse.shape)
            size = float(lengths.sum()) * (1 if one_head else kv_heads)
            # Not converted: a GPU goes on while the next layer is prepared.
            return Traffic(xp.sum(xp.broadcast_to(result.bytes, result.lse.shape[:-1])),
                           size * problem.token_bytes,
                           xp.sum(shares) / result.lse.shape[-1], size)

        for traffic in spread(piece, list(range(len(pieces))), threads):
            total.add(traffic)
        return xp.permute_dims(out, (1, 0, 2, 3)).reshape((count, heads, -1))

    return context.model.extend(tokens, cache, attention), total


def log_softmax(logits: Array) -> Array:
    xp = array_namespace(logits)
    top = xp.max(logits, axis=-1, keepdims=True)
    return logits - top - xp.log(xp.sum(xp.exp(logits - top), axis=-1, keepdims=True))


@dataclass
class Predictions:
    """Of N given tokens, each predicted from those before it."""

    nll: np.ndarray  # [N], natural log
    top: np.ndarray  # [N], the most likely token
    logp: Array | None = None  # [N, vocabulary], if asked for


def predict(context: Context, tokens: list[int], states: Array, reference: Array | None,
            keep: bool = False) -> tuple[Predictions, np.ndarray | None]:
    """What the model says about `tokens`: the context's last state predicts the
    first, states [len(tokens), C] the following ones. With `reference`, log
    probabilities of exact attention, also the divergence KL(reference || this)
    per token."""
    xp = array_namespace(states)
    hidden = xp.concat((context.last[None], states[:-1]))
    given = like(np.asarray(tokens, int), states)
    nll, top, divergence, kept = [], [], [], []
    for start in range(0, len(tokens), 128):
        part = slice(start, min(start + 128, len(tokens)))
        logp = log_softmax(context.model.logits(hidden[part]))
        nll.append(-xp.take_along_axis(logp, given[part, None], axis=-1)[:, 0])
        top.append(xp.argmax(logp, axis=-1))
        if reference is not None:
            want = reference[part]
            divergence.append(xp.sum(xp.exp(want) * (want - logp), axis=-1))
        if keep:
            kept.append(logp)

    def joined(parts: list[Array]) -> np.ndarray:
        return np.concatenate([host(x) for x in parts])
    guess = Predictions(joined(nll), joined(top), xp.concat(kept) if keep else None)
    return guess, joined(divergence) if reference is not None else None
