# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A text, a tokenizer and SmolLM2 in numpy (needs the package gguf)."""
