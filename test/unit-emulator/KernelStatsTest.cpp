//===- KernelStatsTest.cpp - Figures of a kernel ------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel whose loops are written down here, its figures counted by hand. The
// CUDA programs are stand-ins that print what ptxas 13.0, nvdisasm 13.5 and
// cuobjdump 13.4 printed for it.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/KernelStats.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include "gtest/gtest.h"

#include <cstdlib>

using namespace mlir;
using namespace mlir::ffd;
using Kind = InstructionKind;

namespace {

/// Rounds of blocks; a wait that loops by itself, under a label that is its
/// own; a store that is not for every block; after the blocks, a loop of
/// another kind.
const char *const ptx = R"ptx(.version 8.0
.target sm_80
.address_size 64

.extern .shared .align 128 .b8 dynamic[];
.shared .align 16 .b8 fixed[256];

.visible .entry probe(
	.param .u64 probe_param_0
)
.reqntid 128
.minnctapersm 3
{
	.reg .pred p, rare;
	.reg .b32 a, b, c, d, i, n, x;
	.reg .b64 g;

	ld.param.u64 g, [probe_param_0];
	mov.b32 a, 0;
	mov.b32 b, 0;
	mov.b32 i, 0;
	mov.b32 x, dynamic;
	ld.global.b32 n, [g];
	st.shared.b32 [fixed], n;
rounds:
	mov.b32 i, 0;
scan: // one block
	// begin inline asm
	{
	.reg .pred done;
	cp.async.wait_group 1;
again: ld.volatile.shared.b32 b, [x];
	setp.ne.b32 done, b, 0;
	@!done bra again;
	}
	// end inline asm
	ld.shared.v4.b32 {a, b, c, d}, [x];
	ld.shared.v2.b32 {c, d}, [x+64];
	mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32
		{a, b, c, d},
		{a, b, c, d},
		{a, b},
		{a, b, c, d};
	mul.rn.f16x2 b, b, d;
	setp.eq.b32 rare, b, 0;
	@!rare bra skip;
	st.global.b32 [g+8], a;
skip:
	bar.warp.sync -1;
	/* the next one */
	cp.async.cg.shared.global [x], [g], 16;
	cp.async.commit_group;
	add.s32 i, i, 1;
	setp.lt.s32 p, i, n;
	@p bra scan;
second:
	ld.global.b32 c, [g+32];
	add.s32 x, x, c;
	setp.lt.s32 p, x, n;
	@p bra.uni second;
	sub.s32 n, n, 1;
	setp.gt.s32 p, n, 0;
	@p bra rounds;
	st.global.v2.b32 [g+16], {a, x};
	ret;
}
)ptx";

const char *const ptxasLog = R"log(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'probe' for 'sm_80'
ptxas info    : Function properties for probe
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 256 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 9.199 ms
)log";

const char *const nvdisasmText = R"sass(probe:
.text.probe:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/                   IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160] ;
        /*0020*/                   ULDC.64 UR6, c[0x0][0x118] ;
        /*0030*/                   IMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ;
        /*0040*/                   LDG.E R0, [R2.64] ;
        /*0050*/                   IMAD.MOV.U32 R13, RZ, RZ, 0x100 ;
        /*0060*/                   STS [RZ], R0 ;
.L_x_3:
        /*0070*/                   UMOV UR4, URZ ;
.L_x_1:
        /*0080*/                   UIADD3 UR4, UR4, 0x1, URZ ;
        /*0090*/                   DEPBAR.LE SB0, 0x1 ;
        /*00a0*/                   ISETP.LE.AND P0, PT, R0, UR4, PT ;
.L_x_0:
        /*00b0*/                   LDS R4, [R13] ;
        /*00c0*/                   ISETP.NE.U32.AND P1, PT, R4, RZ, PT ;
        /*00d0*/              @!P1 BRA `(.L_x_0) ;
        /*00e0*/                   LDS.64 R4, [R13] ;
        /*00f0*/                   LDS.64 R6, [R13+0x40] ;
        /*0100*/                   IMMA.16832.U8.S8 R8, R4.ROW, R4.COL, R4 ;
        /*0110*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0120*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0130*/                   HMUL2 R4, R9, R11 ;
        /*0140*/                   ISETP.NE.U32.AND P1, PT, R4, RZ, PT ;
        /*0150*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0160*/              @!P1 STG.E [R2.64+0x8], R8 ;
.L_x_5:
        /*0170*/                   NOP ;
        /*0180*/              @!PT LDS RZ, [RZ] ;
        /*0190*/              @!PT LDS RZ, [RZ] ;
        /*01a0*/              @!PT LDS RZ, [RZ] ;
        /*01b0*/                   LDGSTS.E.BYPASS.128 [R13], [R2.64] ;
        /*01c0*/                   LDGDEPBAR ;
        /*01d0*/              @!P0 BRA `(.L_x_1) ;
        /*01e0*/                   LDG.E R4, [R2.64+0x20] ;
