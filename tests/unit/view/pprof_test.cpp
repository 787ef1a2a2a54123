#include "daemon/view/pprof.h"

#include <zlib.h>

#include <map>
#include <set>

#include "daemon/view/gzip.h"
#include "pprof/profile.pb.h"
#include "tests/fakes/captures/example_capture.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using perftools::profiles::Profile;
using testing::make_example_capture;

std::string from_gzip(const std::string& bytes) {
  std::string out(1 << 20, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

Profile render_profile(const Capture& capture, const ViewOptions& options = {}) {
  Profile profile;
  EXPECT_TRUE(profile.ParseFromString(from_gzip(render_pprof(capture, options))));
  return profile;
}

// "leaf < caller < …" of one sample.
std::string stack_of(const Profile& profile, const perftools::profiles::Sample& sample) {
  std::string text;
  for (const uint64_t id : sample.location_id()) {
    const auto& location = profile.location(static_cast<int>(id) - 1);
    const auto& function = profile.function(static_cast<int>(location.line(0).function_id()) - 1);
    if (!text.empty()) text += " < ";
    text += profile.string_table(static_cast<int>(function.name()));
    if (location.line(0).line() != 0) {
      text += ":" + std::to_string(location.line(0).line());
    }
  }
  return text;
}

std::map<std::string, std::string> labels_of(const Profile& profile,
                                             const perftools::profiles::Sample& sample) {
  std::map<std::string, std::string> labels;
  for (const auto& label : sample.label()) {
    labels[profile.string_table(static_cast<int>(label.key()))] =
        label.str() != 0 ? profile.string_table(static_cast<int>(label.str()))
                         : std::to_string(label.num());
  }
  return labels;
}

TEST(GzipTest, ComesBackAsItWas) {
  const std::string bytes(300'000, 'x');
  EXPECT_EQ(from_gzip(to_gzip(bytes)), bytes);
  EXPECT_EQ(from_gzip(to_gzip("")), "");
}

TEST(PprofTest, ASampleHasItsStackValuesAndLabels) {
  const Profile profile = render_profile(make_example_capture());

  EXPECT_EQ(stack_of(profile, profile.sample(1)),
            "[GPU0_Kernel]void gemm<float, 128>(float const*, float*) < cudaLaunchKernel < "
            "cublasGemmEx m=512 n=1024 k=64 < linear < forward:7 < train:42")
      << "main is the interpreter's";
  EXPECT_THAT(profile.sample(1).value(), ElementsAre(60'000, 1, 1));
  EXPECT_EQ(
      labels_of(profile, profile.sample(1)),
      (std::map<std::string, std::string>{{"kernel", "void gemm<float, 128>(float const*, float*)"},
                                          {"device", "0"},
                                          {"gpu_uuid", "GPU-01020300-0000-0000-0000-000000000000"},
                                          {"stream", "7"},
                                          {"process", "python3 (4711)"},
                                          {"pid", "4711"},
                                          {"comm", "python3"},
                                          {"container", "0123456789ab"},
                                          {"pod", "train-0"}}));
}

TEST(PprofTest, ASampleOfASampledKernelHasAStallReason) {
  Capture capture = make_example_capture();
  const Profile plain = render_profile(capture);
  const uint32_t kernel = capture.work[1].kernel;
  capture.stalls = {{.process = 0, .kernel = kernel, .stall = GPUPERF_STALL_barrier, .samples = 10},
                    {.process = 0, .kernel = kernel, .stall = GPUPERF_STALL_wait, .samples = 30}};
  const Profile profile = render_profile(capture, {.with_stalls = true});

  const auto sum = [](const Profile& of, int value, const std::string& stall = "") {
    int64_t total = 0;
    for (const auto& sample : of.sample()) {
      const auto labels = labels_of(of, sample);
      if (!stall.empty() && (!labels.contains("stall") || labels.at("stall") != stall)) continue;
      total += sample.value(value);
    }
    return total;
  };
  for (const int value : {0, 1, 2}) EXPECT_EQ(sum(profile, value), sum(plain, value)) << value;
  EXPECT_GT(sum(profile, 0, "barrier"), 0);
  EXPECT_NEAR(static_cast<double>(sum(profile, 0, "wait")),
              3.0 * static_cast<double>(sum(profile, 0, "barrier")), 10);
  EXPECT_EQ(sum(plain, 0, "wait"), 0);
}

TEST(PprofTest, ValuesAddUpToTheRecords) {
  const Profile profile = render_profile(make_example_capture());

  int64_t gpu_ns = 0;
  int64_t launches = 0;
  int64_t work = 0;
  for (const auto& sample : profile.sample()) {
    gpu_ns += sample.value(0);
    launches += sample.value(1);
    work += sample.value(2);
  }
  EXPECT_EQ(gpu_ns, 262'000);
  EXPECT_EQ(launches, 7);  // of the eight, one caused no work
  EXPECT_EQ(work, 9);
}

TEST(PprofTest, HostTimeHasTypesOfItsOwnAndAddsUp) {
  const Capture capture = make_example_capture();

  const Profile cpu = render_profile(capture, {.weight = ViewWeight::kCpuTime});
  const Profile off = render_profile(capture, {.weight = ViewWeight::kOffCpuTime});

  EXPECT_EQ(cpu.string_table(static_cast<int>(cpu.default_sample_type())), "cpu_time");
  EXPECT_EQ(off.string_table(static_cast<int>(off.default_sample_type())), "off_cpu_time");
  int64_t sum_ns = 0;
  for (const Profile* profile : {&cpu, &off}) {
    ASSERT_EQ(profile->sample_type_size(), 2);
    for (const auto& sample : profile->sample()) sum_ns += sample.value(0);
  }
  // Outermost calls: linear 100, the wait 200, launches outside of calls 5 + 5 + 10 + 5 + 5.
  EXPECT_EQ(sum_ns, 330'000);
}

TEST(PprofTest, SaysWhenItWasAndThatNothingIsSampled) {
  const Profile profile = render_profile(make_example_capture());

  EXPECT_EQ(profile.time_nanos(), 1'700'000'000'000'000'000);
  EXPECT_EQ(profile.duration_nanos(), 1'000'000);
  EXPECT_EQ(profile.period(), 1);
  EXPECT_EQ(profile.string_table(0), "");
  EXPECT_EQ(profile.string_table(static_cast<int>(profile.default_sample_type())), "gpu_time");
}

TEST(PprofTest, EveryReferenceLeadsSomewhere) {
  const Profile profile = render_profile(make_example_capture());

  std::set<uint64_t> mappings;
  for (const auto& mapping : profile.mapping()) mappings.insert(mapping.id());
  EXPECT_EQ(mappings.size(), 1u);
  for (const auto& location : profile.location()) {
    EXPECT_TRUE(location.mapping_id() == 0 || mappings.contains(location.mapping_id()));
    ASSERT_EQ(location.line_size(), 1);
    EXPECT_LE(location.line(0).function_id(), static_cast<uint64_t>(profile.function_size()));
  }
  for (const auto& sample : profile.sample()) EXPECT_EQ(sample.value_size(), 3);
}

}  // namespace
}  // namespace gpuperf
