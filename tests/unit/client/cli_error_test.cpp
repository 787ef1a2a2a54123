// What goes wrong, and the exit codes that scripts rely on.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "fake_daemon.h"
#include "program.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

// A bound Unix socket; listening or not.
class BoundSocket {
 public:
  BoundSocket(const std::string& path, bool listening)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof(name.sun_path) - 1);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) {
      throw std::runtime_error("cannot bind " + path);
    }
    if (listening && listen(fd_, 16) != 0) throw std::runtime_error("cannot listen on " + path);
  }
  ~BoundSocket() { close(fd_); }
  BoundSocket(const BoundSocket&) = delete;
  BoundSocket& operator=(const BoundSocket&) = delete;

 private:
  int fd_;
};

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& said) {
  const auto result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 2) << said;
  EXPECT_EQ(result.out, "") << said;
  EXPECT_THAT(result.err, AllOf(StartsWith("gpuperfctl: "), HasSubstr(said), EndsWith("\n")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(CliUsageTest, ExitsWithTwoAndSaysWhereToLook) {
  expect_usage_error({}, "A subcommand is required; see: gpuperfctl --help");
  expect_usage_error({"frob"}, "no such command: frob; see: gpuperfctl --help");
  expect_usage_error({"--frob"}, "no such flag: --frob");
  expect_usage_error({"slow"}, "A subcommand is required; see: gpuperfctl slow --help");
  expect_usage_error({"slow", "frob"}, "no such command: frob; see: gpuperfctl slow --help");
  expect_usage_error({"slow", "show"}, "ID is required; see: gpuperfctl slow show --help");
  expect_usage_error({"slow", "show", "x"}, "ID: \"x\" is not a whole number from 1");
  expect_usage_error({"slow", "show", "0"}, "ID: \"0\" is not a whole number from 1");
  expect_usage_error({"config", "check"}, "FILE is required");
  expect_usage_error({"functions", "status"}, "not expected: status");
}

TEST(CliUsageTest, SuggestsWhatWasMostLikelyMeant) {
  expect_usage_error({"kernel", "--by", "line"},
                     "no such command: kernel; did you mean kernels? See: gpuperfctl --help");
  expect_usage_error({"slow", "lst"}, "no such command: lst; did you mean list?");
  expect_usage_error(
      {"functions", "--limt", "5"},
      "no such flag: --limt; did you mean --limit? See: gpuperfctl functions --help");
  expect_usage_error({"functions", "--adress=x"},
                     "no such flag: --adress; did you mean --address?");
  expect_usage_error({"status", "--frobnicate"},
                     "no such flag: --frobnicate; see: gpuperfctl status");
}

TEST(CliUsageTest, SaysHowToNameAFile) {
  expect_usage_error(
      {"flamegraph", "-o", "slow.svg"},
      "\"slow.svg\" is not table, json or csv; files: --file slow.svg, or > slow.svg");
}

TEST(CliUsageTest, RefusesValuesThatMeanNothing) {
  expect_usage_error({"status", "-o", "xml"}, "--output: \"xml\" is not table, json or csv; see");
  expect_usage_error({"status", "--timeout", "0"}, "--timeout: \"0\" is not a number of seconds");
  expect_usage_error({"status", "--watch=0"}, "--watch: \"0\" is not a number of seconds from 0.1");
  expect_usage_error({"functions", "--limit=-1"}, "--limit: \"-1\" is not a whole number from 0");
  expect_usage_error({"functions", "--pid", "0"}, "--pid: \"0\" is not a whole number from 1");
  expect_usage_error({"functions", "--pid", "4294967296"}, "is not a whole number from 1");
  expect_usage_error({"functions", "--pod", ""}, "--pod: is empty");
  expect_usage_error({"functions", "--function", "\xff"}, "--function: is not UTF-8 text");
  expect_usage_error({"slow", "list", "--since", "yesterday"}, "--since: \"yesterday\": not a dur");
  expect_usage_error({"slow", "list", "--min-duration", "5"}, "--min-duration: \"5\": no unit");
  expect_usage_error({"processes", "--sort", "colour"}, "there are pid, start_boot_ns, comm");
  expect_usage_error({"status", "--address", "gpu-17"}, "neither a socket path nor host:port");
}

// A filter that is taken and not obeyed would be a wrong answer.
TEST(CliUsageTest, RefusesFiltersThatACommandCannotObey) {
  expect_usage_error({"functions", "--since", "10m"}, "--since; see: gpuperfctl functions --help");
  expect_usage_error({"processes", "--category", "cuda"}, "--category");
  expect_usage_error({"status", "--pid", "1"}, "--pid");
}

TEST(CliUsageTest, HelpsOnStandardOutput) {
  const auto result = run_program({"slow", "list", "--help"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("--min-duration"));
}

TEST(CliUnreachableTest, SaysThatThereIsNoSocket) {
  const TempFolder folder;
  const std::string address = "unix:" + (folder / "api.sock");

  const auto result = run_program({"status", "--address", address});

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "gpuperfctl: cannot reach gpuperfd at " + address +
                            ": no such socket; is gpuperfd running? see: systemctl status "
                            "gpuperfd; another address: --address\n");
}

TEST(CliUnreachableTest, SaysThatNobodyListens) {
  const TempFolder folder;
  const std::string path = folder / "api.sock";
  const BoundSocket left_behind(path, /*listening=*/false);

  const auto result = run_program({"functions", "--address", path});

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("nothing listens on this socket; is gpuperfd running?"));
}

TEST(CliUnreachableTest, SaysThatAFileIsNotASocket) {
  const TempFolder folder;
  const std::string path = folder / "api.sock";
  std::ofstream(path) << "x";

  const auto result = run_program({"functions", "--address", path});

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr(": not a socket;"));
}

