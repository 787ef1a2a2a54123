#include "daemon/inject/injection_ways.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/inject/cdi_spec.h"
#include "daemon/inject/injector_file.h"
#include "daemon/inject/socket_folder.h"
#include "fake_kubelet.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

class InjectionTest : public testing::Test {
 protected:
  InjectionTest() {
    make_socket(socket_);
    std::ofstream(library_) << "\177ELF and so on";
  }

  static void make_socket(const std::filesystem::path& path) {
    const int made = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::close(made), 0);
  }

  InjectionWays::Options options() const {
    return {
        .cdi_spec = spec_, .library = library_, .socket = socket_, .interval = milliseconds(10)};
  }
  // The first report for which `holds`; what was last seen where none came.
  template <class Holds>
  static InjectionWays::Report wait_for(const InjectionWays& ways, Holds holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds(ways.report()) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return ways.report();
  }
  static bool works(const InjectionWays::Report& report) {
    return !report.ways.empty() && std::ranges::all_of(report.ways, &InjectionWay::is_working);
  }

  const TempFolder folder_;
  const std::filesystem::path socket_ = folder_ / "ingest.sock";
  const std::filesystem::path library_ = folder_ / "libgpuperf_injector.so";
  const std::filesystem::path spec_ = folder_ / "cdi/gpuperf.json";
};

using CdiSpecTest = InjectionTest;
using InjectorFileTest = InjectionTest;
using SocketFolderTest = InjectionTest;
using InjectionWaysTest = InjectionTest;

TEST_F(CdiSpecTest, HoldsWhatAContainerNeeds) {
  EXPECT_EQ(render_cdi_spec(make_container_edits("/opt/injector.so", "/run/gpuperf/ingest")),
            R"({
  "cdiVersion": "0.3.0",
  "kind": "gpuperf.dev/inject",
  "devices": [
    {
      "name": "all",
      "containerEdits": {
        "env": [
          "CUDA_INJECTION64_PATH=/usr/lib/gpuperf/libgpuperf_injector.so"
        ],
        "mounts": [
          {
            "hostPath": "/opt/injector.so",
            "containerPath": "/usr/lib/gpuperf/libgpuperf_injector.so",
            "options": [
              "ro",
              "nosuid",
              "nodev",
              "bind"
            ]
          },
          {
            "hostPath": "/run/gpuperf/ingest",
            "containerPath": "/run/gpuperf",
            "options": [
              "ro",
              "nosuid",
              "nodev",
              "bind"
            ]
          }
        ]
      }
    }
  ]
}
)");
}

TEST_F(CdiSpecTest, IsMadeWithItsFolderAndReadableByAll) {
  const mode_t before = ::umask(0077);
  const Status written = write_cdi_spec(spec_, "{}");
  ::umask(before);

  EXPECT_EQ(written, absl::OkStatus());
  EXPECT_EQ(read_file(spec_), "{}");
  struct stat status {};
  ASSERT_EQ(::stat(spec_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(spec_.parent_path()), {}), 1);
}

TEST_F(CdiSpecTest, IsLeftAloneWhenNothingHasChanged) {
  ASSERT_TRUE(write_cdi_spec(spec_, "{}").ok());
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(spec_.c_str(), &before), 0);

  EXPECT_TRUE(write_cdi_spec(spec_, "{}").ok());

  ASSERT_EQ(::stat(spec_.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(CdiSpecTest, ReplacesThatOfAnotherVersionOnly) {
  std::filesystem::create_directory(spec_.parent_path());
  std::ofstream(spec_) << R"({"kind": "nvidia.com/gpu"})";
  EXPECT_EQ(write_cdi_spec(spec_, "{}"),
            absl::AlreadyExistsError(spec_.string() +
                                     ": is not a file of gpuperf and was left alone; give "
                                     "ingest.cdi_spec another name"));
  EXPECT_EQ(read_file(spec_), R"({"kind": "nvidia.com/gpu"})");

  std::ofstream(spec_) << R"({"kind": "gpuperf.dev/inject", "cdiVersion": "9"})";
  EXPECT_TRUE(write_cdi_spec(spec_, "{}").ok());
  EXPECT_EQ(read_file(spec_), "{}");
}

TEST_F(CdiSpecTest, NamesAFolderThatCannotBeMade) {
  const std::string path = folder_ / "no/such/gpuperf.json";

  EXPECT_EQ(write_cdi_spec(path, "{}").message(),
            folder_ / "no/such: make folder: No such file or directory");
}

TEST_F(InjectorFileTest, IsWhereItWasSaid) {
  EXPECT_EQ(find_injector_file(library_), library_);
  EXPECT_EQ(check_injector_file(library_), absl::OkStatus());
}

TEST_F(InjectorFileTest, MustBeALibraryThatCanBeRead) {
  const std::string hint =
      "; install it there, or name it with ingest.injector_path: the path must be the same for "
      "gpuperfd and for the container runtime";
  std::ofstream(library_) << "#!/bin/sh";

  EXPECT_EQ(check_injector_file(library_).message(),
            library_.string() + ": not a shared library" + hint);
  EXPECT_EQ(check_injector_file(folder_ / "gone").message(),
            folder_ / "gone" + ": No such file or directory" + hint);
  EXPECT_FALSE(check_injector_file(folder_.path()).ok());
}

TEST_F(SocketFolderTest, HasTheSocketAndNothingElse) {
  std::string name;
  {
    const auto made = SocketFolder::make(socket_);
    ASSERT_TRUE(made.ok()) << made.status();
    name = made->socket();
    EXPECT_EQ(made->path(), folder_ / "ingest");
    EXPECT_EQ(find_file_id(name), find_file_id(socket_));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(made->path()), {}), 1);
  }
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ingest"));
}

