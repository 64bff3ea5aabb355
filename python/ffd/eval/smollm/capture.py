# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Captures what the layers of the model attend with, as a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tqdm import tqdm

from ..arrays import host
from .model import Model


def capture(model: Model, text: str, name: str, tokens: int, queries: int, path: Path,
            quiet: bool = False) -> None:
    """Writes all layers: K and V of `tokens` tokens, and the queries of positions
    spread over the last eighth of them."""
    ids = model.tokenizer().encode(text[:12 * tokens])[:tokens]
    if len(ids) < tokens or tokens > model.context:
        raise ValueError(f"text '{name}' has {len(ids)} tokens, the model sees {model.context}; "
                         f"expected {tokens}")
    positions = np.unique(np.linspace(tokens - tokens // 8, tokens - 1, queries).astype(int))
    tensors: dict[str, np.ndarray] = {}
    with tqdm(total=model.layers * tokens, unit="position", unit_scale=True, desc="trace",
              disable=quiet) as bar:
        for layer, q, k, v in model.forward(ids, model.layers - 1, progress=bar.update):
            prefix = f"layers.{layer}."
            tensors[prefix + "q"] = host(q)[positions].astype(np.float16)
            tensors[prefix + "k"] = host(k)[None].astype(np.float16)
            tensors[prefix + "v"] = host(v)[None].astype(np.float16)
            tensors[prefix + "lengths"] = (positions + 1).astype(np.int32)
    part = path.with_suffix(".part")  # a stopped run leaves no half trace
    save_file(tensors, part, {"model": str(model.name), "text": name, "tokens": str(tokens),
                              "made_by": "ffd-eval"})
    part.rename(path)