TEST(CliUnreachableTest, GivesUpOnADaemonThatDoesNotAnswer) {
  const TempFolder folder;
  const std::string path = folder / "api.sock";
  const BoundSocket silent(path, /*listening=*/true);

  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"status"}, {"slow", "watch"}, {"functions", "--watch"}}) {
    auto arguments = command;
    arguments.insert(arguments.end(), {"--address", path, "--timeout", "0.2"});
    const auto result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("did not answer within 0.2 s"));
  }
}

// What to give for a daemon at a TCP address.
std::vector<std::string> make_tcp_command(const std::string& address, const ThrowawayCa& ca) {
  return {"status",     "-o",          "json",         "--address",  address,      "--ca-file",
          ca.ca_file(), "--cert-file", ca.cert_file(), "--key-file", ca.key_file()};
}

TEST(CliUnreachableTest, FailsAtOnceOnARefusedPort) {
  FakeDaemon daemon;
  const ThrowawayCa ca;
  daemon.start_tcp(ca);
  daemon.stop();  // nobody else is likely to take its port at once
  auto arguments = make_tcp_command(daemon.address(), ca);
  arguments.insert(arguments.end(), {"--timeout", "600"});

  const auto result = run_program(arguments);

  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("cannot read the status: gpuperfd at " + daemon.address()));
  EXPECT_THAT(result.err, HasSubstr("is gpuperfd running?"));
}

