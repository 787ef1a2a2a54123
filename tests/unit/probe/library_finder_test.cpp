#include "daemon/probe/discovery/library_finder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/matchers.h"
#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using elf_builder::ElfImage;

ProbeSpec make_spec(const std::string& category, const std::string& library = "") {
  return {.category = category, .function = "f", .symbol = "f", .library = library};
}

// 0, 1: cuda; 2: cublas; 3: custom, whose category has no libraries.
ProbeConfig make_config() {
  return {
      .probes = {make_spec("cuda"), make_spec("cuda"), make_spec("cublas"), make_spec("custom")},
      .libraries = {{"cuda", {"libcudart.so*", "libcudart-*.so*"}}, {"cublas", {"libcublas.so*"}}}};
}

class LibraryFinderTest : public testing::Test {
 protected:
  LibraryFinder make_finder(ProbeConfig config = make_config()) {
    return LibraryFinder(config, {.proc = fake_.proc()});
  }
  // A process whose executable and libraries are all mapped.
  void add_process(uint32_t pid, const std::string& executable,
                   const std::vector<std::string>& libraries) {
    fake_.add_process(pid, executable);
    uint64_t start = 0x1000;
    fake_.map(pid, fake_.add_file(pid, executable, "executable"), executable, start);
    for (const std::string& library : libraries) {
      fake_.map(pid, fake_.add_file(pid, library, library), library, start += 0x10000);
    }
  }
  std::map<std::string, std::vector<uint32_t>> scan(ProbeConfig config = make_config()) {
    std::map<std::string, std::vector<uint32_t>> probes;
    const ScanReport report = make_finder(config).scan_all().value();
    for (const FoundFile& file : report.files) probes[file.path] = file.probes;
    return probes;
  }

  FakeProc fake_;
};

using Probes = std::map<std::string, std::vector<uint32_t>>;

TEST_F(LibraryFinderTest, FindsEveryCopyByItsNameWhateverItsPath) {
  add_process(7, "/usr/bin/python3",
              {"/usr/lib/libcudart.so.13", "/opt/conda/lib/python3/libcudart-d0da41ae.so.11.0",
               "/usr/lib/libc.so.6", "/usr/lib/libcublas.so.13", "/usr/lib/libcublasLt.so.13"});

  EXPECT_EQ(scan(), (Probes{{"/usr/lib/libcudart.so.13", {0, 1}},
                            {"/opt/conda/lib/python3/libcudart-d0da41ae.so.11.0", {0, 1}},
                            {"/usr/lib/libcublas.so.13", {2}},
                            {"/usr/bin/python3", {3}}}));
}

TEST_F(LibraryFinderTest, LeavesExecutablesOfProcessesThatMapNoneOfTheLibrariesAlone) {
  add_process(7, "/usr/bin/bash", {"/usr/lib/libc.so.6"});

  const ScanReport report = make_finder().scan_all().value();

  EXPECT_THAT(report.files, IsEmpty());
  EXPECT_EQ(report.processes, 1u);
}

TEST_F(LibraryFinderTest, ReportsAFileOnceWithTheProcessesItCanBeOpenedThrough) {
  const fs::path shared = fake_.add_file(7, "/lib/libcudart.so", "content");
  for (uint32_t pid = 7; pid < 17; ++pid) {
    fake_.add_process(pid, "/bin/a");
    fake_.map(pid, shared, "/lib/libcudart.so", 0x1000);
    fake_.map(pid, shared, "/lib/libcudart.so", 0x9000);  // two executable segments
  }

  const ScanReport report = make_finder().scan_all().value();

  ASSERT_EQ(report.files.size(), 1u);
  std::vector<uint32_t> pids;
  for (const FileUser& user : report.files[0].users) pids.push_back(user.pid);
  EXPECT_THAT(pids, ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(report.files[0].users[0].mapping.start_address, 0x1000u);
}

TEST_F(LibraryFinderTest, TellsCopiesUnderOnePathInTwoContainersApart) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  add_process(8, "/bin/a", {"/lib/libcudart.so"});

  const ScanReport report = make_finder().scan_all().value();

  EXPECT_EQ(report.files.size(), 4u);  // two libraries, two executables
}

