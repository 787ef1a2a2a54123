#include "daemon/owner/cri.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <fstream>
#include <mutex>

#include "cri/runtime_v1.grpc.pb.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

const std::string kAskedId = "3f4a0c9d1b2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a";

// A container runtime that knows some containers, on a socket of its own.
class FakeRuntime final : public runtime::v1::RuntimeService::Service {
 public:
  FakeRuntime() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeRuntime() override {
    {
      const std::lock_guard lock(mutex_);
      is_hung_ = false;
    }
    wake_.notify_all();
    server_->Shutdown();
  }

  std::string socket() const { return folder_ / "runtime.sock"; }
  runtime::v1::Container& add(const std::string& id) {
    runtime::v1::Container& container = *containers_.add_containers();
    container.set_id(id);
    return container;
  }
  void add_in_pod(const std::string& id, const std::string& pod, const std::string& pod_namespace) {
    auto& labels = *add(id).mutable_labels();
    labels["io.kubernetes.pod.name"] = pod;
    labels["io.kubernetes.pod.namespace"] = pod_namespace;
  }
  void hang() { is_hung_ = true; }
  void fail(grpc::Status status) { status_ = std::move(status); }

  grpc::Status ListContainers(grpc::ServerContext*,
                              const runtime::v1::ListContainersRequest* request,
                              runtime::v1::ListContainersResponse* response) override {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return !is_hung_; });
    // As containerd does: an id that is no container's matches nothing, a beginning one.
    for (const auto& container : containers_.containers()) {
      if (container.id().starts_with(request->filter().id())) {
        *response->add_containers() = container;
      }
    }
    return status_;
  }

 private:
  TempFolder folder_;
  runtime::v1::ListContainersResponse containers_;
  grpc::Status status_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_hung_ = false;  // guarded by mutex_ once served
  std::unique_ptr<grpc::Server> server_;
};

TEST(CriTest, NamesThePodOfAContainer) {
  FakeRuntime runtime;
  runtime.add_in_pod(std::string(64, '0'), "other", "default");
  runtime.add_in_pod(kAskedId, "train-0", "research");

  EXPECT_EQ(find_pod({runtime.socket()}, kAskedId.substr(0, 12)).value(),
            (PodName{.pod = "train-0", .pod_namespace = "research"}));
}

TEST(CriTest, KnowsNoPodOfContainersWithoutOne) {
  FakeRuntime runtime;
  runtime.add(kAskedId);

  EXPECT_EQ(find_pod({runtime.socket()}, kAskedId.substr(0, 12)).value(), std::nullopt);
  EXPECT_EQ(find_pod({runtime.socket()}, "ffffffffffff").value(), std::nullopt);
}

TEST(CriTest, AsksTheFirstSocketThatIsThere) {
  FakeRuntime runtime;
  runtime.add_in_pod(kAskedId, "train-0", "research");
  const std::string file = runtime.socket() + ".txt";
  std::ofstream(file) << "no socket";

  EXPECT_TRUE(find_pod({"/nowhere", file, runtime.socket()}, kAskedId).value().has_value());
}

TEST(CriTest, SaysWhenThereIsNoRuntime) {
  EXPECT_EQ(find_pod({"/nowhere", "/tmp"}, kAskedId).status().code(), absl::StatusCode::kNotFound);
}

TEST(CriTest, SaysWhatTheRuntimeAnswered) {
  FakeRuntime runtime;
  runtime.fail({grpc::StatusCode::UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService"});

  const auto answer = find_pod({runtime.socket()}, kAskedId);

  EXPECT_EQ(answer.status().message(), runtime.socket() +
                                           ": list containers: unknown service "
                                           "runtime.v1.RuntimeService");
}

TEST(CriTest, GivesUpOnARuntimeThatHangs) {
  FakeRuntime runtime;
  runtime.hang();

  EXPECT_EQ(find_pod({runtime.socket()}, kAskedId).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CriTest, CutsNamesThatCannotBe) {
  FakeRuntime runtime;
  runtime.add_in_pod(kAskedId, std::string(100'000, 'p'), "");

  EXPECT_EQ(find_pod({runtime.socket()}, kAskedId).value()->pod.size(), 253u);
}

}  // namespace
}  // namespace gpuperf