TEST(CliConnectionTest, SpeaksTcpPastAWebProxy) {
  FakeDaemon daemon;
  const ThrowawayCa ca;
  daemon.start_tcp(ca);

  const auto result = run_program(make_tcp_command(daemon.address(), ca),
                                  {.environment = {{"http_proxy", "http://127.0.0.1:1"},
                                                   {"https_proxy", "http://127.0.0.1:1"}}});

  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(CliConnectionTest, SaysWhichCertificateIsMissing) {
  expect_usage_error({"status", "--address", "127.0.0.1:1"},
                     "--ca-file is missing: over TCP gpuperfctl and gpuperfd both show");
  expect_usage_error({"status", "--address", "127.0.0.1:1", "--ca-file", "/no/such.pem"},
                     "--ca-file: cannot read /no/such.pem: No such file");
}

TEST(CliConnectionTest, TakesPathsThatNeedEscapingInAUri) {
  FakeDaemon daemon;
  daemon.start();
  const std::string odd = (daemon.folder() / "a b%41?#.sock").string();
  std::filesystem::create_symlink(daemon.folder() / "api.sock", odd);

  const auto result = run_program({"status", "-o", "json", "--address", odd});

  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(CliPermissionTest, SaysHowToBePermittedToOpenTheSocket) {
  FakeDaemon daemon;
  daemon.start();
  // The program may lie where nobody else can reach it.
  const std::string program = (daemon.folder() / "gpuperfctl").string();
  std::filesystem::copy_file(GPUPERFCTL_PATH, program);
  std::filesystem::permissions(daemon.folder(), std::filesystem::perms(0711));
  std::filesystem::permissions(daemon.folder() / "api.sock", std::filesystem::perms(0600));
  std::vector<std::string> arguments = {"status", "--address", daemon.address()};
  ProgramOptions options = {.program = program};
  if (getuid() == 0) {
    arguments.insert(arguments.begin(),
                     {"--reuid=65534", "--regid=65534", "--clear-groups", program});
    options.program = "setpriv";
  } else {
    std::filesystem::permissions(daemon.folder() / "api.sock", std::filesystem::perms(0));
  }

  const auto result = run_program(arguments, options);

  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("cannot open " + daemon.address() + ": permission denied"));
  EXPECT_THAT(result.err, HasSubstr("membership of group gpuperf"));
}

// The daemon's answer, and what becomes of it.
struct ErrorCase {
  grpc::StatusCode code;
  int exit_code;
  const char* said;
};

TEST(CliRefusalTest, TurnsEveryAnswerIntoItsExitCode) {
  const ErrorCase kCases[] = {
      {grpc::StatusCode::PERMISSION_DENIED, 4, "does not permit it: because; reading needs root"},
      {grpc::StatusCode::UNAUTHENTICATED, 4, "does not permit it: because"},
      {grpc::StatusCode::INVALID_ARGUMENT, 2, "gpuperfctl: cannot list functions: because\n"},
      {grpc::StatusCode::UNAVAILABLE, 3, "has stopped (because)"},
      {grpc::StatusCode::CANCELLED, 3, "has stopped (because)"},
      {grpc::StatusCode::UNIMPLEMENTED, 1, "older version than this gpuperfctl"},
      {grpc::StatusCode::INTERNAL, 1, "answered: because (code 13)"},
      {grpc::StatusCode::ABORTED, 1, "answered: because (code 10)"},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, 1, "gpuperfctl: cannot list functions: because\n"},
      {grpc::StatusCode::FAILED_PRECONDITION, 1, "gpuperfctl: cannot list functions: because\n"},
      {grpc::StatusCode::DATA_LOSS, 1, "gpuperfctl: cannot list functions: because\n"}};
  for (const ErrorCase& refusal : kCases) {
    FakeDaemon daemon;
    daemon.answers.failure = grpc::Status(refusal.code, "because");
    daemon.start();

    const auto result = run_program({"functions", "--address", daemon.address()});

    EXPECT_EQ(result.exit_code, refusal.exit_code) << refusal.said;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(refusal.said));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(CliRefusalTest, EscapesWhatTheDaemonSays) {
  FakeDaemon daemon;
  daemon.answers.failure = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a\x1b[2J\nb");
  daemon.start();

  EXPECT_EQ(run_program({"functions", "--address", daemon.address()}).err,
            "gpuperfctl: cannot list functions: a\\x1b[2J\\nb\n");
}

TEST(CliOutputTest, EndsQuietlyWhenNobodyReads) {
  FakeDaemon daemon;
  daemon.answers = make_example_answers();
  daemon.answers.functions.resize(5000, daemon.answers.functions[0]);  // more than a pipe holds
  daemon.start();
  Program program({"functions", "--address", daemon.address()});
  (void)program.read_until("\n");

  program.close_output();
  const auto result = program.finish();

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(CliOutputTest, FailsWhenTheAnswerCannotBeWritten) {
  FakeDaemon daemon;
  daemon.start();

  const auto result =
      run_program({"status", "--address", daemon.address()}, {.output_file = "/dev/full"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "gpuperfctl: cannot write to standard output: No space left on device; the answer is "
            "incomplete\n");
}

}  // namespace
}  // namespace gpuperf::client