TEST_F(LibraryFinderTest, MatchesAProbesOwnLibraryInsteadOfItsCategorys) {
  add_process(7, "/bin/a", {"/lib/libcudart.so", "/lib/libmine.so"});
  ProbeConfig config = make_config();
  config.probes = {make_spec("cuda", "libmine.so"), make_spec("cuda"), make_spec("x", "/bin/?")};

  EXPECT_EQ(scan(config),
            (Probes{{"/lib/libmine.so", {0}}, {"/lib/libcudart.so", {1}}, {"/bin/a", {2}}}));
}

TEST_F(LibraryFinderTest, MatchesWholePathsAndEndsOfPaths) {
  add_process(7, "/bin/a",
              {"/opt/env/x/y/lib/libtorch.so", "/usr/lib/libtorch.so", "/x/torch/lib/libc10.so"});
  ProbeConfig config;
  config.probes = {make_spec("whole"), make_spec("end"), make_spec("name"), make_spec("part")};
  config.libraries = {{"whole", {"/opt/env/*/libtorch.so"}},
                      {"end", {"torch/lib/*.so"}},
                      {"name", {"lib[tc]*.so"}},
                      {"part", {"libtorc", "usr"}}};

  EXPECT_EQ(scan(config), (Probes{{"/opt/env/x/y/lib/libtorch.so", {0, 2}},
                                  {"/usr/lib/libtorch.so", {2}},
                                  {"/x/torch/lib/libc10.so", {1, 2}}}));
}

// What nvcc leaves in a program: the runtime's functions, hidden.
ElfImage make_linked_runtime() {
  return ElfImage({{"__cudaRegisterFatBinary", ElfImage::kCodeVaddr, 8},
                   {"cudaMalloc", ElfImage::kCodeVaddr + 8, 8},
                   {"f", ElfImage::kCodeVaddr + 16, 8},
                   {"main", ElfImage::kCodeVaddr + 32, 8}});
}

class LinkedRuntimeTest : public LibraryFinderTest {
 protected:
  // Maps `libraries` and the executable, a file of these bytes.
  void add_process_of(uint32_t pid, const ElfImage& executable,
                      const std::vector<std::string>& libraries) {
    add_process(pid, "/bin/a", libraries);
    std::ofstream(fake_.root(pid) / "bin/a", std::ios::binary) << executable.build();
  }
};

TEST_F(LinkedRuntimeTest, IsFoundInAProgramThatLoadsTheDriver) {
  add_process_of(7, make_linked_runtime(), {"/lib/libc.so.6", "/lib/libcuda.so.1"});
  ProbeConfig config = make_config();
  config.probes = {make_spec("cuda"), make_spec("cuda"), make_spec("cuda"), make_spec("cublas")};
  config.probes[1].symbol = "cudaNotThere";
  config.probes[2] = {.category = "cuda", .symbol = "cuda*", .form = SymbolForm::kWildcard};
  config.libraries["cuda"].push_back("libcuda.so*");

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcuda.so.1", {0, 1, 2}}, {"/bin/a", {0, 2}}}));
}

TEST_F(LinkedRuntimeTest, IsFoundInALibraryNextToTheSharedOne) {
  add_process(7, "/bin/python3", {"/x/extension.so", "/lib/libcudart.so.13", "/lib/libcuda.so.1"});
  std::ofstream(fake_.root(7) / "x/extension.so", std::ios::binary)
      << make_linked_runtime().build();
  ProbeConfig config = make_config();
  config.probes.resize(1);

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so.13", {0}}, {"/x/extension.so", {0}}}));
}

TEST_F(LinkedRuntimeTest, IsNotLookedForWithoutTheDriver) {
  add_process_of(7, make_linked_runtime(), {"/lib/libcudart.so.13"});
  ProbeConfig config = make_config();
  config.probes.resize(1);

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so.13", {0}}}));
}

