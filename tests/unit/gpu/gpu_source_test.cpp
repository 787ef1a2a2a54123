#include "daemon/gpu/gpu_source.h"

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>

#include "daemon/gpu/nvml_api.h"
#include "tests/unit/files.h"
#include "tests/unit/gpu/fake_gpus.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using testing::FakeGpus;

// The reports of a source, for a test to wait for the one it wants.
class Reports {
 public:
  GpuSource::Listener listener() {
    return [this](std::shared_ptr<const GpuHealthReport> report) {
      const std::lock_guard lock(mutex_);
      newest_ = std::move(report);
      changed_.notify_all();
    };
  }
  template <typename Condition>
  GpuHealthReport wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20),
                                  [&] { return newest_ && condition(*newest_); }));
    return newest_ ? *newest_ : GpuHealthReport();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const GpuHealthReport> newest_;
};

// A folder like /sys/bus/pci/devices.
class PciFolder {
 public:
  void add(const std::string& name, const std::string& vendor, const std::string& kind) {
    std::filesystem::create_directories(folder_.path() / name);
    std::ofstream(folder_.path() / name / "vendor") << vendor << "\n";
    std::ofstream(folder_.path() / name / "class") << kind << "\n";
  }
  std::string path() const { return folder_.path().string(); }

 private:
  const TempFolder folder_;
};

class GpuSourceTest : public ::testing::Test {
 protected:
  GpuSource::Options make_options(std::shared_ptr<const NvmlApi> api) {
    return {.interval = milliseconds(10),
            .load = [api] { return Result<std::shared_ptr<const NvmlApi>>(api); },
            .pci_devices = pci_.path(),
            .first_retry = milliseconds(10),
            .max_retry = milliseconds(50)};
  }
  GpuSource::Options make_options_without_library() {
    GpuSource::Options options = make_options(nullptr);
    options.load = [] {
      return Result<std::shared_ptr<const NvmlApi>>(absl::NotFoundError("no such library"));
    };
    return options;
  }

  PciFolder pci_;
  FakeGpus fake_;
  Reports reports_;
};

TEST_F(GpuSourceTest, ReadsAgainAndAgain) {
  GpuSource source(make_options(fake_.make_api()), reports_.listener());
  const int64_t first =
      reports_.wait_for([](const auto& report) { return report.read_mono_ns != 0; }).read_mono_ns;

  const GpuHealthReport report =
      reports_.wait_for([&](const auto& later) { return later.read_mono_ns > first; });

  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.gpus.size(), 1u);
  EXPECT_TRUE(source.stop());
  EXPECT_EQ(fake_.inits, 1);
  EXPECT_EQ(fake_.shutdowns, 1);
}

TEST_F(GpuSourceTest, FindsNothingWrongWithAHostWithoutGpus) {
  pci_.add("0000:00:02.0", "0x8086", "0x030000");
  pci_.add("0000:00:03.0", "0x10de", "0x068000");  // a bridge, no GPU
  GpuSource source(make_options_without_library(), reports_.listener());

  const GpuHealthReport report = reports_.wait_for([](const auto&) { return true; });

  EXPECT_EQ(report.reason, "there is no NVIDIA GPU on this host");
  EXPECT_EQ(report.problem, "");
  EXPECT_THAT(list_gpu_problems(report, 0), ::testing::IsEmpty());
}

TEST_F(GpuSourceTest, SaysThatTheDriverOfAGpuIsMissing) {
  pci_.add("0000:19:00.0", "0x10de", "0x030200");
  GpuSource source(make_options_without_library(), reports_.listener());

  const GpuHealthReport report = reports_.wait_for([](const auto&) { return true; });

  EXPECT_EQ(report.problem, "GPUs cannot be read: no such library");
  ASSERT_EQ(list_gpu_problems(report, 0).size(), 1u);
  EXPECT_THAT(list_gpu_problems(report, 0)[0].hint, HasSubstr("modprobe nvidia"));
}

TEST_F(GpuSourceTest, ComesBackWithADriverThatWasLoadedAnew) {
  GpuSource source(make_options(fake_.make_api()), reports_.listener());
  reports_.wait_for([](const auto& report) { return report.read_mono_ns != 0; });
  {
    const std::lock_guard lock(fake_.mutex);
    fake_.fields_answer = kNvmlUninitialized;
    fake_.init_answer = kNvmlDriverNotLoaded;
  }
  const GpuHealthReport gone =
      reports_.wait_for([](const auto& report) { return !report.problem.empty(); });
  {
    const std::lock_guard lock(fake_.mutex);
    fake_.fields_answer = kNvmlSuccess;
    fake_.init_answer = kNvmlSuccess;
  }

  const GpuHealthReport back =
      reports_.wait_for([](const auto& report) { return report.read_mono_ns != 0; });

  EXPECT_TRUE(gone.gpus.at(0).is_lost);
  EXPECT_EQ(list_gpu_problems(gone, 0).size(), 1u);  // the driver, and not each GPU
  EXPECT_FALSE(back.gpus.at(0).is_lost);
  EXPECT_EQ(back.problem, "");
}

