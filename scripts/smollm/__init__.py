# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What export-trace needs: a text, a tokenizer and a numpy SmolLM2."""