TEST_F(LinkedRuntimeTest, IsNotAWrapperThatExportsTheSameFunctions) {
  ElfImage wrapper = make_linked_runtime();
  Elf64_Shdr exported = wrapper.sections[1];
  exported.sh_type = SHT_DYNSYM;
  wrapper.sections.push_back(exported);
  wrapper.header.e_shnum = 4;
  add_process_of(7, wrapper, {"/lib/libcudart.so.13", "/lib/libcuda.so.1"});
  ProbeConfig config = make_config();
  config.probes.resize(1);

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so.13", {0}}}));
}

TEST_F(LinkedRuntimeTest, IsReportedWhereItsSymbolsAreStripped) {
  ElfImage stripped({});
  stripped.sections[1].sh_type = SHT_PROGBITS;
  stripped.sections[1].sh_name = static_cast<Elf64_Word>(stripped.strings.size());
  stripped.strings += std::string(".nv_fatbin") + '\0';
  stripped.sections[2].sh_size = stripped.strings.size();
  stripped.header.e_shoff = (stripped.sections[2].sh_offset + stripped.strings.size() + 7) / 8 * 8;
  stripped.header.e_shstrndx = 2;
  add_process_of(7, stripped, {"/lib/libcudart.so.13", "/lib/libcuda.so.1"});
  ProbeConfig config = make_config();
  config.probes.resize(1);
  config.libraries["cuda"].push_back("libcuda.so*");

  EXPECT_THAT(make_finder(config).scan_all().value().stripped_runtimes, IsEmpty());
  add_process_of(8, stripped, {"/lib/libcuda.so.1"});
  EXPECT_THAT(make_finder(config).scan_all().value().stripped_runtimes, ElementsAre("/bin/a"));
}

TEST_F(LibraryFinderTest, IgnoresDisabledProbes) {
  add_process(7, "/bin/a", {"/lib/libcudart.so", "/lib/libcublas.so"});
  ProbeConfig config = make_config();
  config.probes[0].enabled = false;
  config.probes[2].enabled = false;

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so", {1}}, {"/bin/a", {3}}}));
}

TEST_F(LibraryFinderTest, FindsNothingForACategoryWithAnEmptyList) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  ProbeConfig config = make_config();
  config.libraries["custom"] = {};

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so", {0, 1}}}));
}

TEST_F(LibraryFinderTest, FindsDeletedLibrariesAndExecutables) {
  fake_.add_process(7, "/bin/a (deleted)");
  fake_.map(7, fake_.add_file(7, "/bin/a", "a"), "/bin/a (deleted)", 0x1000);
  fake_.map(7, fake_.add_file(7, "/lib/libcudart.so", "b"), "/lib/libcudart.so (deleted)", 0x9000);

  EXPECT_EQ(scan(), (Probes{{"/lib/libcudart.so", {0, 1}}, {"/bin/a", {3}}}));
}

TEST_F(LibraryFinderTest, FindsFilesNamedByTheirPathWithoutAnyProcess) {
  const std::string named = fs::path(fake_.proc()) / "libnamed.so";
  std::ofstream(named) << "content";
  ProbeConfig config = make_config();
  config.probes.push_back(make_spec("cuda", named));
  config.probes.push_back(make_spec("cuda", "/nowhere/libmissing.so"));
  config.probes.push_back(make_spec("cuda", "/tmp"));
  LibraryFinder finder = make_finder(config);

  const ScanReport report = finder.scan_all().value();

  ASSERT_EQ(report.files.size(), 2u);
  EXPECT_EQ(report.files[0].path, named);
  EXPECT_THAT(report.files[0].probes, ElementsAre(4));
  EXPECT_THAT(report.files[0].users, IsEmpty());
  EXPECT_EQ(finder.open_found(report.files[0]).value().identity.size_bytes, 7u);
  EXPECT_EQ(report.files[1].path, "/tmp");
  EXPECT_EQ(finder.open_found(report.files[1]).status().message(), "/tmp: not a regular file");
}

TEST_F(LibraryFinderTest, FindsFurtherFilesThatNoProbeIsMeantFor) {
  add_process(7, "/bin/a", {"/lib/libcudart.so", "/opt/libhooks.so.1"});
  LibraryFinder finder(make_config(), {.proc = fake_.proc(), .further_globs = {"libhooks.so*"}});

  const ScanReport report = finder.scan_all().value();

  EXPECT_TRUE(finder.concerns("/srv/libhooks.so"));
  const auto found = std::ranges::find(report.files, "/opt/libhooks.so.1", &FoundFile::path);
  ASSERT_NE(found, report.files.end());
  EXPECT_THAT(found->probes, IsEmpty());
}

