//===- ffd-compile.cpp - Compile decode kernels ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles a decode from flags alone, or from a file of IR, to any stage. A
// thin driver: everything it does is in lib/Driver.
//
//===----------------------------------------------------------------------===//

#include "ffd/Driver/Compiler.h"
#include "ffd/Package.h"
#include "ffd/Selector.h"
#include "ffd/abi.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

#include <chrono>

using namespace mlir;
using namespace mlir::ffd;
namespace cl = llvm::cl;

static cl::OptionCategory category("ffd-compile options");

static cl::opt<std::string> inputFile(
    cl::Positional, cl::cat(category), cl::value_desc("decode.mlir"),
    cl::desc("[IR to compile; without it the program is built from flags]"));
static cl::opt<std::string>
    outputFile("o", cl::cat(category), cl::init("-"), cl::value_desc("file"),
               cl::desc("output file (default: stdout); with --emit=package, "
                        "also a folder, or a path that ends in '/' for one to "
                        "be made: the package gets the name there by which the "
                        "runtime finds it"));
static cl::opt<std::string>
    arch("arch", cl::cat(category), cl::init("sm_90a"),
         cl::value_desc("sm_80|sm_86|sm_89|sm_90|sm_90a|sm_100a|sm_120a|cpu"),
         cl::desc("target (default: sm_90a); with --stats, also several GPUs "
                  "with commas between"));
static cl::opt<std::string>
    cpuISA("isa", cl::cat(category), cl::value_desc("avx2|avx512|avx512vnni"),
           cl::desc("CPU instruction set (default: what this machine has)"));
static cl::opt<Stage> emitStage(
    "emit", cl::cat(category), cl::init(Stage::PTX), cl::desc("what to emit:"),
    cl::values(clEnumValN(Stage::FFD, "ffd", "the algorithm on tensors"),
               clEnumValN(Stage::Fused, "fused", "specialised and fused"),
               clEnumValN(Stage::Tile, "tile", "the tile program"),
               clEnumValN(Stage::GPU, "gpu", "warps, rings, queues, barriers"),
               clEnumValN(Stage::NVVM, "nvvm", "the NVVM dialect"),
               clEnumValN(Stage::LLVM, "llvm", "LLVM IR, as text"),
               clEnumValN(Stage::PTX, "ptx", "PTX (default)"),
               clEnumValN(Stage::Cubin, "cubin", "machine code by ptxas"),
               clEnumValN(Stage::Object, "object",
                          "an object file for the CPU"),
               clEnumValN(Stage::Package, "package",
                          "a kernel package: PTX and what a loader needs")));

enum class StatsFormat { None, Text, Json };
/// Made when first asked for: LLVM has an option of this name, about itself,
/// which has to make way.
static cl::opt<StatsFormat> &statsFormat() {
  static bool isFree = [] {
    auto &options = cl::getRegisteredOptions();
    if (auto it = options.find("stats"); it != options.end())
      it->second->removeArgument();
    return true;
  }();
  (void)isFree;
  static cl::opt<StatsFormat> option(
      "stats", cl::cat(category), cl::ValueOptional,
      cl::init(StatsFormat::None),
      cl::desc("instead of code, print what the GPU kernel costs; "
               "--emit=ptx without assembling, --emit=cubin not without:"),
      cl::values(clEnumValN(StatsFormat::Text, "text",
                            "registers, shared memory, occupancy, instructions "
                            "of the scan loop (default)"),
                 clEnumValN(StatsFormat::Json, "json", "the same as JSON"),
                 clEnumValN(StatsFormat::Text, "", "")));
  return option;
}

static cl::opt<int64_t> timeRuns(
    "time", cl::cat(category), cl::init(0), cl::value_desc("n"),
    cl::desc("instead of code, print how long compiling takes: the median of n "
             "runs, to stages on the way and to what --emit asks for"));
static cl::opt<Program> program(
    "program", cl::cat(category), cl::init(Program::Decode),
    cl::desc("what to build without a file:"),
    cl::values(clEnumValN(Program::Decode, "decode", "sparse decode (default)"),
               clEnumValN(Program::Exact, "exact", "exact decode, the rival"),
               clEnumValN(Program::Append, "append",
                          "append tokens to a split cache (GPU)"),
               clEnumValN(Program::Plan, "plan",
                          "divide a ragged batch among CTAs (GPU)")));
