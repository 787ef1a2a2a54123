#include "daemon/otlp/profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb.h"
#include "tests/fakes/captures/example_capture.h"
#include "tests/unit/otlp/messages.h"

namespace gpuperf::otlp {
namespace {

namespace profiles = ::opentelemetry::proto::profiles::v1development;
using ProfilesRequest =
    ::opentelemetry::proto::collector::profiles::v1development::ExportProfilesServiceRequest;
using ::gpuperf::testing::make_example_capture;
using testing::parse_bytes;

std::vector<ProfilesRequest> make_requests(const Capture& capture, size_t max_bytes = kRequestBytes,
                                           const Origin& origin = make_origin({{"host.name", "n"}},
                                                                              "1.2.3")) {
  std::vector<ProfilesRequest> parsed;
  for (const Request& request : make_profile_requests(capture, origin, "abc", max_bytes)) {
    parsed.push_back(parse_bytes<ProfilesRequest>(request.bytes));
  }
  return parsed;
}

std::string text_of(const ProfilesRequest& request, int32_t index) {
  return request.dictionary().string_table(index);
}

std::string attribute_of(const ProfilesRequest& request, int32_t index) {
  const auto& attribute = request.dictionary().attribute_table(index);
  const auto& value = attribute.value();
  return text_of(request, attribute.key_strindex()) + "=" +
         (value.has_string_value() ? value.string_value() : std::to_string(value.int_value()));
}

// "leaf < caller < …" of one sample, with lines, files and kinds of frames.
std::string stack_of(const ProfilesRequest& request, const profiles::Sample& sample) {
  const auto& dictionary = request.dictionary();
  std::string text;
  for (const int32_t index : dictionary.stack_table(sample.stack_index()).location_indices()) {
    const profiles::Location& location = dictionary.location_table(index);
    const profiles::Line& line = location.lines(0);
    if (!text.empty()) text += " < ";
    text += text_of(request, dictionary.function_table(line.function_index()).name_strindex());
    if (line.line() != 0) text += ":" + std::to_string(line.line());
    const auto& mapping = dictionary.mapping_table(location.mapping_index());
    if (mapping.filename_strindex() != 0) {
      text += " in " + text_of(request, mapping.filename_strindex());
    }
    for (const int32_t attribute : location.attribute_indices()) {
      text += " " + attribute_of(request, attribute);
    }
  }
  return text;
}

// The sum of each profile by its resource's pid and its type; "no pid" where there is none.
std::map<std::pair<std::string, std::string>, int64_t> add_up(
    const std::vector<ProfilesRequest>& requests) {
  std::map<std::pair<std::string, std::string>, int64_t> sums;
  for (const ProfilesRequest& request : requests) {
    for (const auto& of_resource : request.resource_profiles()) {
      std::string pid = "no pid";
      for (const auto& attribute : of_resource.resource().attributes()) {
        if (attribute.key() == "process.pid") pid = std::to_string(attribute.value().int_value());
      }
      for (const profiles::Profile& profile : of_resource.scope_profiles(0).profiles()) {
        EXPECT_EQ(text_of(request, profile.sample_type().unit_strindex()), "nanoseconds");
        int64_t& sum = sums[{pid, text_of(request, profile.sample_type().type_strindex())}];
        for (const profiles::Sample& sample : profile.samples()) sum += sample.values(0);
      }
    }
  }
  return sums;
}

TEST(ProfilesTest, EveryProcessHasAProfileOfEachKindOfTimeAndTheyAddUpToTheRecords) {
  const auto sums = add_up(make_requests(make_example_capture()));

  // Work: 252 us of one process, 10 us of the other. Outermost calls: linear 100, the wait 200,
  // launches outside of calls 5 + 5 + 10 + 5, and 5 of the other.
  EXPECT_EQ(sums, (std::map<std::pair<std::string, std::string>, int64_t>{
                      {{"4711", "gpu_time"}, 252'000},
                      {{"4711", "cpu_time"}, 130'000},
                      {{"4711", "off_cpu_time"}, 195'000},
                      {{"4712", "gpu_time"}, 10'000},
                      {{"4712", "cpu_time"}, 5'000}}));
}

TEST(ProfilesTest, ASampleOfTheGpuHasTheStackThatLaunchedItAndWhereItRan) {
  const auto requests = make_requests(make_example_capture());

  ASSERT_EQ(requests.size(), 1u);
  const ProfilesRequest& request = requests[0];
  const profiles::Profile& profile = request.resource_profiles(0).scope_profiles(0).profiles(0);
  const profiles::Sample& sample = profile.samples(1);
  EXPECT_EQ(stack_of(request, sample),
            "[GPU0_Kernel]void gemm<float, 128>(float const*, float*) < "
            "cudaLaunchKernel profile.frame.type=native < "
            "cublasGemmEx m=512 n=1024 k=64 profile.frame.type=native < "
            "linear profile.frame.type=native < forward:7 profile.frame.type=cpython < "
            "train:42 profile.frame.type=cpython");
  EXPECT_EQ(sample.values(0), 60'000);
  std::vector<std::string> attributes;
  for (const int32_t index : sample.attribute_indices()) {
    attributes.push_back(attribute_of(request, index));
  }
  EXPECT_THAT(attributes,
              ::testing::ElementsAre("gpuperf.gpu.uuid=GPU-01020300-0000-0000-0000-000000000000",
                                     "gpuperf.gpu.device=0", "gpuperf.gpu.stream=7"));
  EXPECT_EQ(profile.time_unix_nano(), 1'700'000'000'000'000'000u);
  EXPECT_EQ(profile.duration_nano(), 1'000'000u);
}

TEST(ProfilesTest, TheResourceIsTheProcess) {
  const auto requests = make_requests(make_example_capture());

  std::map<std::string, std::string> attributes;
  for (const auto& attribute : requests[0].resource_profiles(0).resource().attributes()) {
    attributes[attribute.key()] = attribute.value().has_string_value()
                                      ? attribute.value().string_value()
                                      : std::to_string(attribute.value().int_value());
  }
  EXPECT_EQ(attributes, (std::map<std::string, std::string>{{"host.name", "n"},
                                                            {"service.name", "python3"},
                                                            {"process.pid", "4711"},
                                                            {"process.executable.name", "python3"},
                                                            {"container.id", "0123456789ab"},
                                                            {"k8s.pod.name", "train-0"},
                                                            {"k8s.namespace.name", "ml"}}));
}

TEST(ProfilesTest, AConfiguredNameOfTheServiceStands) {
  const auto requests = make_requests(make_example_capture(), kRequestBytes,
                                      make_origin({{"service.name", "llm"}}, "1.2.3"));

  for (const auto& attribute : requests[0].resource_profiles(0).resource().attributes()) {
    if (attribute.key() != "service.name") continue;
    EXPECT_EQ(attribute.value().string_value(), "llm");
  }
}

TEST(ProfilesTest, EveryTableBeginsWithAnEmptyRowAndHoldsEachRowOnce) {
  const auto requests = make_requests(make_example_capture());

  const auto check = [](const auto& table) {
    std::set<std::string> rows;
    for (const auto& row : table) EXPECT_TRUE(rows.insert(row.SerializeAsString()).second);
    ASSERT_GT(table.size(), 0);
    EXPECT_EQ(table[0].ByteSizeLong(), 0u);
  };
  const auto& dictionary = requests[0].dictionary();
  check(dictionary.mapping_table());
  check(dictionary.location_table());
  check(dictionary.function_table());
  check(dictionary.link_table());
  check(dictionary.attribute_table());
  check(dictionary.stack_table());
  const auto& texts = dictionary.string_table();
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(),
            static_cast<size_t>(texts.size()));
  EXPECT_EQ(texts[0], "");
}

TEST(ProfilesTest, WhatDoesNotFitGoesOnInTheNextRequestWithAnIdOfItsOwn) {
  const Capture capture = make_example_capture();
  const auto whole = add_up(make_requests(capture));

  const auto requests = make_requests(capture, 1);  // full with the first sample

  EXPECT_GT(requests.size(), 9u);
  EXPECT_EQ(add_up(requests), whole);
  std::set<std::string> ids;
  for (const ProfilesRequest& request : requests) {
    const auto& profile = request.resource_profiles(0).scope_profiles(0).profiles(0);
    EXPECT_EQ(profile.profile_id().size(), 16u);
    EXPECT_TRUE(ids.insert(profile.profile_id()).second);
  }
}

TEST(ProfilesTest, ARequestSaysHowManyProfilesItHas) {
  const auto requests =
      make_profile_requests(make_example_capture(), make_origin({}, "1.2.3"), "abc");

  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].items, 5u);
}

TEST(ProfilesTest, NothingHappenedNothingIsSent) {
  EXPECT_TRUE(make_profile_requests(Capture(), make_origin({}, "1.2.3"), "abc").empty());
}

}  // namespace
}  // namespace gpuperf::otlp