TEST_F(LibraryFinderTest, JoinsANamedFileWithItsMapping) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  const std::string real = fake_.root(7) / "lib/libcudart.so";
  ProbeConfig config = make_config();
  config.probes[3] = make_spec("custom", real);

  EXPECT_EQ(scan(config), (Probes{{"/lib/libcudart.so", {0, 1, 3}}}));
}

TEST_F(LibraryFinderTest, ScansOneProcess) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  add_process(8, "/bin/b", {"/lib/libcublas.so"});
  LibraryFinder finder = make_finder();

  const ScanReport report = finder.scan_process(8).value();

  EXPECT_EQ(report.files.size(), 2u);
  EXPECT_EQ(finder.scan_process(9).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LibraryFinderTest, SkipsProcessesThatVanishKernelThreadsAndItself) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  add_process(8, "/bin/b", {"/lib/libcudart.so"});
  fs::remove(fake_.directory(7) / "maps");
  fs::create_directories(fake_.directory(2));
  fake_.write(2, "maps", "");
  LibraryFinder finder(make_config(), {.proc = fake_.proc(), .skip_pid = 8});

  const ScanReport report = finder.scan_all().value();

  EXPECT_THAT(report.files, IsEmpty());
  EXPECT_EQ(report.processes, 1u);
  EXPECT_EQ(report.unreadable_processes, 0u);
}

