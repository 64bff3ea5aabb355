//===- Arrays.cpp - Arrays of Python callers ------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// numpy has no 16-bit brain float and ml_dtypes' one does not pass through
// DLPack, so such arrays are taken by their bits.
//
//===----------------------------------------------------------------------===//

#include "Arrays.h"

#include "Names.h"

#include <algorithm>
#include <new>

namespace ffd::python {

void check(const Status &status) {
  if (status.ok())
    return;
  const std::string message = withPythonNames(status.message());
  switch (status.code()) {
  case StatusCode::InvalidArgument:
    throw nb::value_error(message.c_str());
  case StatusCode::OutOfMemory:
    PyErr_SetString(PyExc_MemoryError, message.c_str());
    throw nb::python_error();
  default:
    throw Error(message);
  }
}

void raiseValue(const std::string &message) {
  throw nb::value_error(message.c_str());
}

static std::string typeName(nb::handle object) {
  return nb::type_name(object.type()).c_str();
}

[[noreturn]] static void raiseType(const std::string &message) {
  throw nb::type_error(message.c_str());
}

/// "torch.bfloat16", "float32", or "" where there is no such attribute.
static std::string dtypeName(nb::handle object) {
  if (!nb::hasattr(object, "dtype"))
    return "";
  const nb::object dtype = object.attr("dtype");
  return nb::str(nb::handle(dtype)).c_str();
}

/// Page-locked memory of CUDA and ROCm is host memory too.
static bool isHost(int32_t type) {
  return type == 1 || type == 3 || type == 11;
}

/// "CUDA device 0", of a DLDeviceType of DLPack.
static std::string deviceName(int32_t type, int32_t id) {
  static const std::pair<int32_t, const char *> known[] = {
      {2, "CUDA"},  {4, "OpenCL"},        {7, "Vulkan"},  {8, "Metal"},
      {10, "ROCm"}, {13, "CUDA managed"}, {14, "oneAPI"}, {15, "WebGPU"}};
  for (const auto &entry : known)
    if (entry.first == type)
      return std::string(entry.second) + " device " + std::to_string(id);
  return "device " + std::to_string(id) + " of DLPack type " +
         std::to_string(type);
}

static bool isNumpy(nb::handle object) {
  return nb::isinstance(object, nb::module_::import_("numpy").attr("ndarray"));
}

ElementArray::ElementArray(const char *name, nb::handle object, size_t least,
                           size_t most, const char *axisNames)
    : argument(name), axes(0) {
  const std::string expected =
      std::string(", expected a float16 or bfloat16 array ") + axisNames;
  nb::object source = nb::borrow(object);
  const std::string dtype = dtypeName(object);
  const bool brain = isNumpy(object) && dtype == "bfloat16";
  if (brain)
    source = object.attr("view")("uint16");
  bool known = false;
  try {
    known = nb::try_cast(source, owner);
  } catch (const nb::python_error &) {
    // Not an array, or one that its framework refuses to hand out.
  }
  PyErr_Clear();
  const auto raiseDevice = [&](const std::string &device) {
    raiseType(std::string("argument '") + name + "' is on " + device +
              ", expected an array in host memory");
  };
  if (!known && nb::hasattr(object, "__cuda_array_interface__"))
    raiseDevice("a CUDA device");
  if (!known)
    raiseType(std::string("argument '") + name + "' is " + typeName(object) +
              (dtype.empty() ? "" : " of dtype " + dtype) + expected +
              " that offers DLPack or the buffer protocol");
  if (!isHost(owner.device_type()))
    raiseDevice(deviceName(owner.device_type(), owner.device_id()));
  const nb::dlpack::dtype got = owner.dtype();
  const auto is = [&](nb::dlpack::dtype_code code) {
    return got.code == uint8_t(code) && got.bits == 16 && got.lanes == 1;
  };
  if (brain || is(nb::dlpack::dtype_code::Bfloat))
    type = FFD_BF16;
  else if (is(nb::dlpack::dtype_code::Float))
    type = FFD_F16;
  else
    raiseType(std::string("argument '") + name + "' has dtype " + dtype +
              expected);
  const size_t rank = axes = owner.ndim();
  if (rank < least || rank > most)
    raiseValue(std::string("argument '") + name + "' has " +
               std::to_string(owner.ndim()) + " axes" + expected);
  for (size_t i = 0; i < rank; ++i) {
    sizes[i] = int64_t(owner.shape(i));
    strides[i] = owner.stride(i);
  }
  elements = static_cast<const uint16_t *>(owner.data());
  if (sizes[rank - 1] > 1 && strides[rank - 1] != 1)
    makeContiguous();
  strides[rank - 1] = 1;
}

void ElementArray::makeContiguous() {
  int64_t count = 1, dense[4] = {};
  for (size_t i = axes; i-- > 0;) {
    dense[i] = count;
    if (!checkedProduct({count, sizes[i]}, count))
      raiseValue(std::string("argument '") + argument + "' has shape " +
                 shapeText() +
                 ", expected sizes whose product fits in 64 bits");
  }
  int64_t bytes;
  if (!checkedProduct({count, 2}, bytes))
    throw std::bad_alloc();
  check(copy.allocate(argument, bytes, 0));
  std::array<int64_t, 4> index = {};
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t a = 0; a < axes; ++a)
      offset += index[a] * strides[a];
    copy.as<uint16_t>()[i] = elements[offset];
    for (size_t a = axes; a-- > 0;) {
      if (++index[a] < sizes[a])
        break;
      index[a] = 0;
    }
  }
  elements = copy.as<uint16_t>();
  std::copy_n(dense, axes, strides.begin());
}

std::string ElementArray::shapeText() const {
  std::string text = "[";
  for (size_t i = 0; i < axes; ++i)
    text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

void ElementArray::expectHeadDim() const {
  const int64_t d = sizes[axes - 1];
  if (d != 64 && d != 80 && d != 96 && d != 128 && d != 192 && d != 256)
    raiseValue(std::string("argument '") + argument + "' has shape " +
               shapeText() +
               ", expected a head dim of 64, 80, 96, 128, 192 or 256");
}

void ElementArray::expectElement(const ElementArray &other) const {
  const auto text = [](int32_t element) {
    return std::string(element == FFD_F16 ? "float16" : "bfloat16");
  };
  if (type != other.type)
    raiseType(std::string("argument '") + argument + "' has dtype " +
              text(type) + ", expected " + text(other.type) +
              ", the dtype of '" + other.argument + "'");
}

void ElementArray::expectSize(size_t axis, int64_t size,
                              const std::string &why) const {
  if (sizes[axis] != size)
    raiseValue(std::string("argument '") + argument + "' has shape " +
               shapeText() + ", expected " + std::to_string(size) +
               " in axis " + std::to_string(axis) + ", " + why);
}

} // namespace ffd::python
