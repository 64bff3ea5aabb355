# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quality of sparse decode attention: methods, measures, reports.

Needs numpy only (figures: matplotlib, the model: gguf), not the compiled part
of the package: every method here is a reference in numpy, FFD included.
"""