TEST_F(GpuSourceTest, FindsALostGpuAgain) {
  GpuSource source(make_options(fake_.make_api()), reports_.listener());
  reports_.wait_for([](const auto& report) { return report.read_mono_ns != 0; });
  {
    const std::lock_guard lock(fake_.mutex);
    fake_.gpus[0].is_lost = true;
  }
  const GpuHealthReport lost = reports_.wait_for(
      [](const auto& report) { return !report.gpus.empty() && report.gpus[0].is_lost; });
  {
    const std::lock_guard lock(fake_.mutex);
    fake_.gpus[0].is_lost = false;
  }

  reports_.wait_for(
      [](const auto& report) { return !report.gpus.empty() && !report.gpus[0].is_lost; });

  ASSERT_EQ(list_gpu_problems(lost, 0).size(), 1u);
  EXPECT_EQ(list_gpu_problems(lost, 0)[0].subject, "GPU 0");
}

TEST_F(GpuSourceTest, TellsOfErrorsAsTheyCome) {
  auto api = fake_.make_api();
  std::atomic<int> told = 0;
  api->event_set_create = [](NvmlEventSet*) { return kNvmlSuccess; };
  api->event_set_free = [](NvmlEventSet) { return kNvmlSuccess; };
  api->register_events = [](NvmlDevice, unsigned long long, NvmlEventSet) { return kNvmlSuccess; };
  api->event_wait = [&told](NvmlEventSet, NvmlEventData* data, unsigned) {
    if (told++ > 0) {
      std::this_thread::sleep_for(milliseconds(5));
      return kNvmlTimeout;
    }
    *data = {.device = FakeGpus::make_device(0), .event_type = kNvmlEventXid, .event_data = 79};
    return kNvmlSuccess;
  };
  GpuSource source(make_options(api), reports_.listener());

  const GpuHealthReport report = reports_.wait_for(
      [](const auto& found) { return !found.gpus.empty() && !found.gpus[0].xids.empty(); });

  EXPECT_EQ(report.gpus[0].xids.begin()->first, 79u);
  EXPECT_EQ(report.events_problem, "");
  EXPECT_TRUE(source.stop());
}

TEST_F(GpuSourceTest, StopsAlthoughACallDoesNotComeBack) {
  auto api = fake_.make_api();
  std::promise<void> release;
  std::promise<void> left;
  auto released = release.get_future().share();
  api->clock_mhz = [released, &left](NvmlDevice, int, unsigned*) {
    released.wait();
    left.set_value();
    return kNvmlUninitialized;
  };
  GpuSource::Options options = make_options(api);
  options.stop_patience = milliseconds(50);
  options.stall_after = milliseconds(20);
  GpuSource source(options, reports_.listener());
  std::optional<Problem> stall;
  for (int i = 0; i < 2000 && !stall; ++i) {
    stall = source.find_stall();
    std::this_thread::sleep_for(milliseconds(5));
  }

  EXPECT_FALSE(source.stop());

  ASSERT_TRUE(stall.has_value());
  EXPECT_THAT(stall->message, HasSubstr("nvmlDeviceGetClockInfo has not returned"));
  release.set_value();  // so that nothing is left when the test ends
  left.get_future().wait();
  for (int i = 0; i < 2000 && fake_.shutdowns == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
}

TEST(NvmlApiTest, SaysThatThereIsNoLibrary) {
  const auto api = load_nvml("libgpuperf-no-such-library.so.1");

  EXPECT_EQ(api.status().code(), absl::StatusCode::kNotFound);
}

TEST(NvmlApiTest, RefusesALibraryThatIsNotNvml) {
  const auto api = load_nvml("libm.so.6");

  EXPECT_EQ(api.status().code(), absl::StatusCode::kUnavailable);
}

TEST(NvmlApiTest, TakesTheOlderNameWhereTheNewerIsMissing) {
  const auto api = load_nvml(GPUPERF_FAKE_NVML_LIBRARY);

  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_TRUE((*api)->clock_limits);     // as nvmlDeviceGetCurrentClocksThrottleReasons
  EXPECT_FALSE((*api)->power_usage_mw);  // by no name
}

}  // namespace
}  // namespace gpuperf
