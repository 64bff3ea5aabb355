//===- Torch.cpp - Dense rivals from PyTorch ------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever goes wrong in the child process is a note, not an error: the
// product's own numbers do not depend on it.
//
//===----------------------------------------------------------------------===//

#include "Torch.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llvm;

namespace ffd::bench {

static constexpr char kScript[] = "torch_sdpa.py";

std::pair<std::string, double> TorchResult::best(int64_t tokens,
                                                 int64_t batch) const {
  std::pair<std::string, double> found{"", 0};
  auto it = seconds.find({tokens, batch});
  if (it == seconds.end())
    return found;
  for (const auto &[name, value] : it->second)
    if (found.first.empty() || value < found.second)
      found = {name, value};
  return found;
}

std::string findScript(const Options &options, const char *name) {
  static int anchor;
  std::string program =
      sys::fs::getMainExecutable(options.program.c_str(), &anchor);
  SmallString<256> beside(sys::path::parent_path(program));
  sys::path::append(beside, name);
  if (sys::fs::exists(beside))
    return beside.str().str();
  return std::string("tools/ffd-bench/") + name;
}

static void writeRequest(const Options &options, raw_ostream &os) {
  json::OStream json(os);
  json.object([&] {
    json.attribute("kv_heads", options.kvHeads);
    json.attribute("group", options.spec.group);
    json.attribute("head_dim", options.spec.head_dim);
    json.attribute("value_dim", options.spec.value_dim);
    json.attribute("dtype", elementName(options.spec.element));
    json.attribute("reps", options.reps);
    json.attributeArray("points", [&] {
      for (int64_t tokens : options.tokens)
        for (int64_t batch : options.batches)
          json.object([&] {
            json.attribute("tokens", tokens);
            json.attribute("batch", batch);
            json.attribute("visible", tokens + options.tail);
          });
    });
  });
}

static void readReply(StringRef text, TorchResult &result) {
  Expected<json::Value> parsed = json::parse(text);
  if (!parsed) {
    result.note = "the reply of PyTorch's process is no JSON: " +
                  toString(parsed.takeError());
    return;
  }
  const json::Object *top = parsed->getAsObject();
  const json::Array *points = top ? top->getArray("points") : nullptr;
  if (!points) {
    result.note = "the reply of PyTorch's process has no points";
    return;
  }
  result.version = top->getString("version").value_or("").str();
  result.note = top->getString("note").value_or("").str();
  for (const json::Value &value : *points) {
    const json::Object *point = value.getAsObject();
    const json::Object *times = point ? point->getObject("seconds") : nullptr;
    if (!times)
      continue;
    auto &to = result.seconds[{point->getInteger("tokens").value_or(0),
                               point->getInteger("batch").value_or(0)}];
    for (const auto &[name, seconds] : *times)
      if (std::optional<double> number = seconds.getAsNumber())
        to[name.str()] = *number;
  }
}

TorchResult runTorch(const Options &options, double seconds) {
  TorchResult result;
  if (options.ragged) {
    result.note = "PyTorch's attention takes no ragged batch";
    return result;
  }
  ErrorOr<std::string> python = sys::findProgramByName(options.python);
  std::string script = options.torchScript.empty()
                           ? findScript(options, kScript)
                           : options.torchScript;
  if (!python) {
    result.note = "'" + options.python + "' is not found";
    return result;
  }
  if (!sys::fs::exists(script)) {
    result.note = "'" + script + "' is not found";
    return result;
  }
  SmallString<128> request, reply, log;
  int fd = -1;
  if (sys::fs::createTemporaryFile("ffd-bench", "request.json", fd, request) ||
      sys::fs::createTemporaryFile("ffd-bench", "reply.json", reply) ||
      sys::fs::createTemporaryFile("ffd-bench", "log", log)) {
    result.note = "cannot create temporary files";
    return result;
  }
  {
    raw_fd_ostream os(fd, /*shouldClose=*/true);
    writeRequest(options, os);
  }
  std::string message;
  bool failed = false;
  int code = sys::ExecuteAndWait(*python, {*python, script, request, reply},
                                 /*Env=*/std::nullopt,
                                 {std::nullopt, StringRef(log), StringRef(log)},
                                 std::max(1u, unsigned(seconds)),
                                 /*MemoryLimit=*/0, &message, &failed);
  ErrorOr<std::unique_ptr<MemoryBuffer>> text = MemoryBuffer::getFile(reply);
  // Whatever it wrote before it ended counts.
  if (text && !(*text)->getBuffer().empty()) {
    readReply((*text)->getBuffer(), result);
    if (code != 0)
      result.note += " (PyTorch's process ended early)";
  } else {
    ErrorOr<std::unique_ptr<MemoryBuffer>> said = MemoryBuffer::getFile(log);
    StringRef last =
        said ? (*said)->getBuffer().rtrim().rsplit('\n').second : StringRef();
    if (said && last.empty())
      last = (*said)->getBuffer().rtrim();
    result.note =
        "PyTorch was not timed: " + (message.empty() ? last.str() : message);
  }
  for (StringRef file : {request, reply, log})
    sys::fs::remove(file);
  return result;
}

} // namespace ffd::bench