.L_x_2:
        /*01f0*/                   IMAD.IADD R13, R4, 0x1, R13 ;
        /*0200*/                   ISETP.LT.AND P0, PT, R13, R0, PT ;
        /*0210*/               @P0 BRA `(.L_x_2) ;
        /*0220*/                   IADD3 R0, R0, -0x1, RZ ;
        /*0230*/                   ISETP.GT.AND P0, PT, R0, RZ, PT ;
        /*0240*/               @P0 BRA `(.L_x_3) ;
        /*0250*/                   IMAD.MOV.U32 R12, RZ, RZ, R8 ;
        /*0260*/                   STG.E.64 [R2.64+0x10], R12 ;
.L_x_6:
        /*0270*/                   EXIT ;
.L_x_4:
        /*0280*/                   BRA `(.L_x_4);
.L_x_7:
)sass";

const char *const cuobjdumpText = R"sass(	code for sm_80
	.target	sm_80
		Function : probe
	.headerflags	@"EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM80)"
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/                   IMAD.MOV.U32 R2, RZ, RZ, c[0x0][0x160] ;
        /*0020*/                   ULDC.64 UR6, c[0x0][0x118] ;
        /*0030*/                   IMAD.MOV.U32 R3, RZ, RZ, c[0x0][0x164] ;
        /*0040*/                   LDG.E R0, [R2.64] ;
        /*0050*/                   IMAD.MOV.U32 R13, RZ, RZ, 0x100 ;
        /*0060*/                   STS [RZ], R0 ;
        /*0070*/                   UMOV UR4, URZ ;
        /*0080*/                   UIADD3 UR4, UR4, 0x1, URZ ;
        /*0090*/                   DEPBAR.LE SB0, 0x1 ;
        /*00a0*/                   ISETP.LE.AND P0, PT, R0, UR4, PT ;
        /*00b0*/                   LDS R4, [R13] ;
        /*00c0*/                   ISETP.NE.U32.AND P1, PT, R4, RZ, PT ;
        /*00d0*/              @!P1 BRA 0xb0 ;
        /*00e0*/                   LDS.64 R4, [R13] ;
        /*00f0*/                   LDS.64 R6, [R13+0x40] ;
        /*0100*/                   IMMA.16832.U8.S8 R8, R4.ROW, R4.COL, R4 ;
        /*0110*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0120*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0130*/                   HMUL2 R4, R9, R11 ;
        /*0140*/                   ISETP.NE.U32.AND P1, PT, R4, RZ, PT ;
        /*0150*/                   @!UPT UIADD3 URZ, URZ, URZ, URZ ;
        /*0160*/              @!P1 STG.E [R2.64+0x8], R8 ;
        /*0170*/                   NOP ;
        /*0180*/              @!PT LDS RZ, [RZ] ;
        /*0190*/              @!PT LDS RZ, [RZ] ;
        /*01a0*/              @!PT LDS RZ, [RZ] ;
        /*01b0*/                   LDGSTS.E.BYPASS.128 [R13], [R2.64] ;
        /*01c0*/                   LDGDEPBAR ;
        /*01d0*/              @!P0 BRA 0x80 ;
        /*01e0*/                   LDG.E R4, [R2.64+0x20] ;
        /*01f0*/                   IMAD.IADD R13, R4, 0x1, R13 ;
        /*0200*/                   ISETP.LT.AND P0, PT, R13, R0, PT ;
        /*0210*/               @P0 BRA 0x1f0 ;
        /*0220*/                   IADD3 R0, R0, -0x1, RZ ;
        /*0230*/                   ISETP.GT.AND P0, PT, R0, RZ, PT ;
        /*0240*/               @P0 BRA 0x70 ;
        /*0250*/                   IMAD.MOV.U32 R12, RZ, RZ, R8 ;
        /*0260*/                   STG.E.64 [R2.64+0x10], R12 ;
        /*0270*/                   EXIT ;
        /*0280*/                   BRA 0x280;
		..........
)sass";

GPUArch archNamed(StringRef name) {
  for (const GPUArch &arch : getGPUArchs())
    if (arch.name == name)
      return arch;
  return getGPUArchs().front();
}

/// A folder of stand-ins for CUDA programs, the only one on PATH.
class CudaPrograms {
public:
  CudaPrograms() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("ffd-stats", folder));
    for (const char *name : {"PATH", "CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"})
      if (const char *value = std::getenv(name))
        saved.emplace_back(name, value);
    for (const char *name : {"CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"})
      unsetenv(name);
    setenv("PATH", folder.c_str(), 1);
  }
  ~CudaPrograms() {
    for (auto &[name, value] : saved)
      setenv(name.c_str(), value.c_str(), 1);
    llvm::sys::fs::remove_directories(folder);
  }
  /// A shell script; `text` is in the variable TEXT.
  void add(StringRef name, StringRef text, StringRef script) {
    SmallString<128> path = folder;
    llvm::sys::path::append(path, name);
    {
      std::error_code ec;
      llvm::raw_fd_ostream os(path, ec);
      ASSERT_FALSE(ec);
      os << "#!/bin/sh\nTEXT=$(while read -r line; do echo \"$line\"; done "
            "<<'END'\n"
         << text << "\nEND\n)\n"
         << script << "\n";
    }
    ASSERT_FALSE(
        llvm::sys::fs::setPermissions(path, llvm::sys::fs::perms::owner_all));
  }

private:
  SmallString<128> folder;
  std::vector<std::pair<std::string, std::string>> saved;
};

/// The report of the assembler, and something in the file after -o, the last
/// argument.
const char *const ptxasScript =
    R"(echo "$TEXT"; for file; do :; done; echo code > "$file")";

/// The only kernel.
KernelStats collect(StringRef text, StringRef arch, bool assemble) {
  std::string error;
  FailureOr<std::vector<KernelStats>> all = collectKernelStats(
      text, archNamed(arch), [](StringRef) { return 60000; }, assemble, error);
  EXPECT_TRUE(succeeded(all)) << error;
  if (failed(all) || all->size() != 1) {
    ADD_FAILURE() << "expected one kernel";
    return KernelStats(archNamed(arch));
  }
  return all->front();
}

/// Compares all kinds, so that none is counted twice.
void expectCounts(const InstructionMix &mix,
                  std::vector<std::pair<Kind, int64_t>> wanted,
                  int64_t conditional) {
  int64_t total = 0;
  for (size_t i = 0; i < kInstructionKinds; ++i) {
    int64_t count = 0;
    for (auto [kind, n] : wanted)
      if (kind == static_cast<Kind>(i))
        count = n;
    EXPECT_EQ(mix.counts[i], count) << "kind " << i;
    total += count;
  }
  EXPECT_EQ(mix.total, total);
  EXPECT_EQ(mix.conditional, conditional);
}

TEST(KernelStats, CountsTheScanLoopOfPTX) {
  KernelStats stats = collect(ptx, "sm_80", false);
  EXPECT_EQ(stats.name, "probe");
  EXPECT_EQ(stats.threads, 128);
  EXPECT_EQ(stats.promisedCtas, 3);
  EXPECT_EQ(stats.staticShared, 256);
  EXPECT_EQ(stats.dynamicShared, 60000);
  EXPECT_FALSE(stats.assembled);
  EXPECT_FALSE(stats.scanSASS);
  ASSERT_EQ(stats.notes.size(), 1u);
  ASSERT_TRUE(stats.scanPTX);
  expectCounts(*stats.scanPTX,
               {{Kind::Mma, 1},
                {Kind::SharedLoad16, 1},
                {Kind::SharedLoad8, 1},
                {Kind::SharedLoad4, 1},
                {Kind::Copy, 1},
                {Kind::GlobalStore, 1},
                {Kind::Integer, 4},
                {Kind::Float, 1},
                {Kind::Control, 6}},
               /*conditional=*/1);
}

TEST(KernelStats, CountsMachineCode) {
  const std::pair<const char *, const char *> disassemblers[] = {
      {"nvdisasm", nvdisasmText}, {"cuobjdump", cuobjdumpText}};
  for (auto [name, text] : disassemblers) {
    SCOPED_TRACE(name);
    CudaPrograms programs;
    programs.add("ptxas", ptxasLog, ptxasScript);
    programs.add(name, text, R"(echo "$TEXT")");
    KernelStats stats = collect(ptx, "sm_80", true);
    EXPECT_TRUE(stats.notes.empty());
    ASSERT_TRUE(stats.assembled);
    EXPECT_EQ(stats.assembled->registers, 16);
    EXPECT_EQ(stats.assembled->spillStores, 0);
    EXPECT_EQ(stats.staticShared, 256);
    ASSERT_TRUE(stats.scanSASS);
    // What is predicated off for good counts as a wait.
    expectCounts(*stats.scanSASS,
                 {{Kind::Mma, 1},
                  {Kind::SharedLoad8, 2},
                  {Kind::SharedLoad4, 1},
                  {Kind::Copy, 1},
                  {Kind::GlobalStore, 1},
                  {Kind::Integer, 4},
                  {Kind::Float, 1},
                  {Kind::Control, 11}},
                 /*conditional=*/0);
  }
}

TEST(KernelStats, ToolsThatFail) {
  CudaPrograms programs;
  std::string error;
  auto none = [](StringRef) { return 0; };
  if (findCudaProgram("ptxas").empty()) { // not in /usr/local/cuda
    EXPECT_TRUE(
        failed(collectKernelStats(ptx, archNamed("sm_80"), none, true, error)));
    EXPECT_TRUE(StringRef(error).contains("found no ptxas")) << error;
  }
  programs.add("ptxas", "", "echo 'ptxas fatal: no'; exit 255");
  EXPECT_TRUE(
      failed(collectKernelStats(ptx, archNamed("sm_80"), none, true, error)));
  EXPECT_TRUE(StringRef(error).contains("ptxas fatal: no")) << error;

  programs.add("ptxas", ptxasLog, ptxasScript);
  programs.add("nvdisasm", "", "echo 'nvdisasm fatal: no' >&2; exit 255");
  KernelStats stats = collect(ptx, "sm_80", true);
  EXPECT_TRUE(stats.assembled);
  EXPECT_FALSE(stats.scanSASS);
  ASSERT_EQ(stats.notes.size(), 1u);
  EXPECT_TRUE(StringRef(stats.notes[0]).contains("nvdisasm fatal: no"))
      << stats.notes[0];
}

TEST(KernelStats, Occupancy) {
  // Three CTAs by shared memory (60256 bytes, in units of 128, and 1 KB each),
  // seven by registers (72 a thread), 16 by threads of sm_90 and 12 of sm_86.
  KernelStats stats = collect(ptx, "sm_90", false);
  EXPECT_EQ(stats.ctasByRegisters(), 3); // as asked for
  stats.assembled = PtxasReport();
  stats.assembled->registers = 66;
  EXPECT_EQ(stats.ctasByRegisters(), 7);
  EXPECT_EQ(stats.ctasByShared(), 3);
  EXPECT_EQ(stats.ctasByThreads(), 16);
  EXPECT_EQ(stats.residentCtas(), 3);
  EXPECT_EQ(stats.registerLimit(), 168);
  stats.assembled->registers = 255;
  EXPECT_EQ(stats.ctasByRegisters(), 2);
  EXPECT_EQ(stats.residentCtas(), 2);
  KernelStats other = collect(ptx, "sm_86", false);
  EXPECT_EQ(other.ctasByShared(), 1);
  EXPECT_EQ(other.ctasByThreads(), 12);
}

TEST(KernelStats, LoopsThatAreNoScan) {
  // None: no integer mma at all.
  std::string text = ptx;
  size_t at = text.find("u8.s8.s32");
  text.replace(at, 9, "f16.f16.f32");
  EXPECT_FALSE(collect(text, "sm_80", false).scanPTX);
  // Two: the mma and the wait in the second loop as well.
  text = ptx;
  text.insert(text.find("\tld.global.b32 c"),
              "\tmma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {a, b, c, d}, "
              "{a, b, c, d}, {a, b}, {a, b, c, d};\n"
              "\tcp.async.wait_group 0;\n");
  std::string error;
  EXPECT_TRUE(failed(collectKernelStats(
      text, archNamed("sm_80"), [](StringRef) { return 0; }, false, error)));
  EXPECT_EQ(error, "kernel 'probe' has 2 innermost loops with integer matrix "
                   "multiplications in its PTX, expected one, the scan");
}

} // namespace
