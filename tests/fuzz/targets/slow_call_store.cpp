// A damaged file of slow calls (daemon/store), and any bytes as the record of a call in it: it
// opens, answers and writes, and what is answered can be shown.
//
//   input: flags, 1 byte (bit 0: the file is too large to be checked as a whole when it is opened;
//          bit 1: no damage) | damage: up to 8 times (page, 1 byte; place in it, 2; byte, 1) |
//          the record

#include <google/protobuf/stubs/logging.h>

#include <filesystem>

#include "daemon/rpc/slow_call_list.h"
#include "daemon/store/slow_call_store.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/files.h"

namespace gpuperf::fuzz {
namespace {

constexpr size_t kPageBytes = 8'192;
constexpr size_t kDamages = 8;
constexpr int64_t kNowUnixNs = 1'700'000'000'000'000'000;

class DamagedStore {
 public:
  DamagedStore() {
    auto database = open_new();
    for (uint64_t id = 1; id <= 40; ++id) {
      StoredCall call = make_call(id, std::string(100, 'x'));
      call.stacks = {{.id = 1 + id % 9, .body = std::string(100, 's')}};
      (void)database->write({{call}});
    }
    database.reset();
    file_ = read_file(path_);
  }

  std::string find_fault(bool is_checked, const std::string& file, const std::string& record) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::filesystem::remove(entry.path());
    }
    std::ofstream(path_, std::ios::binary) << file;
    options_.check_max_bytes = is_checked ? 16 << 20 : 0;
    const auto store = SlowCallStore::start({.database = options_}, clock_);
    if (!store->problem().empty()) return store->problem();
    StoredCall call = make_call(1'000, record);
    call.stacks = {{.id = 0x7f, .body = record}};
    (void)store->post_write(
        {.pid = 1}, [call] { return call; }, [](bool) {});
    const SlowCallSources sources{.snapshot = std::make_shared<const Snapshot>(),
                                  .store = store.get()};
    for (const char* sort : {"duration_ns", "start_unix_ns"}) {
      v1::ListSlowCallsRequest request;
      request.set_sort(sort);
      v1::ListSlowCallsResponse response;
      const Status listed = list_slow_calls(sources, request, response);
      if (!listed.ok()) return listed.ToString();
    }
    v1::SlowCall found;
    (void)get_slow_call(sources, call.id, found);
    return "";
  }

  const std::string& file() const { return file_; }

 private:
  static StoredCall make_call(uint64_t id, const std::string& body) {
    return {.id = id,
            .start_unix_ns = static_cast<uint64_t>(kNowUnixNs) - id * 1'000'000,
            .duration_ns = 1'000 + id,
            .category = "cuda",
            .function = "f" + std::to_string(id % 7),
            .pid = 71,
            .body = body};
  }
  std::unique_ptr<SlowCallDatabase> open_new() {
    options_.path = path_;
    return *SlowCallDatabase::open(options_);
  }

  const TempFolder folder_{"/dev/shm"};
  const std::string path_ = folder_ / "slow_calls.db";
  const FakeClock clock_{0, kNowUnixNs};
  SlowCallDatabase::Options options_;
  std::string file_;
};

}  // namespace

std::string find_fault(std::string_view bytes) {
  // libprotobuf prints a line for each string that is not UTF-8.
  static const auto logged = google::protobuf::SetLogHandler(nullptr);
  (void)logged;
  static DamagedStore store;
  if (bytes.empty()) return "";
  const auto flags = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  std::string file = store.file();
  for (size_t i = 0; i < kDamages && bytes.size() >= 4 && (flags & 2) == 0; ++i) {
    const auto at = [bytes](size_t byte) { return static_cast<uint8_t>(bytes[byte]); };
    const size_t place = at(0) * kPageBytes + (at(1) * 256u + at(2)) % kPageBytes;
    if (place < file.size()) file[place] = bytes[3];
    bytes.remove_prefix(4);
  }
  return store.find_fault((flags & 1) == 0, file, std::string(bytes));
}

std::vector<std::string> make_seeds() {
  v1::SlowCall call;
  call.set_function("cudaMalloc");
  call.set_user_stack_id("7f");
  v1::Wait& wait = *call.mutable_time_split()->add_waits();
  wait.set_kernel_stack_id("7f");
  wait.mutable_waker()->set_stack_id("7f");
  return {"\2" + call.SerializeAsString(), std::string("\0\0\0\x18\0", 5),
          std::string("\1\2\0\0\xff", 5)};
}

}  // namespace gpuperf::fuzz
