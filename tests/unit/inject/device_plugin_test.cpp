#include "daemon/inject/device_plugin.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_kubelet.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

class DevicePluginTest : public testing::Test {
 protected:
  DevicePlugin::Options options() const {
    return {.folder = folder_.path().string(), .first_retry = milliseconds(0)};
  }
  // As a kubelet does when it starts: nothing of its plugins stays.
  void restart_kubelet() {
    kubelet_.reset();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::filesystem::remove(entry.path());
    }
    kubelet_ = std::make_unique<FakeKubelet>(folder_.path().string());
  }

  const TempFolder folder_;
  const ContainerEdits edits_ = make_container_edits("/opt/injector.so", "/run/gpuperf/ingest");
  std::unique_ptr<FakeKubelet> kubelet_;
};

// The next list: health -> how many devices.
std::map<std::string, int> read_list(grpc::ClientReader<v1beta1::ListAndWatchResponse>& stream) {
  v1beta1::ListAndWatchResponse list;
  std::map<std::string, int> counts;
  if (stream.Read(&list)) {
    for (const v1beta1::Device& device : list.devices()) ++counts[device.health()];
  }
  return counts;
}

v1beta1::AllocateResponse allocate(const FakeKubelet& kubelet, int containers) {
  v1beta1::AllocateRequest request;
  for (int count = 0; count < containers; ++count) {
    request.add_container_requests()->add_devices_ids("inject-" + std::to_string(count));
  }
  v1beta1::AllocateResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(kubelet.connect()->Allocate(&context, request, &response).ok());
  return response;
}

TEST_F(DevicePluginTest, RegistersOnceWithTheKubelet) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);

  for (int count = 0; count < 3; ++count) EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());

  EXPECT_EQ(kubelet_->registered(), (std::vector<FakeKubelet::Registered>{
                                        {"v1beta1", "gpuperf-inject.sock", "gpuperf.dev/inject"}}));
}

TEST_F(DevicePluginTest, GivesEveryContainerTheLibraryAndTheSocket) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::OkStatus()).ok());

  const v1beta1::AllocateResponse answer = allocate(*kubelet_, 2);

  ASSERT_EQ(answer.container_responses_size(), 2);
  for (const auto& container : answer.container_responses()) {
    EXPECT_EQ(container.ShortDebugString(),
              "envs { key: \"CUDA_INJECTION64_PATH\" value: "
              "\"/usr/lib/gpuperf/libgpuperf_injector.so\" } "
              "mounts { container_path: \"/usr/lib/gpuperf/libgpuperf_injector.so\" "
              "host_path: \"/opt/injector.so\" read_only: true } "
              "mounts { container_path: \"/run/gpuperf\" host_path: \"/run/gpuperf/ingest\" "
              "read_only: true }");
  }
}

TEST_F(DevicePluginTest, TellsTheKubeletWhenHealthChanges) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::OkStatus()).ok());
  grpc::ClientContext context;
  const auto stub = kubelet_->connect();
  const auto stream = stub->ListAndWatch(&context, v1beta1::Empty());
  ASSERT_EQ(read_list(*stream), (std::map<std::string, int>{{"Healthy", kInjectDevices}}));

  EXPECT_TRUE(plugin.update(absl::NotFoundError("no library")).ok());

  EXPECT_EQ(read_list(*stream), (std::map<std::string, int>{{"Unhealthy", kInjectDevices}}));
  EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());
  EXPECT_EQ(read_list(*stream), (std::map<std::string, int>{{"Healthy", kInjectDevices}}));
}

// A mount of what is missing would keep the workload from starting.
TEST_F(DevicePluginTest, LetsAContainerStartWithoutWhatIsMissing) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::NotFoundError("no library")).ok());

  EXPECT_EQ(allocate(*kubelet_, 1).ShortDebugString(), "container_responses { }");
}

TEST_F(DevicePluginTest, RegistersAnewWithAKubeletThatStartedAgain) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::OkStatus()).ok());
  for (int count = 0; count < 5; ++count) {
    restart_kubelet();
    ASSERT_TRUE(kubelet_->registered().empty());

    EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());

    ASSERT_EQ(kubelet_->registered().size(), 1u);
    EXPECT_EQ(allocate(*kubelet_, 1).container_responses_size(), 1);
    EXPECT_TRUE(std::filesystem::is_socket(plugin.own_socket()));
  }
}

