#include "daemon/state/memory_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

using Operation = MemoryCall::Operation;
using Space = MemoryCall::Space;
using Named = std::map<std::string, uint64_t>;

Function make_function(const std::string& symbol) {
  return {.symbol = symbol, .arguments = find_argument_decoder(symbol)};
}

ReportedCall make_call(const Function& function, const Named& values, uint64_t result = 0) {
  ReportedCall call;
  call.start_mono_ns = 100;
  call.duration_ns = 20;
  call.result = result;
  call.return_value = 0;
  call.values.emplace();
  for (const auto& [name, value] : values) {
    const auto& fields = function.arguments->fields;
    const auto field = std::ranges::find(fields, name, &ArgumentField::name);
    EXPECT_NE(field, fields.end()) << function.symbol << " " << name;
    call.values->values[static_cast<size_t>(field - fields.begin())] = value;
  }
  return call;
}

MemoryCall read(const std::string& symbol, const Named& values, uint64_t result = 0) {
  const Function function = make_function(symbol);
  const auto call = read_memory_call(function, make_call(function, values, result));
  EXPECT_TRUE(call) << symbol;
  EXPECT_EQ(function.arguments->report, CallReport::kMemory) << symbol;
  return call.value_or(MemoryCall());
}

TEST(MemoryCallsTest, ReadsEveryWayToAllocate) {
  struct Case {
    std::string symbol;
    Named values;
    MemoryKind kind;
    Space space;
    uint64_t bytes;
  };
  const Named array = {{"width", 64}, {"height", 8}, {"format", 0x20}, {"channels", 4}};
  Named deep = array;
  deep["depth"] = 2;
  Named mipmapped = deep;
  mipmapped["levels"] = 2;
  Named layered = mipmapped;
  layered["flags"] = 1;
  const Named plain = {{"bytes", 4096}};
  const std::vector<Case> cases = {
      {"cuMemAlloc_v2", plain, MemoryKind::kDevice, Space::kAddress, 4096},
      {"cuMemAllocPitch_v2",
       {{"width_bytes", 100}, {"height", 3}},
       MemoryKind::kDevice,
       Space::kAddress,
       300},
      {"cuMemAllocAsync", plain, MemoryKind::kAsync, Space::kAddress, 4096},
      {"cuMemAllocAsync_ptsz", plain, MemoryKind::kAsync, Space::kAddress, 4096},
      {"cuMemAllocFromPoolAsync", plain, MemoryKind::kAsync, Space::kAddress, 4096},
      {"cuMemAllocFromPoolAsync_ptsz", plain, MemoryKind::kAsync, Space::kAddress, 4096},
      {"cuMemAllocManaged", plain, MemoryKind::kManaged, Space::kAddress, 4096},
      {"cuMemAllocHost_v2", plain, MemoryKind::kPinned, Space::kAddress, 4096},
      {"cuMemHostAlloc", plain, MemoryKind::kPinned, Space::kAddress, 4096},
      {"cuIpcOpenMemHandle_v2", {}, MemoryKind::kImported, Space::kAddress, 0},
      {"cuMemCreate", plain, MemoryKind::kVirtual, Space::kHandle, 4096},
      {"cuMemImportFromShareableHandle", {}, MemoryKind::kImported, Space::kHandle, 0},
      {"cuArrayCreate_v2", array, MemoryKind::kArray, Space::kArray, 64 * 8 * 16},
      {"cuArray3DCreate_v2", deep, MemoryKind::kArray, Space::kArray, 64 * 8 * 2 * 16},
      {"cuMipmappedArrayCreate", mipmapped, MemoryKind::kArray, Space::kArray,
       64 * 8 * 2 * 16 + 32 * 4 * 16},
      {"cuMipmappedArrayCreate", layered, MemoryKind::kArray, Space::kArray,
       (64 * 8 * 2 + 32 * 4 * 2) * 16},
  };
  for (const Case& known : cases) {
    SCOPED_TRACE(known.symbol);
    const MemoryCall call = read(known.symbol, known.values, 0x7000);
    EXPECT_EQ(call.operation, Operation::kAllocate);
    EXPECT_EQ(call.kind, known.kind);
    EXPECT_EQ(call.space, known.space);
    EXPECT_EQ(call.bytes, known.bytes);
    EXPECT_EQ(call.place, 0x7000u);
    EXPECT_EQ(call.start_mono_ns, 100u);
    EXPECT_EQ(call.end_mono_ns, 120u);
    EXPECT_FALSE(call.is_unreadable);
  }
  const MemoryCall pinned = read("cuMemHostRegister_v2", {{"address", 0x9000}, {"bytes", 10}});
  EXPECT_EQ(pinned.kind, MemoryKind::kRegistered);
  EXPECT_EQ(pinned.place, 0x9000u);
  EXPECT_EQ(pinned.bytes, 10u);
}