static cl::opt<std::string>
    selector("selector", cl::cat(category), cl::init("top_delta"),
             cl::value_desc("top_delta|top_k=64|top_p=0.9|all"),
             cl::desc("selection rule without a file (default: top_delta); "
                      "kernels of top_k and top_p are for the CPU"));
static cl::opt<ffdCertificate> certificate(
    "certificate", cl::cat(category), cl::init(FFD_CERTIFICATE_NONE),
    cl::desc("estimate of the softmax mass that top_delta skips, without a "
             "file:"),
    cl::values(clEnumValN(FFD_CERTIFICATE_NONE, "none", "none (default)"),
               clEnumValN(FFD_CERTIFICATE_PLAIN, "plain",
                          "from the scan's scores"),
               clEnumValN(FFD_CERTIFICATE_NOISE, "noise",
                          "corrected for their noise")));
static cl::opt<std::string> pseudoMax(
    "pseudo-max", cl::cat(category), cl::value_desc("refined|scan"),
    cl::desc("scores that top_delta takes the pseudo-max from, without a file: "
             "refined ones (default where there are residuals), or those of "
             "the scan, which is what a C program gets that leaves "
             "'ffdSpec.pseudo_max' 0"));
static cl::opt<std::string>
    execution("execution", cl::cat(category), cl::value_desc("fused|split"),
              cl::desc("selector and computer as one kernel, where the rule "
                       "can be (default), or as two"));

static cl::opt<int64_t> headDim("head-dim", cl::cat(category), cl::init(0),
                                cl::desc("channels of K and q (default: 128)"));
static cl::opt<int64_t> valueDim("value-dim", cl::cat(category), cl::init(0),
                                 cl::desc("channels of V (default: head-dim)"));
static cl::opt<int64_t>
    group("group", cl::cat(category), cl::init(0),
          cl::desc("query heads per kv head, 1..16 (default: 4)"));
static cl::opt<std::string>
    kvType("kv-type", cl::cat(category), cl::value_desc("f16|bf16"),
           cl::desc("type of q, K, V and scales (default: f16)"));
static cl::opt<int64_t>
    scanBits("scan-bits", cl::cat(category), cl::init(0),
             cl::desc("bits of a thumbnail: 2, 4 or 8 (default: 2); 16, on the "
                      "CPU: keys that are not split"));
static cl::opt<int64_t> residualBits(
    "residual-bits", cl::cat(category), cl::init(8),
    cl::desc("bits of a residual without a file: 8 (default), or 0, on the "
             "CPU: attention over thumbnails alone"));
static cl::opt<int64_t>
    quantBlock("quant-block", cl::cat(category), cl::init(0),
               cl::desc("tokens that share a scale: 128 (default)"));
static cl::opt<int64_t> selectBlock(
    "select-block", cl::cat(category), cl::init(0),
    cl::desc("tokens kept together: 16, 32, 64 or 128 (default: 16)"));

static cl::opt<int64_t> queryTokens(
    "query-tokens", cl::cat(category), cl::init(1),
    cl::desc("newest tokens of a sequence that ask at once, 1..8 without a "
             "file (default: 1)"));

static cl::opt<Centre> centre(
    "centre", cl::cat(category), cl::init(Centre::none),
    cl::desc("what the keys of a cache are relative to, without a file:"),
    cl::values(clEnumValN(Centre::none, "none", "nothing (default)"),
               clEnumValN(Centre::row, "row",
                          "the mean of their row's first committed block")));

static cl::opt<int64_t> warps("warps", cl::cat(category), cl::init(0),
                              cl::desc("schedule: warps per CTA"));
static cl::opt<int64_t> ctas("ctas", cl::cat(category), cl::init(0),
                             cl::desc("schedule: CTAs per multiprocessor"));
static cl::opt<int64_t> stages("stages", cl::cat(category), cl::init(0),
                               cl::desc("schedule: stages of the scan ring"));
static cl::opt<int64_t> slots("slots", cl::cat(category), cl::init(0),
                              cl::desc("schedule: slots of the refine ring"));

static constexpr int64_t kMostRuns = 1000; ///< of --time

static int fail(const Twine &message) {
  llvm::WithColor::error(llvm::errs(), "ffd-compile") << message << "\n";
  return 1;
}