TEST_F(LibraryFinderTest, CountsProcessesItMayNotRead) {
  add_process(7, "/bin/a", {"/lib/libcudart.so"});
  fs::permissions(fake_.directory(7) / "maps", fs::perms::none);
  fs::permissions(fs::path(fake_.proc()).parent_path(), fs::perms::all);

  // Root may read everything: in a child that is not root.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(200);
    ::_exit(static_cast<int>(make_finder().scan_all().value().unreadable_processes));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(LibraryFinderTest, KeepsRoomForTheFilesOfOtherUsers) {
  fake_.add_process(7, "/bin/a");
  fake_.write_status(7, 65'534);
  std::string maps;
  for (size_t i = 0; i < 2 * kMaxFoundFiles; ++i) {
    maps += std::to_string(1000 + i) + "-" + std::to_string(1001 + i) + " r-xp 0 fe:01 " +
            std::to_string(1 + i) + " /lib/libcudart.so." + std::to_string(i) + "\n";
  }
  fake_.write(7, "maps", maps);
  for (const uint32_t pid : {8, 9}) {
    fake_.add_process(pid, "/bin/b");
    fake_.write_status(pid, pid == 8 ? 1'000 : 0);
    fake_.write(pid, "maps",
                "1000-2000 r-xp 0 fe:02 " + std::to_string(pid) + " /lib/libcudart.so.12\n");
  }

  const ScanReport report = make_finder().scan_all().value();

  EXPECT_GT(report.files_left_out, kMaxFoundFiles);
  EXPECT_EQ(report.files.front().uid, 0u);
  EXPECT_EQ(report.files.back().uid, 1'000u);
}

TEST_F(LibraryFinderTest, TellsWhatRootsProcessesMapBeforeItLooksAtOthers) {
  add_process(7, "/bin/a", {"/lib/libcudart.so.7"});
  fake_.write_status(7, 1'000);
  add_process(8, "/bin/a", {"/lib/libcudart.so.8"});
  fake_.write_status(8, 0);
  const fs::path named = fake_.add_file(9, "/lib/libnamed.so", "named");
  ProbeConfig config = make_config();
  config.libraries["cublas"] = {named};

  std::vector<std::string> of_root;
  const auto report = make_finder(config).scan_all([&of_root](const ScanReport& so_far) {
    for (const FoundFile& file : so_far.files) of_root.push_back(file.path);
  });

  EXPECT_THAT(of_root, UnorderedElementsAre("/bin/a", "/lib/libcudart.so.8", named.string()));
  EXPECT_EQ(report.value().files.size(), 5u);  // and those of the other process
}

TEST_F(LibraryFinderTest, EndsAScanThatIsInterrupted) {
  add_process(7, "/bin/a", {"/lib/libcudart.so.7"});
  LibraryFinder finder(make_config(),
                       {.proc = fake_.proc(), .is_interrupted = [] { return true; }});

  EXPECT_TRUE(absl::IsCancelled(finder.scan_all().status()));
}

TEST_F(LibraryFinderTest, BoundsTheFilesOfAScanAndCountsTheRest) {
  fake_.add_process(7, "/bin/a");
  fake_.write_status(7, 0);
  std::string maps;
  for (size_t i = 0; i < kMaxFoundFiles + 5; ++i) {
    maps += std::to_string(1000 + i) + "-" + std::to_string(1001 + i) + " r-xp 0 fe:01 " +
            std::to_string(1 + i) + " /lib/libcudart.so." + std::to_string(i) + "\n";
  }
  fake_.write(7, "maps", maps);

  const ScanReport report = make_finder().scan_all().value();

  EXPECT_EQ(report.files.size(), kMaxFoundFiles);
  EXPECT_EQ(report.files_left_out, 5u);
}

TEST_F(LibraryFinderTest, SaysWhenProcessesCannotBeListed) {
  LibraryFinder finder(make_config(), {.proc = "/nowhere"});

  EXPECT_EQ(finder.scan_all().status().message(),
            "/nowhere: list processes: No such file or directory");
}

TEST_F(LibraryFinderTest, KnowsWhichPathsConcernIt) {
  const LibraryFinder finder = make_finder();

  EXPECT_TRUE(finder.concerns("/x/libcudart.so.12"));
  EXPECT_FALSE(finder.concerns("/x/libc.so.6"));
  EXPECT_FALSE(finder.concerns(""));
}

TEST_F(LibraryFinderTest, FindsFilesOfAProcessAlreadyGoneByTheirNames) {
  const std::string library = fake_.add_file(7, "/lib/libcudart.so", "content");
  const std::string unwanted = fake_.add_file(7, "/lib/libc.so", "content");

  const auto files = make_finder().find_named({library, unwanted, "/nowhere/libcudart.so"});

  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, library);
  EXPECT_THAT(files[0].probes, ElementsAre(0, 1));
}

TEST_F(LibraryFinderTest, OpensAFoundFileThroughAnyProcessStillThere) {
  const fs::path shared = fake_.add_file(7, "/lib/libcudart.so", "content");
  fs::create_directories(fake_.root(8) / "lib");
  fs::create_hard_link(shared, fake_.root(8) / "lib/libcudart.so");
  for (const uint32_t pid : {7, 8}) {
    fake_.add_process(pid, "/bin/a");
    fake_.map(pid, shared, "/lib/libcudart.so");
  }
  LibraryFinder finder = make_finder();
  const FoundFile file = finder.scan_all().value().files.at(0);

  fake_.remove_process(7);
  EXPECT_TRUE(finder.open_found(file).ok());
  fake_.remove_process(8);
  const Status gone = finder.open_found(file).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), testing::StartsWith("/lib/libcudart.so in pid 7: "));
}

// The real /proc: this very process maps the C library.
TEST(LibraryFinderRealTest, FindsTheCLibraryOfThisProcess) {
  ProbeConfig config{.probes = {make_spec("c"), make_spec("own")},
                     .libraries = {{"c", {"libc.so.6"}}}};
  LibraryFinder finder(config);

  const ScanReport report = finder.scan_process(static_cast<uint32_t>(::getpid())).value();

  ASSERT_EQ(report.files.size(), 2u);
  EXPECT_THAT(report.files[0].path, testing::EndsWith("/libc.so.6"));
  EXPECT_EQ(report.files[1].path, fs::read_symlink("/proc/self/exe").string());
  for (const FoundFile& file : report.files) EXPECT_TRUE(finder.open_found(file).ok());
  EXPECT_GE(finder.scan_all().value().processes, 1u);
}

}  // namespace
}  // namespace gpuperf
