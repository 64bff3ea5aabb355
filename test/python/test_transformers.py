# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small random model of transformers whose decode steps are FFD's, on the GPU if
FFD_TARGET says so: with an infinite delta the logits are those of its own attention."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ffd

TARGET = os.environ.get("FFD_TARGET", "cpu")


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if TARGET != "cpu" and not module.cuda.is_available():
        pytest.skip("torch does not see the GPU")
    return module


def test_a_model_decodes(torch, runtime):
    from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    calls = []

    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **rest):
        """Prompts by torch; a step of one token by FFD, through the host."""
        if query.shape[2] > 1:
            return sdpa_attention_forward(module, query, key, value, attention_mask,
                                          scaling=scaling, dropout=dropout, **rest)
        q, k, v = (x.transpose(1, 2).cpu() for x in (query, key, value))  # tokens before heads
        got = ffd.decode(q, k, v, delta=np.inf, sm_scale=scaling, runtime=runtime)
        calls.append(k.shape[1])
        out = torch.from_dlpack(got.out).to(query.device, query.dtype)  # [batch, 1, heads, dim]
        return out, None

    AttentionInterface.register("ffd_test", attend)
    torch.manual_seed(3)
    device = "cpu" if TARGET.startswith("cpu") else "cuda"
    config = LlamaConfig(vocab_size=97, hidden_size=256, intermediate_size=128,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=64, max_position_embeddings=1024,
                         attn_implementation="sdpa")
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).eval()
    ids = torch.randint(0, 97, (2, 300), device=device)

    def steps() -> np.ndarray:
        with torch.no_grad():
            cached = model(ids[:, :-3], use_cache=True)
            logits = []
            for i in range(297, 300):
                cached = model(ids[:, i:i + 1], past_key_values=cached.past_key_values,
                               use_cache=True)
                logits.append(cached.logits[:, -1].float().cpu().numpy())
        return np.stack(logits)

    want = steps()
    model.set_attn_implementation("ffd_test")
    got = steps()
    assert calls == [298, 298, 299, 299, 300, 300]  # two layers each
    gap = np.abs(got - want).max() / np.abs(want).max()
    assert gap < 3e-2, gap
    assert np.abs(want).max() > 0.1 and not (got == want).all()
