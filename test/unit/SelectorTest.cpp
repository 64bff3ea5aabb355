//===- SelectorTest.cpp - Names of rules --------------------------*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ffd/Selector.h"
#include "ffd/Spec.h"

#include "gtest/gtest.h"

#include <cstring>

using namespace ffd;

static Status parse(const char *rule, const char *execution, Selector &to) {
  return Selector::parse(rule, execution, "rule", "execution", to);
}

TEST(Selector, NamesReadBack) {
  for (const char *name : {"top_delta", "all", "top_k=1", "top_k=64",
                           "top_p=0.9", "top_p=1.0", "top_p=1e-05"}) {
    Selector selector;
    ASSERT_TRUE(parse(name, "", selector).ok()) << name;
    EXPECT_EQ(selector.name(), name);
  }
}

TEST(Selector, Attributes) {
  Selector selector;
  EXPECT_EQ(selector.attribute(), "#ffd.top_delta");
  ASSERT_TRUE(parse("all", "", selector).ok());
  EXPECT_EQ(selector.attribute(), "#ffd.all");
  ASSERT_TRUE(parse("top_k=12", "", selector).ok());
  EXPECT_EQ(selector.attribute(), "#ffd.top_k<12>");
  ASSERT_TRUE(parse("top_p=0.5", "", selector).ok());
  EXPECT_EQ(selector.attribute(), "#ffd.top_p<5.00000000000000000e-01 : f64>");
}

TEST(Selector, RulesOverTheRowAreSplit) {
  Selector selector;
  ASSERT_TRUE(parse("top_delta", "", selector).ok());
  EXPECT_TRUE(selector.isDefault());
  ASSERT_TRUE(parse("top_delta", "split", selector).ok());
  EXPECT_TRUE(selector.split && !selector.isDefault() && !selector.needsRow());
  ASSERT_TRUE(parse("all", "fused", selector).ok());
  EXPECT_TRUE(!selector.split && !selector.isDefault());
  ASSERT_TRUE(parse("top_k=3", "", selector).ok());
  EXPECT_TRUE(selector.split && selector.needsRow());
}

TEST(Selector, ErrorsNameWhatIsWrong) {
  const struct {
    const char *rule, *execution, *message;
  } cases[] = {
      {"best", "",
       "rule is 'best', expected top_delta, top_k=K, top_p=P or all"},
      {"", "", "rule is '', expected top_delta, top_k=K, top_p=P or all"},
      {"top_k", "",
       "rule is 'top_k', expected top_delta, top_k=K, top_p=P or all"},
      {"top_k=", "",
       "rule is 'top_k=', expected top_k=K with a whole number K of at least "
       "1"},
      {"top_k=0", "",
       "rule is 'top_k=0', expected top_k=K with a whole number K of at least "
       "1"},
      {"top_k=5x", "",
       "rule is 'top_k=5x', expected top_k=K with a whole number K of at least "
       "1"},
      {"top_k=99999999999999999999", "",
       "rule is 'top_k=99999999999999999999', expected top_k=K with a whole "
       "number K of at least 1"},
      {"top_p=0", "",
       "rule is 'top_p=0', expected top_p=P with a number P above 0 and at "
       "most 1"},
      {"top_p=nan", "",
       "rule is 'top_p=nan', expected top_p=P with a number P above 0 and at "
       "most 1"},
      {"top_p=1.1", "",
       "rule is 'top_p=1.1', expected top_p=P with a number P above 0 and at "
       "most 1"},
      {"all", "both", "execution is 'both', expected fused or split"},
      {"top_p=0.5", "fused",
       "execution is 'fused' with rule 'top_p=0.5', expected split: the rule "
       "needs the scores of "
       "the whole row before it keeps a block"},
  };
  for (const auto &c : cases) {
    Selector selector;
    selector.k = 77;
    Status status = parse(c.rule, c.execution, selector);
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_EQ(status.message(), c.message);
    EXPECT_EQ(selector.k, 77) << "changed by a failure";
  }
}

static ffdSpec makeSpec(int32_t bits, int32_t noResiduals) {
  ffdSpec spec = {};
  spec.head_dim = spec.value_dim = 128;
  spec.group = 4;
  spec.scan_bits = bits;
  spec.quant_block = 128;
  spec.select_block = 16;
  spec.no_residuals = noResiduals;
  return spec;
}

TEST(Selector, AttributesOfThePseudoMax) {
  EXPECT_EQ(Selector().attribute(), "#ffd.top_delta");
  EXPECT_EQ(Selector().attribute(FFD_PSEUDO_MAX_REFINED),
            "#ffd.top_delta<pseudo_max = refined>");
}

TEST(Selector, AttributesOfTheCertificate) {
  ffdSpec spec = {};
  spec.certificate = FFD_CERTIFICATE_PLAIN;
  EXPECT_EQ(Selector().attribute(spec), "#ffd.top_delta<certificate = plain>");
  spec.certificate = FFD_CERTIFICATE_NOISE;
  spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  EXPECT_EQ(Selector().attribute(spec),
            "#ffd.top_delta<pseudo_max = refined, certificate = noise>");
}

