# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quality of sparse decode attention: methods, measures, reports.

Needs numpy and array-api-compat (figures: matplotlib, the model: gguf), not the
compiled part of the package: every method here is a reference in numpy, FFD
included. On torch's arrays the same references run on a GPU.
"""