TEST_F(SocketFolderTest, TakesThePlaceOfAKilledDaemons) {
  std::filesystem::create_directory(folder_ / "ingest");
  make_socket(folder_ / "ingest/ingest.sock");

  const auto made = SocketFolder::make(socket_);

  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(find_file_id(made->socket()), find_file_id(socket_));
}

TEST_F(SocketFolderTest, LeavesTheNextDaemonsAlone) {
  auto made = SocketFolder::make(socket_);
  ASSERT_TRUE(made.ok());
  const std::string name = made->socket();
  std::filesystem::remove(name);
  make_socket(name);

  made = absl::CancelledError();

  EXPECT_TRUE(std::filesystem::exists(name));
}

TEST_F(SocketFolderTest, SaysWhenThereIsNoSocket) {
  EXPECT_EQ(SocketFolder::make(folder_ / "gone").status().message(),
            folder_ / "gone: No such file or directory");
}

TEST_F(InjectionWaysTest, WriteTheFileAndLeaveItBehind) {
  const std::string expected = render_cdi_spec(make_container_edits(library_, folder_.path()));
  {
    const InjectionWays ways(options(), [] {});
    EXPECT_EQ(wait_for(ways, works),
              (InjectionWays::Report{
                  .ways = {{"cdi", true, spec_.string() + ": --device gpuperf.dev/inject=all"}},
                  .problems = {}}));
    EXPECT_EQ(read_file(spec_), expected);
    std::filesystem::remove(spec_);
    EXPECT_TRUE(wait_for(ways, [this](const auto&) {
                  return std::filesystem::exists(spec_);
                }).problems.empty());
  }
  EXPECT_EQ(read_file(spec_), expected);
}

TEST_F(InjectionWaysTest, WaitForTheLibrary) {
  std::filesystem::remove(library_);
  std::atomic<int> changes = 0;
  const InjectionWays ways(options(), [&] { ++changes; });
  const InjectionWays::Report report =
      wait_for(ways, [](const auto& seen) { return !seen.ways.empty(); });
  ASSERT_EQ(report.ways.size(), 1u);
  EXPECT_FALSE(report.ways[0].is_working);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].message, check_injector_file(library_).message());
  EXPECT_FALSE(std::filesystem::exists(spec_));

  std::ofstream(folder_ / "new") << "\177ELF and so on";
  std::filesystem::rename(folder_ / "new", library_);  // never to be seen in part

  EXPECT_TRUE(works(wait_for(ways, works)));
  EXPECT_EQ(changes, 2);
}

TEST_F(InjectionWaysTest, TellWhichOfThemWorks) {
  const std::filesystem::path kubelet_folder = folder_ / "kubelet";
  std::filesystem::create_directory(kubelet_folder);
  InjectionWays::Options both = options();
  both.plugin.folder = kubelet_folder;
  const InjectionWays ways(both, [] {});
  const auto report = wait_for(ways, [](const auto& seen) { return seen.ways.size() == 2; });
  EXPECT_TRUE(report.ways[0].is_working);
  EXPECT_EQ(report.ways[1],
            (InjectionWay{"device_plugin", false,
                          (kubelet_folder / "kubelet.sock: no kubelet listens there").string()}));
  EXPECT_EQ(report.problems.size(), 1u);

  const FakeKubelet kubelet(kubelet_folder);

  EXPECT_EQ(wait_for(ways, works).ways[1],
            (InjectionWay{"device_plugin", true,
                          "gpuperf.dev/inject: 256 devices, registered with " +
                              (kubelet_folder / "kubelet.sock").string()}));
}

TEST_F(InjectionWaysTest, SayThatTheSocketHasGone) {
  const InjectionWays ways(options(), [] {});
  ASSERT_TRUE(works(wait_for(ways, works)));

  std::filesystem::remove(socket_);

  const auto report = wait_for(ways, [](const auto& seen) { return !works(seen); });
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].message,
            socket_.string() + ": the ingest socket was removed; restart gpuperfd");
  EXPECT_TRUE(std::filesystem::exists(spec_));
}

}  // namespace
}  // namespace gpuperf
