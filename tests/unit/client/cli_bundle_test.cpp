// gpuperfctl bundle, run as a user runs it.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cli_fixture.h"
#include "client/sha256.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr const char* kComm = "secretd";
constexpr const char* kPod = "zeus-trainer-0";
constexpr const char* kPath = "/home/alice/zeus";
constexpr const char* kArgument = "t4g";

class CliBundleTest : public CliTest {
 protected:
  CliBundleTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    auto& problem = *daemon_.answers.status.add_problems();
    problem.set_subject("probes");
    problem.set_message(std::string(kComm) + ": " + kPath + ": no such symbol");
    daemon_.answers.status.set_store_path(kPath);
    v1::Process process;
    process.set_pid(71);
    process.set_comm(kComm);
    process.set_pod(kPod);
    daemon_.answers.processes = {process};
    for (v1::SlowCall& call : daemon_.answers.slow_calls) {
      call.set_comm(kComm);
      call.add_arguments()->set_value(kArgument);
    }
    daemon_.answers.config.set_effective_json(
        R"({"export": {"otlp": {"headers": {"authorization": "Bearer t0ken"}}}})");
  }

  // What is in the bundle, by name.
  std::map<std::string, std::string> unpack() {
    const std::string command = "tar xzf " + file_ + " -C " + folder_;
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/gpuperf-bundle")) {
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  }

  const std::string folder_ = testing::TempDir() + "cli_bundle_test";
  const std::string file_ = folder_ + "/bundle.tar.gz";
};

TEST_F(CliBundleTest, HasNoNamesInAnyFile) {
  const auto result = run({"bundle", "--file", file_});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Wrote " + file_), HasSubstr("Read it before")));
  const auto files = unpack();
  EXPECT_THAT(files, SizeIs(testing::Ge(12u)));
  for (const auto& [name, text] : files) {
    for (const std::string secret :
         {kComm, kPod, kPath, kArgument, "alice", "t0ken", "authorization"}) {
      EXPECT_THAT(text, Not(HasSubstr(secret))) << name;
    }
  }
  EXPECT_THAT(files.at("doctor.txt"), HasSubstr("no such symbol"));
  EXPECT_THAT(files.at("slow_calls.json"), HasSubstr("\"duration_ns\": 250000000"));
}

TEST_F(CliBundleTest, SaysInTheManifestWhatEachFileIs) {
  ASSERT_EQ(run({"bundle", "--file", file_}).exit_code, 0);

  const auto files = unpack();
  const auto manifest = ordered_json::parse(files.at("manifest.json"));
  EXPECT_EQ(manifest["includes_names"], false);
  EXPECT_EQ(manifest["files"].size() + 1, files.size());
  for (const auto& row : manifest["files"]) {
    const std::string& text = files.at(row["name"]);
    EXPECT_EQ(row["bytes"], text.size());
    EXPECT_EQ(row["sha256"], to_hex(hash_sha256(text)));
    EXPECT_NE(row["what"], "");
    if (row["name"].get<std::string>().ends_with(".json")) {
      EXPECT_FALSE(ordered_json::parse(text, nullptr, false).is_discarded()) << row["name"];
    }
  }
}

TEST_F(CliBundleTest, KeepsNamesButNoSecretsWhereAsked) {
  ASSERT_EQ(run({"bundle", "--file", file_, "--include-names"}).exit_code, 0);

  const auto files = unpack();
  EXPECT_THAT(files.at("overhead.json"), AllOf(HasSubstr(kComm), HasSubstr(kPod)));
  EXPECT_THAT(files.at("status.json"), HasSubstr(kPath));
  EXPECT_THAT(files.at("slow_calls.json"), AllOf(HasSubstr(kComm), Not(HasSubstr(kArgument))));
  EXPECT_THAT(files.at("manifest.json"),
              AllOf(HasSubstr("\"includes_names\": true"), HasSubstr("--include-names was given")));
  EXPECT_THAT(files.at("config.json"), Not(HasSubstr("t0ken")));
}

TEST_F(CliBundleTest, TakesALogFromAFile) {
  std::ofstream(folder_ + "/daemon.log")
      << "2026-11-26T20:00:00.123+00:00 info slow_call id=17 comm=gonesecret\n";
  ASSERT_EQ(run({"bundle", "--file", file_, "--log", folder_ + "/daemon.log"}).exit_code, 0);

  const auto files = unpack();
  EXPECT_THAT(files.at("log.txt"), HasSubstr("info slow_call id=\"17\" comm=\"comm-"));
  EXPECT_THAT(files.at("log.txt"), Not(HasSubstr("gonesecret")));
}

TEST_F(CliBundleTest, SaysWhatIsMissingWithoutADaemon) {
  const auto result =
      run_program({"bundle", "--file", file_, "--address", "unix:" + folder_ + "/none.sock"}, {});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("missing: status.json: "));
  const auto files = unpack();
  const auto manifest = ordered_json::parse(files.at("manifest.json"));
  EXPECT_GE(manifest["missing"].size(), 10u);
  EXPECT_TRUE(files.contains("host.json"));
  EXPECT_TRUE(files.contains("doctor.json"));
  EXPECT_FALSE(files.contains("status.json"));
}

TEST_F(CliBundleTest, RefusesAFileThatCannotBeWritten) {
  const auto result = run({"bundle", "--file", folder_ + "/none/bundle.tar.gz"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace gpuperf::client