/// A diagnostic about a program without a file that a location could point
/// into. A field of the specification is the option of that name.
static LogicalResult printWithoutPlace(Diagnostic &diagnostic) {
  if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
    return failure();
  std::string message = diagnostic.str();
  auto [field, rest] = StringRef(message).split(' ');
  std::string name = field.str();
  std::replace(name.begin(), name.end(), '_', '-');
  auto &options = cl::getRegisteredOptions();
  if (auto it = options.find(name);
      it != options.end() &&
      llvm::is_contained(it->second->Categories, &category))
    message = ("option --" + name + " " + rest).str();
  fail(message);
  return success();
}

/// Bits of a residual that the flags give: keys that are not split have none.
static int64_t getResidualBits(const CompilerOptions &options) {
  return options.scanBits == 16 && !residualBits.getNumOccurrences()
             ? 0
             : residualBits.getValue();
}

/// The program that the flags describe.
static OwningOpRef<ModuleOp> buildFromFlags(MLIRContext &context,
                                            const CompilerOptions &options,
                                            const ::ffd::Selector &rule) {
  Type element;
  if (options.element.empty() || options.element == "f16")
    element = Float16Type::get(&context);
  else
    element = BFloat16Type::get(&context);
  int64_t d = options.headDim ? options.headDim : 128;
  auto emit = [&] { return emitError(UnknownLoc::get(&context)); };
  auto spec = SpecAttr::getChecked(
      llvm::function_ref<InFlightDiagnostic()>(emit), &context, d,
      options.valueDim ? options.valueDim : d,
      options.group ? options.group : 4, element,
      options.scanBits ? options.scanBits : 2,
      options.quantBlock ? options.quantBlock : 128,
      options.selectBlock ? options.selectBlock : 16, getResidualBits(options),
      queryTokens.getValue(), centre.getValue());
  if (!spec)
    return {};
  int32_t kind = rule.defaultPseudoMax(getResidualBits(options) != 0);
  if (pseudoMax.getNumOccurrences())
    kind =
        pseudoMax == "refined" ? FFD_PSEUDO_MAX_REFINED : FFD_PSEUDO_MAX_SCAN;
  return buildProgram(&context, program, spec, rule.attribute(kind, certificate));
}

/// The rule and execution that the flags give; false after a message. A file
/// has its own rule.
static bool parseSelector(CompilerOptions &options, ::ffd::Selector &rule) {
  ::ffd::Status status = ::ffd::Selector::parse(
      selector, execution, "option --selector", "option --execution", rule);
  if (!status.ok()) {
    fail(status.message());
    return false;
  }
  if (pseudoMax.getNumOccurrences() && pseudoMax != "scan" &&
      pseudoMax != "refined") {
    fail("option --pseudo-max is '" + pseudoMax +
         "', expected refined or scan");
    return false;
  }
  if (pseudoMax == "refined" && rule.rule != ::ffd::Rule::TopDelta) {
    fail("option --pseudo-max is 'refined' with --selector=" + selector +
         ", expected --selector=top_delta");
    return false;
  }
  if (certificate != FFD_CERTIFICATE_NONE && !rule.isDefault()) {
    fail(std::string("option --certificate is '") +
         ::ffd::certificateName(certificate) + "' with --selector=" + selector +
         (rule.split ? " in split execution" : "") +
         ", expected --selector=top_delta in fused execution");
    return false;
  }
  if (rule.needsRow() && !options.isCPU() && emitStage > Stage::Tile) {
    fail("option --selector is '" + selector + "' with --arch=" + arch +
         ", expected --arch=cpu: a rule over the whole row has no GPU kernel");
    return false;
  }
  options.fuse = !rule.split;
  return true;
}