TEST_F(DevicePluginTest, ServesAnewWhenItsSocketWasRemoved) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::OkStatus()).ok());
  std::filesystem::remove(plugin.own_socket());

  EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());

  EXPECT_EQ(kubelet_->registered().size(), 2u);
  EXPECT_EQ(allocate(*kubelet_, 1).container_responses_size(), 1);
}

TEST_F(DevicePluginTest, TakesThePlaceOfTheSocketOfAKilledDaemon) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  plugin.own_socket().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::close(left), 0);

  EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());

  EXPECT_EQ(allocate(*kubelet_, 1).container_responses_size(), 1);
}

TEST_F(DevicePluginTest, SaysThatThereIsNoKubelet) {
  DevicePlugin plugin(options(), edits_);

  EXPECT_EQ(plugin.update(absl::OkStatus()),
            absl::NotFoundError(folder_ / "kubelet.sock: no kubelet listens there"));
  restart_kubelet();
  EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());
}

TEST_F(DevicePluginTest, SaysWhatTheKubeletAnswersAndAsksAgain) {
  restart_kubelet();
  kubelet_->refuse("the ResourceName is taken");
  DevicePlugin plugin(options(), edits_);

  EXPECT_EQ(plugin.update(absl::OkStatus()),
            absl::UnavailableError(folder_ / "kubelet.sock: register gpuperf.dev/inject: "
                                             "the ResourceName is taken"));
  kubelet_->refuse("");
  EXPECT_TRUE(plugin.update(absl::OkStatus()).ok());
}

TEST_F(DevicePluginTest, LeavesAKubeletAloneThatRefusedJustNow) {
  restart_kubelet();
  kubelet_->refuse("not now");
  DevicePlugin plugin({.folder = folder_.path().string(), .first_retry = std::chrono::hours(1)},
                      edits_);

  for (int count = 0; count < 5; ++count) EXPECT_FALSE(plugin.update(absl::OkStatus()).ok());

  EXPECT_EQ(kubelet_->asked(), 1);
}

TEST_F(DevicePluginTest, CanBeStoppedWhileTheKubeletDoesNotAnswer) {
  restart_kubelet();
  kubelet_->hang();
  DevicePlugin::Options patient = options();
  patient.patience = std::chrono::hours(1);
  DevicePlugin plugin(patient, edits_);
  std::thread updating([&] { EXPECT_FALSE(plugin.update(absl::OkStatus()).ok()); });
  ASSERT_TRUE(kubelet_->wait_until_asked());

  plugin.cancel();

  updating.join();
}

TEST_F(DevicePluginTest, LeavesNoSocketAndEndsStreams) {
  restart_kubelet();
  auto plugin = std::make_unique<DevicePlugin>(options(), edits_);
  ASSERT_TRUE(plugin->update(absl::OkStatus()).ok());
  grpc::ClientContext context;
  const auto stub = kubelet_->connect();
  const auto stream = stub->ListAndWatch(&context, v1beta1::Empty());
  ASSERT_FALSE(read_list(*stream).empty());
  const std::string socket = plugin->own_socket();

  plugin.reset();

  EXPECT_FALSE(std::filesystem::exists(socket));
  EXPECT_TRUE(read_list(*stream).empty());
}

// Streams hold threads; beyond their number a call is refused, and the ones that run go on.
TEST_F(DevicePluginTest, BoundsHowManyStreamsThereAre) {
  restart_kubelet();
  DevicePlugin plugin(options(), edits_);
  ASSERT_TRUE(plugin.update(absl::OkStatus()).ok());
  const auto stub = kubelet_->connect();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>>> streams;
  int refused = 0;
  for (int count = 0; count < 40; ++count) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(stub->ListAndWatch(contexts.back().get(), v1beta1::Empty()));
    if (!read_list(*streams.back()).empty()) continue;
    EXPECT_EQ(streams.back()->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    streams.pop_back();
    ++refused;
  }
  EXPECT_GT(refused, 0);

  EXPECT_TRUE(plugin.update(absl::NotFoundError("no library")).ok());

  EXPECT_EQ(read_list(*streams.front()),
            (std::map<std::string, int>{{"Unhealthy", kInjectDevices}}));
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& stream : streams) (void)stream->Finish();
}

}  // namespace
}  // namespace gpuperf