TEST(MemoryCallsTest, ReadsEveryWayToRelease) {
  for (const char* symbol : {"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz",
                             "cuMemFreeHost", "cuMemHostUnregister", "cuIpcCloseMemHandle"}) {
    SCOPED_TRACE(symbol);
    const MemoryCall call = read(symbol, {{"address", 0x7000}});
    EXPECT_EQ(call.operation, Operation::kRelease);
    EXPECT_EQ(call.space, Space::kAddress);
    EXPECT_EQ(call.place, 0x7000u);
  }
  EXPECT_EQ(read("cuMemRelease", {{"handle", 5}}).space, Space::kHandle);
  for (const char* symbol : {"cuArrayDestroy", "cuMipmappedArrayDestroy"}) {
    EXPECT_EQ(read(symbol, {{"handle", 5}}).space, Space::kArray) << symbol;
  }
}

TEST(MemoryCallsTest, ReadsMappingsAndContexts) {
  const MemoryCall map = read("cuMemMap", {{"address", 0x7000}, {"handle", 5}});
  EXPECT_EQ(map.operation, Operation::kMap);
  EXPECT_EQ(map.handle, 5u);
  const MemoryCall unmap = read("cuMemUnmap", {{"address", 0x7000}, {"range_bytes", 64}});
  EXPECT_EQ(unmap.operation, Operation::kUnmap);
  EXPECT_EQ(unmap.bytes, 64u);
  const MemoryCall retain = read("cuMemRetainAllocationHandle", {{"address", 0x7000}}, 5);
  EXPECT_EQ(retain.operation, Operation::kRetain);
  EXPECT_EQ(retain.handle, 5u);

  const MemoryCall begin = read("cuDevicePrimaryCtxRetain", {{"device", 1}});
  EXPECT_EQ(begin.operation, Operation::kContextBegins);
  EXPECT_TRUE(begin.is_primary);
  EXPECT_EQ(begin.place, 1u);
  EXPECT_FALSE(read("cuDevicePrimaryCtxRelease_v2", {{"device", 1}}).is_ended_whole);
  EXPECT_TRUE(read("cuDevicePrimaryCtxReset_v2", {{"device", 1}}).is_ended_whole);
  EXPECT_EQ(read("cuCtxCreate_v4", {}, 0x5000).place, 0x5000u);
  const MemoryCall end = read("cuCtxDestroy_v2", {{"context", 0x5000}});
  EXPECT_EQ(end.operation, Operation::kContextEnds);
  EXPECT_TRUE(end.is_ended_whole);
  EXPECT_FALSE(end.is_primary);
}

TEST(MemoryCallsTest, SaysWhatCouldNotBeRead) {
  EXPECT_TRUE(read("cuMemAlloc_v2", {{"bytes", 10}}).is_unreadable);  // no result
  const Function function = make_function("cuMemFree_v2");
  ReportedCall call = make_call(function, {{"address", 0x7000}});
  call.values->unread = 1;
  EXPECT_TRUE(read_memory_call(function, call)->is_unreadable);
  call.values.reset();
  EXPECT_TRUE(read_memory_call(function, call)->is_unreadable);
  // A compressed format has no bytes per element.
  EXPECT_TRUE(
      read("cuArrayCreate_v2", {{"width", 4}, {"height", 4}, {"format", 0x91}, {"channels", 1}}, 5)
          .is_unreadable);
}

TEST(MemoryCallsTest, LooksForNoResultOfACallThatFailed) {
  const Function function = make_function("cuMemAlloc_v2");
  ReportedCall call = make_call(function, {{"bytes", 4096}});
  call.return_value = 2;

  const auto failed = read_memory_call(function, call);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, kCudaOutOfMemory);
  EXPECT_EQ(failed->bytes, 4096u);
  EXPECT_FALSE(failed->is_unreadable);
}

TEST(MemoryCallsTest, LeavesOtherCallsAlone) {
  const Function function = make_function("cuMemcpyAsync");
  EXPECT_FALSE(read_memory_call(function, {}));
}

}  // namespace
}  // namespace gpuperf