/// An option that would have no effect, and why; empty if there is none.
static std::string findIdleOption(const CompilerOptions &options) {
  auto idle = [](const llvm::cl::Option &option, const Twine &reason) {
    return option.getNumOccurrences()
               ? ("option --" + option.ArgStr + " has no effect " + reason)
                     .str()
               : std::string();
  };
  std::string result;
  if (!inputFile.empty())
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &program, &selector, &pseudoMax, &certificate, &residualBits,
             &queryTokens, &centre})
      if (result.empty())
        result = idle(*option, "with a file, which says itself what to build");
  if (program == Program::Exact)
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &selector, &pseudoMax, &certificate, &execution, &residualBits,
             &centre})
      if (result.empty())
        result = idle(*option, "with --program=exact, which selects nothing");
  if (program == Program::Append)
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &selector, &pseudoMax, &certificate, &group, &selectBlock,
             &execution, &residualBits, &queryTokens, &warps, &ctas, &stages,
             &slots})
      if (result.empty())
        result = idle(*option, "with --program=append, whose kernel does not "
                               "depend on it");
  if (program == Program::Plan)
    for (const cl::Option *option : std::initializer_list<const cl::Option *>{
             &selector, &pseudoMax, &certificate, &execution, &residualBits,
             &centre, &warps, &ctas, &stages, &slots})
      if (result.empty())
        result = idle(*option, "with --program=plan, whose kernel does not "
                               "depend on it");
  if (statsFormat() != StatsFormat::None && result.empty() &&
      emitStage != Stage::PTX && emitStage != Stage::Cubin)
    result = idle(emitStage, "with --stats, expected ptx or cubin, of which "
                             "the figures are");
  if (timeRuns.getNumOccurrences() && result.empty())
    result = idle(statsFormat(), "with --time, which prints times");
  if (options.isCPU())
    for (const cl::opt<int64_t> *option : {&warps, &ctas, &stages, &slots})
      if (result.empty())
        result = idle(*option, "with --arch=cpu, it is of a GPU's schedule");
  return result;
}