TEST(Selector, SpecsWithACertificate) {
  ffdSpec spec = makeSpec(2, 0);
  spec.certificate = FFD_CERTIFICATE_PLAIN;
  EXPECT_TRUE(checkSpec(spec).ok());
  EXPECT_EQ(specName(spec), "d128-v128-g4-f16-b2-q128-s16-certplain");
  EXPECT_TRUE(spec != makeSpec(2, 0));
  EXPECT_TRUE(withoutRule(spec) == makeSpec(2, 0));
  spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  spec.certificate = FFD_CERTIFICATE_NOISE;
  EXPECT_EQ(specName(spec), "d128-v128-g4-f16-b2-q128-s16-refined-certnoise");
  spec = makeSpec(2, 1);
  spec.certificate = FFD_CERTIFICATE_NOISE;
  EXPECT_TRUE(checkSpec(spec, true).ok());
  for (int16_t bad : {-1, 3}) {
    spec.certificate = bad;
    EXPECT_EQ(checkSpec(spec, true).message(),
              "'ffdSpec' field 'certificate' is " + std::to_string(bad) +
                  ", expected 0 (none), 1 (plain) or 2 (noise)");
  }
  spec = makeSpec(16, 1);
  spec.certificate = FFD_CERTIFICATE_PLAIN;
  EXPECT_EQ(checkSpec(spec, true).message(),
            "'ffdSpec' field 'certificate' is 1, expected 0 (none) with "
            "scan_bits 16");
}

/// Programs that were built when pseudo_max had the word to itself.
TEST(Selector, SpecsOfOlderPrograms) {
  ffdSpec spec = makeSpec(2, 0);
  const int32_t refined = FFD_PSEUDO_MAX_REFINED;
  std::memcpy(reinterpret_cast<char *>(&spec) + 40, &refined, 4);
  EXPECT_EQ(sizeof spec, size_t(44));
  EXPECT_EQ(spec.pseudo_max, FFD_PSEUDO_MAX_REFINED);
  EXPECT_EQ(spec.certificate, FFD_CERTIFICATE_NONE);
}

TEST(Selector, SpecsForAblations) {
  EXPECT_TRUE(checkSpec(makeSpec(2, 0)).ok());
  EXPECT_EQ(checkSpec(makeSpec(16, 1)).message(),
            "'ffdSpec' field 'scan_bits' is 16, expected 2, 4 or 8");
  EXPECT_EQ(checkSpec(makeSpec(2, 1)).message(),
            "'ffdSpec' field 'no_residuals' is 1, expected 0");
  EXPECT_TRUE(checkSpec(makeSpec(2, 1), true).ok());
  EXPECT_TRUE(checkSpec(makeSpec(16, 1), true).ok());
  EXPECT_EQ(
      checkSpec(makeSpec(16, 0), true).message(),
      "'ffdSpec' field 'no_residuals' is 0, expected 1 with scan_bits 16");
  EXPECT_EQ(checkSpec(makeSpec(3, 0), true).message(),
            "'ffdSpec' field 'scan_bits' is 3, expected 2, 4, 8 or 16");
  EXPECT_EQ(checkSpec(makeSpec(4, 2), true).message(),
            "'ffdSpec' field 'no_residuals' is 2, expected 0 or 1");
  ffdSpec refined = makeSpec(2, 0);
  refined.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  EXPECT_TRUE(checkSpec(refined).ok());
  EXPECT_EQ(specName(refined), "d128-v128-g4-f16-b2-q128-s16-refined");
  EXPECT_TRUE(withoutRule(refined) == makeSpec(2, 0));
  refined.no_residuals = 1;
  EXPECT_EQ(checkSpec(refined, true).message(),
            "'ffdSpec' field 'pseudo_max' is 1, expected 0 (scan) without "
            "residuals");
  refined.pseudo_max = 2;
  EXPECT_EQ(
      checkSpec(refined, true).message(),
      "'ffdSpec' field 'pseudo_max' is 2, expected 0 (scan) or 1 (refined)");
  // Who names none gets a refined one where there is something to refine.
  EXPECT_EQ(Selector().defaultPseudoMax(true), FFD_PSEUDO_MAX_REFINED);
  EXPECT_EQ(Selector().defaultPseudoMax(false), FFD_PSEUDO_MAX_SCAN);
  Selector all;
  all.rule = Rule::All;
  EXPECT_EQ(all.defaultPseudoMax(true), FFD_PSEUDO_MAX_SCAN);
  EXPECT_TRUE(makeSpec(4, 1) != makeSpec(4, 0));
  EXPECT_EQ(specName(makeSpec(4, 1)), "d128-v128-g4-f16-b4-q128-s16-r0");
  EXPECT_EQ(layoutOf(makeSpec(4, 1)).residualBytes(), 0);
  EXPECT_EQ(layoutOf(makeSpec(16, 1)).codeBytes(), 128 * 128 * 2);
}
