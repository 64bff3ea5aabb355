//===- CaseMatrix.cpp - What the emulated decode is tested with -----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See CaseMatrix.h.
//
//===----------------------------------------------------------------------===//

#include "CaseMatrix.h"

#include <cmath>
#include <ostream>
#include <random>
#include <set>
#include <sstream>

using namespace ffd;

namespace {
const int certificates[] = {FFD_CERTIFICATE_NONE, FFD_CERTIFICATE_PLAIN,
                            FFD_CERTIFICATE_NOISE};
const int pseudoMaxima[] = {FFD_PSEUDO_MAX_SCAN, FFD_PSEUDO_MAX_REFINED};
const int headDims[] = {64, 80, 96, 128, 192, 256};
const int valueDims[] = {0, 64, 80, 256}; // 0: as head_dim
const int groups[] = {1, 2, 3, 4, 5, 8, 11, 16};
const int elements[] = {FFD_F16, FFD_BF16};
const int bits[] = {2, 4, 8};
const int selects[] = {16, 32, 64, 128};
const char *const archs[] = {"sm_80",  "sm_86",   "sm_89",
                             "sm_90a", "sm_100a", "sm_120a"};
const std::vector<int64_t> lengths[] = {{0},        {1},    {0, 127, 128},
                                        {129, 300}, {1000}, {640, 0, 2500}};
const float deltas[] = {0, 1, 5, INFINITY};
const int splits[] = {1, 2, 5, 0}; // 0: a plan
const int lags[] = {0, 64, 200};
const char *const contents[] = {"plain",          "zero_query", "nan_query",
                                "infinite_query", "nan_key",    "zero_keys"};

enum Factor {
  // First, so that kernels without them have the first numbers.
  CertificateKind,
  PseudoMax,
  Arch,
  HeadDim,
  ValueDim,
  Group,
  Element,
  Bits,
  Select,
  Lengths, // from here on: inputs of one kernel
  Delta,
  Splits,
  Lag,
  Contents,
  kFactors
};

const size_t sizes[kFactors] = {
    std::size(certificates), std::size(pseudoMaxima), std::size(archs),
    std::size(headDims),     std::size(valueDims),    std::size(groups),
    std::size(elements),     std::size(bits),         std::size(selects),
    std::size(lengths),      std::size(deltas),       std::size(splits),
    std::size(lags),         std::size(contents)};

/// An index for each factor.
using Choice = std::array<size_t, kFactors>;
} // namespace

static MatrixCase caseOf(const Choice &c) {
  const int d = headDims[c[HeadDim]], v = valueDims[c[ValueDim]];
  ffdSpec spec = {};
  spec.head_dim = d;
  spec.value_dim = v ? v : d;
  spec.group = groups[c[Group]];
  spec.element = elements[c[Element]];
  spec.scan_bits = bits[c[Bits]];
  spec.quant_block = 128;
  spec.select_block = selects[c[Select]];
  spec.pseudo_max = int16_t(pseudoMaxima[c[PseudoMax]]);
  spec.certificate = int16_t(certificates[c[CertificateKind]]);
  return {spec,
          archs[c[Arch]],
          lengths[c[Lengths]],
          deltas[c[Delta]],
          splits[c[Splits]],
          lags[c[Lag]],
          Content(c[Contents])};
}

std::string MatrixCase::describe() const {
  std::ostringstream os;
  os << "arch=" << arch << " head_dim=" << spec.head_dim
     << " value_dim=" << spec.value_dim << " group=" << spec.group
     << " element=" << elementName(spec.element)
     << " scan_bits=" << spec.scan_bits << " select_block=" << spec.select_block
     << " lengths=";
  for (size_t i = 0; i < lengths.size(); ++i)
    os << (i ? "," : "") << lengths[i];
  os << " delta=" << delta << " splits=" << splits << " lag=" << lag
     << " content=" << contents[int(content)]
     << " pseudo_max=" << (spec.pseudo_max ? "refined" : "scan")
     << " certificate=" << certificateName(spec.certificate);
  return os.str();
}

void ffd::PrintTo(const MatrixCase &c, std::ostream *os) {
  *os << c.describe();
}

uint64_t ffd::matrixSize() {
  uint64_t count = 1;
  for (size_t size : sizes)
    count *= size;
  return count;
}

uint64_t ffd::inputsPerKernel() {
  uint64_t count = 1;
  for (size_t f = Lengths; f < kFactors; ++f)
    count *= sizes[f];
  return count;
}

MatrixCase ffd::matrixCase(uint64_t number) {
  Choice choice = {};
  for (size_t f = kFactors; f-- > 0;) {
    choice[f] = number % sizes[f];
    number /= sizes[f];
  }
  return caseOf(choice);
}

// Greedy: each case is the best of some random ones.
std::vector<MatrixCase> ffd::coveringCases(uint32_t seed) {
  std::set<std::array<size_t, 4>> open; // factors, values
  for (size_t a = 0; a < kFactors; ++a)
    for (size_t b = 0; b < a; ++b)
      for (size_t x = 0; x < sizes[a]; ++x)
        for (size_t y = 0; y < sizes[b]; ++y)
          open.insert({a, b, x, y});
  std::mt19937 random(seed);
  const auto gain = [&](const Choice &choice) {
    size_t count = 0;
    for (size_t a = 0; a < kFactors; ++a)
      for (size_t b = 0; b < a; ++b)
        count += open.count({a, b, choice[a], choice[b]});
    return count;
  };
  std::vector<MatrixCase> cases;
  while (!open.empty()) {
    Choice best = {};
    size_t bestGain = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
      Choice choice;
      for (size_t f = 0; f < kFactors; ++f)
        choice[f] = random() % sizes[f];
      // One open pair is certain.
      auto pair = *std::next(open.begin(), long(random() % open.size()));
      choice[pair[0]] = pair[2];
      choice[pair[1]] = pair[3];
      if (size_t g = gain(choice); g > bestGain) {
        bestGain = g;
        best = choice;
      }
    }
    for (size_t a = 0; a < kFactors; ++a)
      for (size_t b = 0; b < a; ++b)
        open.erase({a, b, best[a], best[b]});
    cases.push_back(caseOf(best));
  }
  return cases;
}