/// What the kernels cost on each of the architectures, as text or JSON.
static FailureOr<std::string> describe(ModuleOp module,
                                       ArrayRef<StringRef> archs,
                                       CompilerOptions options,
                                       std::string &error) {
  const bool assemble = emitStage.getNumOccurrences()
                            ? emitStage == Stage::Cubin
                            : !findCudaProgram("ptxas").empty();
  std::vector<KernelStats> all;
  for (StringRef arch : archs) {
    options.arch = arch.str();
    OwningOpRef<ModuleOp> copy = module.clone();
    FailureOr<std::vector<KernelStats>> stats =
        compileStats(*copy, options, assemble, error);
    if (failed(stats))
      return failure();
    llvm::append_range(all, *stats);
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  if (statsFormat() == StatsFormat::Json)
    printKernelStatsJson(all, os);
  else
    for (const KernelStats &stats : all)
      printKernelStats(stats, os);
  return text;
}

/// Times of compiling to some stages, the last of them the one asked for. Every
/// run starts from a copy of the program.
static FailureOr<std::string> timeStages(ModuleOp module,
                                         const CompilerOptions &options,
                                         std::string &error) {
  std::vector<Stage> stages;
  for (Stage stage : {Stage::Tile, Stage::NVVM})
    if (stage < emitStage && !(stage == Stage::NVVM && options.isCPU()))
      stages.push_back(stage);
  stages.push_back(emitStage);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "median of " << timeRuns << " runs, from the program to\n";
  for (Stage stage : stages) {
    std::vector<double> times;
    for (int64_t run = 0; run <= timeRuns; ++run) {
      OwningOpRef<ModuleOp> copy = module.clone();
      auto start = std::chrono::steady_clock::now();
      if (failed(compile(*copy, stage, options, error)))
        return failure();
      std::chrono::duration<double, std::milli> passed =
          std::chrono::steady_clock::now() - start;
      if (run) // the first one warms up
        times.push_back(passed.count());
    }
    llvm::sort(times);
    os << llvm::formatv("  {0,-8}{1,8:f1} ms ({2:f1} to {3:f1})\n",
                        getStageName(stage), times[times.size() / 2],
                        times.front(), times.back());
  }
  return text;
}

/// Whether the output goes into a folder, under a name of its own.
static bool intoFolder() {
  return llvm::sys::path::is_separator(StringRef(outputFile).back()) ||
         llvm::sys::fs::is_directory(outputFile);
}

/// Writes a package under its name into the folder, which is made if needed; an
/// exit status.
static int writeNamed(StringRef bytes) {
  if (std::error_code code = llvm::sys::fs::create_directories(outputFile))
    return fail("cannot make folder '" + outputFile + "': " + code.message());
  ::ffd::Package package;
  ::ffd::Status status =
      ::ffd::Package::parse(bytes.data(), bytes.size(), outputFile, package);
  if (status.ok()) {
    SmallString<128> path(outputFile.getValue());
    llvm::sys::path::append(path, package.fileName());
    status = package.write(std::string(path));
  }
  return status.ok() ? 0 : fail(status.message());
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  statsFormat();
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << "ffd-compile, kernel ABI " << FFD_ABI_VERSION << ", LLVM "
       << LLVM_VERSION_STRING << "\n";
  });
  cl::ParseCommandLineOptions(argc, argv,
                              "compile decode kernels\n\n"
                              "  ffd-compile --head-dim=128 --group=4 "
                              "--arch=sm_90a --emit=ptx -o decode.ptx\n");
  CompilerOptions options;
  SmallVector<StringRef> archs;
  StringRef(arch).split(archs, ',');
  if (archs.size() > 1 && statsFormat() == StatsFormat::None)
    return fail("option --arch is '" + arch +
                "', expected one target; several are for --stats");
  options.arch = archs.front().str();
  options.isa = cpuISA;
  options.element = kvType;
  int64_t unused = 0;
  for (auto [target, flag] :
       {std::pair<int64_t *, cl::opt<int64_t> *>{&options.headDim, &headDim},
        {&options.valueDim, &valueDim},
        {&options.group, &group},
        {&options.scanBits, &scanBits},
        {&options.quantBlock, &quantBlock},
        {&options.selectBlock, &selectBlock},
        {&options.warps, &warps},
        {&options.ctas, &ctas},
        {&options.stages, &stages},
        {&options.slots, &slots},
        {&unused, &timeRuns}}) {
    if (flag->getNumOccurrences() && *flag <= 0)
      return fail("option --" + flag->ArgStr + " is " + Twine(*flag) +
                  ", expected a positive number");
    *target = *flag;
  }
  if (timeRuns > kMostRuns)
    return fail("option --time is " + Twine(timeRuns) + ", expected 1 to " +
                Twine(kMostRuns));
  for (const cl::opt<std::string> *option : {&cpuISA, &execution, &inputFile})
    if (option->getNumOccurrences() && option->empty())
      return fail(
          (option->ArgStr.empty() ? Twine("the input")
                                  : "option --" + option->ArgStr) +
          " is '', expected " +
          (option->ArgStr.empty() ? StringRef("a file") : option->ValueStr));
  if (kvType.getNumOccurrences() && kvType != "f16" && kvType != "bf16")
    return fail("option --kv-type is '" + kvType + "', expected f16 or bf16");
  std::string error;
  for (StringRef name : archs) {
    CompilerOptions one = options;
    one.arch = name.str();
    if (failed(checkTarget(one, emitStage, error)))
      return fail(error);
  }
  if (error = findIdleOption(options); !error.empty())
    return fail(error);
  if (outputFile.empty())
    return fail("option -o is '', expected a file");
  const bool named = intoFolder();
  if (named && (emitStage != Stage::Package || timeRuns.getNumOccurrences()))
    return fail("option -o is the folder '" + outputFile +
                "', expected a file: only packages (--emit=package) have names "
                "of their own");
  ::ffd::Selector rule;
  if (!parseSelector(options, rule))
    return 1;

  DialectRegistry registry;
  registerCompilerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context, llvm::errs());
  context.printOpOnDiagnostic(false);

  OwningOpRef<ModuleOp> module;
  std::optional<ScopedDiagnosticHandler> plain;
  if (inputFile.empty()) {
    plain.emplace(&context, printWithoutPlace);
    module = buildFromFlags(context, options, rule);
  } else {
    std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(inputFile, &error);
    if (!file)
      return fail(error);
    sources.AddNewSourceBuffer(std::move(file), SMLoc());
    module = parseSourceFile<ModuleOp>(sources, &context);
  }
  if (!module)
    return 1;

  FailureOr<std::string> result =
      timeRuns.getNumOccurrences() ? timeStages(*module, options, error)
      : statsFormat() == StatsFormat::None
          ? compile(*module, emitStage, options, error)
          : describe(*module, archs, options, error);
  if (failed(result))
    return error.empty() ? 1 : fail(error);

  if (named)
    return writeNamed(*result);
  std::unique_ptr<llvm::ToolOutputFile> output =
      openOutputFile(outputFile, &error);
  if (!output)
    return fail(error);
  output->os() << *result;
  output->os().flush();
  if (output->os().has_error()) {
    std::string message = output->os().error().message();
    output->os().clear_error();
    return fail("cannot write '" + outputFile + "': " + message);
  }
  output->keep();
  return 0;
}
