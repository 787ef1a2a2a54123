#include "daemon/probe/arguments/argument_decoders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "argument_signatures.h"
#include "daemon/model/data_types.h"

namespace gpuperf {
namespace {

const ArgumentPlan& plan_of(std::string_view symbol) {
  const auto plan = find_argument_decoder(symbol);
  if (plan) return *plan;
  ADD_FAILURE() << symbol << " has no decoder";
  static const ArgumentPlan kNone;
  return kNone;
}

// Name a field is shown under -> what the headers call the parameter. A decoder that reads another
// parameter than its name says fails here, whatever the two have in common.
const std::map<std::string, std::set<std::string>> kParameterNames = {
    {"a_type", {"Atype"}},
    {"address",
     {"devPtr", "ptr", "pHost", "p", "dptr", "dstDevice", "addr", "pitchedDevPtr", "hptr"}},
    {"b_type", {"Btype"}},
    {"batch", {"batchCount"}},
    {"block", {"blockDim", "blockDimX", "blockDimY", "blockDimZ"}},
    {"buffer", {"buff", "sendbuff", "recvbuff"}},
    {"bytes", {"count", "size", "bytesize", "ByteCount"}},
    {"c_type", {"Ctype"}},
    {"color", {"color"}},
    {"comm", {"comm"}},
    {"comm_at", {"comm", "newcomm"}},
    {"compute", {"computeType"}},
    {"context", {"ctx"}},
    {"count", {"count"}},
    {"depth", {"extent"}},
    {"device", {"dev"}},
    {"devices", {"ndev"}},
    {"dst", {"dst", "dstDevice", "dstHost", "dstArray", "symbol"}},
    {"dst_context", {"dstContext"}},
    {"dst_device", {"dstDevice"}},
    {"dst_offset_bytes", {"dstOffset"}},
    {"elements", {"N"}},
    {"event", {"event", "hEvent"}},
    {"flags", {"flags", "Flags"}},
    {"from", {"hmod", "library"}},
    {"function", {"fn"}},
    {"graph", {"graphExec", "hGraphExec"}},
    {"grid", {"gridDim", "gridDimX", "gridDimY", "gridDimZ"}},
    {"groups", {"group_count"}},
    {"handle", {"handle", "hArray", "hMipmappedArray"}},
    {"height", {"height", "Height", "extent"}},
    {"k", {"k"}},
    {"kernel", {"func", "kernel", "f"}},
    {"key", {"key"}},
    {"kind", {"kind"}},
    {"levels", {"numMipmapLevels"}},
    {"library", {"library"}},
    {"m", {"m"}},
    {"n", {"n"}},
    {"name", {"name"}},
    {"offset_bytes", {"offset"}},
    {"op", {"op"}},
    {"peer", {"peer"}},
    {"pool", {"memPool", "pool"}},
    {"range_bytes", {"size"}},
    {"rank", {"rank", "myrank"}},
    {"ranks", {"nranks"}},
    {"receive", {"recvbuff"}},
    {"recvcount", {"recvcount"}},
    {"root", {"root"}},
    {"send", {"sendbuff"}},
    {"sendcount", {"sendcount"}},
    {"shared_bytes", {"sharedMem", "sharedMemBytes"}},
    {"src", {"src", "srcDevice", "srcHost", "srcArray", "symbol"}},
    {"src_context", {"srcContext"}},
    {"src_device", {"srcDevice"}},
    {"src_offset_bytes", {"srcOffset"}},
    {"stream", {"stream", "hStream"}},
    {"transa", {"transa"}},
    {"transb", {"transb"}},
    {"type", {"datatype"}},
    {"unique_id", {"commId"}},
    {"value", {"value", "uc", "us", "ui"}},
    {"width", {"Width"}},
    {"width_bytes", {"width", "WidthInBytes", "extent"}},
};

// Fields of cuBLASLt's structs, which no header tells: CublasLtTest looks for them.
bool is_opaque(const std::string& symbol) { return symbol == "cublasLtMatmul"; }

bool fits(ArgumentFormat format, ParameterKind kind, size_t size_bytes) {
  switch (format) {
    case ArgumentFormat::kSigned:
      return kind == ParameterKind::kSigned;
    case ArgumentFormat::kUnsigned:
      return kind == ParameterKind::kUnsigned;
    case ArgumentFormat::kCode:
      return kind == ParameterKind::kEnum;
    case ArgumentFormat::kHex:  // CUdeviceptr and CUmemGenericAllocationHandle are integers
      return kind == ParameterKind::kPointer ||
             (kind == ParameterKind::kUnsigned && size_bytes == 8);
    case ArgumentFormat::kString:
    case ArgumentFormat::kKernelHandle:
    case ArgumentFormat::kKernelFunction:
    case ArgumentFormat::kHidden:
      return kind == ParameterKind::kPointer;
    case ArgumentFormat::kArray:
    case ArgumentFormat::kBool:
    case ArgumentFormat::kFloat:
      break;
  }
  return false;
}

size_t words_of(const Parameter& parameter) { return (parameter.size_bytes + 7) / 8; }

// A value that is (part of) an argument, against the parameter it is taken from.
void check_argument(const ArgumentField& field, const std::string& name, size_t part,
                    const std::vector<Parameter>& parameters) {
  const int source = field.capture.source;
  const auto parameter = std::ranges::find_if(parameters, [&](const Parameter& p) {
    return p.source >= 0 && source >= p.source && source < p.source + static_cast<int>(words_of(p));
  });
  ASSERT_NE(parameter, parameters.end()) << "no parameter is passed there";
  const bool is_nothing = field.format == ArgumentFormat::kHidden && field.capture.shift_bits == 63;
  if (is_nothing) {
    EXPECT_EQ(parameter->kind, ParameterKind::kPointer) << "only a pointer's top bit is always 0";
    return;
  }
  if (!name.empty()) {
    const auto names = kParameterNames.find(name);
    ASSERT_NE(names, kParameterNames.end()) << "name this field in kParameterNames";
    EXPECT_TRUE(names->second.contains(parameter->name)) << "it reads " << parameter->name;
  }
  const size_t offset_bytes =
      8 * static_cast<size_t>(source - parameter->source) + field.capture.shift_bits / 8u;
  if (parameter->kind == ParameterKind::kStruct) {
    EXPECT_LE(offset_bytes + field.capture.size_bytes, parameter->size_bytes);
    const bool is_dim3 = name == "grid" || name == "block";
    if (is_dim3) {
      EXPECT_EQ(offset_bytes, 4 * part);
    }
    // A cudaExtent is width, height, depth.
    const std::map<std::string, size_t> extent = {{"width_bytes", 0}, {"height", 8}, {"depth", 16}};
    if (extent.contains(name)) {
      EXPECT_EQ(offset_bytes, extent.at(name));
    }
    return;
  }
  EXPECT_EQ(offset_bytes, 0u);
  EXPECT_EQ(field.capture.size_bytes, parameter->size_bytes);
  EXPECT_TRUE(fits(field.format, parameter->kind, parameter->size_bytes));
  if (parameter->name.ends_with("DimX")) {
    EXPECT_EQ(part, 0u);
  }
  if (parameter->name.ends_with("DimY")) {
    EXPECT_EQ(part, 1u);
  }
  if (parameter->name.ends_with("DimZ")) {
    EXPECT_EQ(part, 2u);
  }
}

// A value read through a pointer, against the struct the pointer leads to.
void check_memory(const ArgumentField& field, const std::string& symbol, const std::string& name,
                  size_t part, const std::vector<Parameter>& parameters) {
  const auto pointer = std::ranges::find(parameters, field.capture.source, &Parameter::source);
  ASSERT_NE(pointer, parameters.end());
  EXPECT_EQ(pointer->kind, ParameterKind::kPointer);
  ASSERT_EQ(field.capture.loads, 1);
  const std::string wanted = part == 0 ? name : name + " " + std::to_string(part + 1);
  for (const MemoryField& memory : memory_fields()) {
    if (memory.symbol != symbol || memory.name != wanted) continue;
    EXPECT_EQ(field.capture.offset_bytes[0], static_cast<int32_t>(memory.offset_bytes));
    EXPECT_EQ(field.capture.size_bytes, memory.size_bytes);
    return;
  }
  ADD_FAILURE() << "name this field in memory_fields()";
}

TEST(ArgumentDecodersTest, ReadTheParametersTheHeadersDeclare) {
  const auto signatures = read_signatures();
  if (signatures.empty()) GTEST_SKIP() << "skipped: " << why_no_headers();
  size_t checked = 0;

  for (const std::string_view symbol : argument_decoder_symbols()) {
    const std::string key(symbol);
    SCOPED_TRACE(key);
    ASSERT_TRUE(signatures.contains(key)) << "name it in argument_signatures.cpp";
    std::string name;
    size_t part = 0;
    for (const ArgumentField& field : plan_of(symbol).fields) {
      const bool is_shown = field.format != ArgumentFormat::kHidden;
      part = is_shown && field.name.empty() ? part + 1 : 0;
      if (part == 0) name = field.name;
      SCOPED_TRACE("field " + name);
      ++checked;
      if (field.capture.loads == 0) {
        check_argument(field, name, part, signatures.at(key));
      } else if (!is_opaque(key)) {
        check_memory(field, key, name, part, signatures.at(key));
      }
    }
  }

  EXPECT_GT(checked, 700u);
}

TEST(ArgumentDecodersTest, NameEveryEnumeratorOfTheHeaders) {
  const std::vector<NamedValue> codes = named_codes();
  if (codes.empty()) GTEST_SKIP() << "skipped: " << why_no_headers();

  for (const NamedValue& code : codes) {
    const ArgumentPlan& plan = plan_of(code.symbol);
    const auto field = std::ranges::find(plan.fields, code.field, &ArgumentField::name);
    ASSERT_NE(field, plan.fields.end()) << code.symbol << " " << code.field;
    const auto row = std::ranges::find(field->codes, code.code, &CodeName::code);
    ASSERT_NE(row, field->codes.end()) << code.field << " " << code.code;
    EXPECT_EQ(row->name, code.name) << code.field << " " << code.code;
  }
}

TEST(ArgumentDecodersTest, KeepToTheBoundsOfTheContract) {
  for (const std::string_view symbol : argument_decoder_symbols()) {
    SCOPED_TRACE(std::string(symbol));
    const ArgumentPlan& plan = plan_of(symbol);
    EXPECT_LE(plan.fields.size(), size_t{GPUPERF_VALUES});
    std::vector<uint8_t> numbers = {plan.rules.byte_type,   plan.rules.byte_kind,
                                    plan.rules.name_handle, plan.rules.name_text,
                                    plan.rules.shape_swap,  plan.rules.name_source};
    numbers.insert(numbers.end(), std::begin(plan.rules.byte_factors),
                   std::end(plan.rules.byte_factors));
    for (const uint8_t number : numbers) EXPECT_LE(number, plan.fields.size());
    EXPECT_LT(plan.rules.byte_slot, GPUPERF_BYTE_SLOTS);
    EXPECT_GE(plan.rules.element_bytes[0], 1);
    uint8_t blobs = 0;
    for (const ArgumentField& field : plan.fields) {
      EXPECT_LE(field.capture.loads, GPUPERF_CHAIN);
      if (field.capture.blob != 0) {
        EXPECT_EQ(field.capture.blob, ++blobs);
      }
    }
    EXPECT_LE(blobs, GPUPERF_BLOBS);
  }
}

// Values 1-3 (or 1-4) are the shape, and 5-8 types or nothing: what the kernel keys shapes by.
TEST(ArgumentDecodersTest, PutTheShapeOfAGemmFirst) {
  size_t gemms = 0;
  for (const std::string_view symbol : argument_decoder_symbols()) {
    const ArgumentPlan& plan = plan_of(symbol);
    if (plan.rules.shape_dimensions == 0) continue;
    SCOPED_TRACE(std::string(symbol));
    ++gemms;
    ASSERT_GE(plan.fields.size(), 8u);
    EXPECT_EQ(plan.fields[0].name, "m");
    EXPECT_EQ(plan.fields[1].name, "n");
    EXPECT_EQ(plan.fields[2].name, "k");
    EXPECT_EQ(plan.fields[3].name == "batch", plan.rules.shape_dimensions == 4);
    const char* const types[] = {"a_type", "b_type", "c_type", "compute"};
    for (size_t i = 0; i < 4; ++i) {
      const ArgumentField& field = plan.fields[4 + i];
      const bool is_nothing = field.format == ArgumentFormat::kHidden;
      EXPECT_TRUE(is_nothing || field.name == types[i]) << field.name;
      if (plan.shape_types) {
        EXPECT_TRUE(is_nothing);
      }
    }
  }
  EXPECT_EQ(gemms, 51u);
}

struct ByteRule {
  std::string symbol;
  std::vector<std::string> factors;
  uint8_t slot;
  std::string kind;  // field that tells the direction instead
  uint8_t element_bytes;
};

TEST(ArgumentDecodersTest, CountTheBytesOfEveryFamily) {
  const std::vector<ByteRule> rules = {
      {"cudaMemcpy", {"bytes"}, GPUPERF_BYTES_PLAIN, "kind", 1},
      {"cudaMemcpyToSymbol", {"bytes"}, GPUPERF_BYTES_PLAIN, "kind", 1},
      {"cudaMemcpy2DAsync", {"width_bytes", "height"}, GPUPERF_BYTES_PLAIN, "kind", 1},
      {"cudaMemcpy3D", {"width_bytes", "height", "depth"}, GPUPERF_BYTES_PLAIN, "kind", 1},
      {"cudaMemcpyPeerAsync", {"bytes"}, GPUPERF_BYTES_DEVICE_TO_DEVICE, "", 1},
      {"cuMemcpyHtoDAsync_v2", {"bytes"}, GPUPERF_BYTES_HOST_TO_DEVICE, "", 1},
      {"cuMemcpyDtoH_v2", {"bytes"}, GPUPERF_BYTES_DEVICE_TO_HOST, "", 1},
      {"cuMemcpyDtoD_v2", {"bytes"}, GPUPERF_BYTES_DEVICE_TO_DEVICE, "", 1},
      {"cuMemcpyAtoH_v2", {"bytes"}, GPUPERF_BYTES_DEVICE_TO_HOST, "", 1},
      {"cuMemcpyHtoA_v2", {"bytes"}, GPUPERF_BYTES_HOST_TO_DEVICE, "", 1},
      {"cuMemcpyAsync", {"bytes"}, GPUPERF_BYTES_DEFAULT, "", 1},
      {"cuMemcpy3D_v2", {"width_bytes", "height", "depth"}, GPUPERF_BYTES_DEFAULT, "", 1},
      {"cudaMemset", {"bytes"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cudaMemset3D", {"width_bytes", "height", "depth"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cuMemsetD8_v2", {"elements"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cuMemsetD16Async", {"elements"}, GPUPERF_BYTES_PLAIN, "", 2},
      {"cuMemsetD32Async", {"elements"}, GPUPERF_BYTES_PLAIN, "", 4},
      {"cuMemsetD2D32_v2", {"width", "height"}, GPUPERF_BYTES_PLAIN, "", 4},
      {"cudaMalloc", {"bytes"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cudaMalloc3D", {"width_bytes", "height", "depth"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cuMemCreate", {"bytes"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cuMemMap", {}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cudaFree", {}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cudaLaunchKernel", {}, GPUPERF_BYTES_PLAIN, "", 1},
      {"cublasSgemm_v2", {}, GPUPERF_BYTES_PLAIN, "", 1},
      {"ncclAllReduce", {"count"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"ncclReduceScatter", {"recvcount"}, GPUPERF_BYTES_PLAIN, "", 1},
      {"ncclMemAlloc", {"bytes"}, GPUPERF_BYTES_PLAIN, "", 1},
  };
  for (const ByteRule& rule : rules) {
    SCOPED_TRACE(rule.symbol);
    const ArgumentPlan& plan = plan_of(rule.symbol);

    std::vector<std::string> factors;
    for (const uint8_t factor : plan.rules.byte_factors) {
      if (factor != 0) factors.push_back(plan.fields[factor - size_t{1}].name);
    }
    const std::string kind =
        plan.rules.byte_kind == 0 ? "" : plan.fields[plan.rules.byte_kind - size_t{1}].name;

    EXPECT_EQ(factors, rule.factors);
    EXPECT_EQ(plan.rules.byte_slot, rule.slot);
    EXPECT_EQ(kind, rule.kind);
    EXPECT_EQ(plan.rules.element_bytes[0], rule.element_bytes);
  }
}

TEST(ArgumentDecodersTest, KnowTheSizeOfEveryNcclType) {
  const ArgumentPlan& plan = plan_of("ncclAllReduce");

  EXPECT_EQ(plan.fields[plan.rules.byte_type - size_t{1}].name, "type");
  const std::vector<uint8_t> sizes(std::begin(plan.rules.element_bytes),
                                   std::begin(plan.rules.element_bytes) + 13);
  EXPECT_EQ(sizes, (std::vector<uint8_t>{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 0}));
}

TEST(ArgumentDecodersTest, SayWhereCallsNameTheirHandles) {
  for (const char* symbol : {"cuModuleGetFunction", "cuLibraryGetKernel", "cudaLibraryGetKernel"}) {
    SCOPED_TRACE(symbol);
    const ArgumentPlan& plan = plan_of(symbol);
    ASSERT_NE(plan.rules.name_handle, 0);
    ASSERT_NE(plan.rules.name_text, 0);
    EXPECT_EQ(plan.fields[plan.rules.name_handle - size_t{1}].capture.source, 0);
    EXPECT_EQ(plan.fields[plan.rules.name_text - size_t{1}].capture.source, 2);
  }
  EXPECT_EQ(plan_of("cuLaunchKernel").rules.name_handle, 0);
  const ArgumentPlan& copy = plan_of("cuKernelGetFunction");
  EXPECT_EQ(copy.fields[copy.rules.name_handle - size_t{1}].capture.source, 0);
  EXPECT_EQ(copy.fields[copy.rules.name_source - size_t{1}].capture.source, 1);
  EXPECT_EQ(copy.rules.name_text, 0);
}

TEST(ArgumentDecodersTest, TakeVariantsOfASymbolForTheSymbol) {
  EXPECT_EQ(find_argument_decoder("cudaMemcpyAsync_ptsz"),
            find_argument_decoder("cudaMemcpyAsync"));
  EXPECT_EQ(find_argument_decoder("cuMemcpyHtoD_v2_ptds"),
            find_argument_decoder("cuMemcpyHtoD_v2"));
  EXPECT_EQ(find_argument_decoder("pncclSend"), find_argument_decoder("ncclSend"));
}

TEST(ArgumentDecodersTest, LeaveWhatTheyDoNotKnowAlone) {
  // The first interface of each: 32-bit addresses, and floats by value.
  for (const char* symbol :
       {"", "cuMemAlloc", "cuMemcpyHtoD", "cublasSgemm", "cudaMemcpyX", "_ptsz", "vectorAdd"}) {
    EXPECT_EQ(find_argument_decoder(symbol), nullptr) << symbol;
  }
}

TEST(ArgumentDecodersTest, NameAGemmsTypesWhereItsSymbolSaysThem) {
  const ArgumentPlan& half = plan_of("cublasHgemm");
  const ArgumentPlan& typed = plan_of("cublasGemmEx");

  EXPECT_EQ(get_shape_types(&half, {}), (std::array<uint16_t, 4>{2, 2, 2, 64}));
  EXPECT_EQ(get_shape_types(&typed, {14, 14, 14, 68}), (std::array<uint16_t, 4>{14, 14, 14, 68}));
  EXPECT_EQ(get_shape_types(nullptr, {14, 14, 14, 68}), (std::array<uint16_t, 4>{14, 14, 14, 68}));
}

}  // namespace
}  // namespace gpuperf
