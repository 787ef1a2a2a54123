// Proves the tables of status names and the rules of find_status_kind by the headers of the
// libraries, where those are installed ($CUDA_HOME/include, else /usr/local/cuda/include).

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/status_names.h"
#include "daemon/model/status_tables.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

std::filesystem::path include_folder() {
  const char* home = std::getenv("CUDA_HOME");
  return std::filesystem::path(home ? home : "/usr/local/cuda") / "include";
}

std::string read_header(const std::string& name) { return read_file(include_folder() / name); }

// Without comments, strings' contents and preprocessor lines (with their continuations).
std::string strip(const std::string& text) {
  std::string code;
  bool line_is_blank = true;
  for (size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, "/*") == 0) {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
      code += ' ';
    } else if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (line_is_blank && text[i] == '#') {
      while (i < text.size() && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
    } else {
      if (text[i] == '\n') line_is_blank = true;
      if (!std::isspace(static_cast<unsigned char>(text[i]))) line_is_blank = false;
      code += text[i++];
    }
  }
  return code;
}

// Identifiers and single punctuation characters.
std::vector<std::string> tokenize(const std::string& code) {
  std::vector<std::string> tokens;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (size_t i = 0; i < code.size();) {
    if (is_word(code[i])) {
      const size_t begin = i;
      while (i < code.size() && is_word(code[i])) ++i;
      tokens.push_back(code.substr(begin, i - begin));
    } else {
      if (!std::isspace(static_cast<unsigned char>(code[i]))) tokens.emplace_back(1, code[i]);
      ++i;
    }
  }
  return tokens;
}

// Code -> the first name of the enum whose first enumerator is `first`.
std::map<int32_t, std::string> read_enum(const std::string& header, const std::string& first) {
  const std::vector<std::string> tokens = tokenize(strip(read_header(header)));
  std::map<std::string, int32_t> values;
  std::map<int32_t, std::string> names;
  int32_t next = 0;
  auto token = std::find(tokens.begin(), tokens.end(), first);
  while (token != tokens.end() && *token != "}") {
    const std::string name = *token;
    // A macro may stand between the name and "=".
    while (*token != "=" && *token != "," && *token != "}") ++token;
    if (*token == "=") {
      ++token;
      next = values.contains(*token) ? values[*token] : std::stoi(*token, nullptr, 0);
    }
    values[name] = next;
    names.try_emplace(next++, name);
    while (*token != "," && *token != "}") ++token;
    if (*token == ",") ++token;
  }
  return names;
}

struct Declaration {
  std::string function;
  bool returns_status = false;
};

// Functions that are declared, and not called or defined inside another, whose name has `prefix`.
std::vector<Declaration> read_declarations(const std::string& header, std::string_view prefix,
                                           const std::set<std::string>& status_types) {
  std::vector<Declaration> declarations;
  const std::vector<std::string> tokens = tokenize(strip(read_header(header)));
  size_t statement = 0;  // first token behind the last ; { or }
  int parentheses = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (token == ";" || token == "{" || token == "}") statement = i + 1;
    parentheses += (token == "(") - (token == ")");
    const bool opens = i + 1 < tokens.size() && tokens[i + 1] == "(";
    if (!opens || parentheses != 0 || !token.starts_with(prefix)) continue;
    const std::span<const std::string> before(&tokens[statement], i - statement);
    if (before.empty() || before.front() == "return" || before.front() == "typedef" ||
        before.back() == "=")
      continue;
    bool is_status = false;
    bool is_pointer = false;
    bool is_inline = false;  // NCCL_DEVICE_INLINE and the like: in no library
    for (const std::string& word : before) {
      is_inline = is_inline || word.ends_with("_INLINE");
      is_status = is_status || status_types.contains(word);
      is_pointer = is_pointer || word == "*";
    }
    if (!is_inline) declarations.push_back({token, is_status && !is_pointer});
  }
  return declarations;
}

struct LibraryHeaders {
  StatusKind kind;
  std::string_view prefix;
  std::set<std::string> status_types;
  std::vector<std::string> headers;
  size_t least_declarations;  // fewer: the parser has lost its way
};

const LibraryHeaders kLibraries[] = {
    {StatusKind::kCudaRuntime,
     "cuda",
     {"cudaError_t"},
     {"cuda_runtime_api.h", "cuda_profiler_api.h", "cuda_gl_interop.h", "cuda_egl_interop.h"},
     300},
    {StatusKind::kCudaDriver, "cu", {"CUresult"}, {"cuda.h", "cudaProfiler.h", "cudaGL.h"}, 450},
    {StatusKind::kCublas,
     "cublas",
     {"cublasStatus_t", "cublasStatus"},
     {"cublas_api.h", "cublas.h", "cublasLt.h", "cublasXt.h"},
     700},
    {StatusKind::kCudnn,
     "cudnn",
     {"cudnnStatus_t"},
     {"cudnn_graph.h", "cudnn_ops.h", "cudnn_cnn.h", "cudnn_adv.h"},
     200},
    {StatusKind::kNccl,
     "nccl",
     {"ncclResult_t"},
     {"nccl.h", "nccl_device/core.h", "nccl_device/ll_a2a.h"},
     40},
    {StatusKind::kNccl, "pnccl", {"ncclResult_t"}, {"nccl.h"}, 35},
};

// Statuses of an earlier call.
const std::set<std::string> kReportsEarlierStatus = {"cudaGetLastError", "cudaPeekAtLastError",
                                                     "cublasGetError"};

class StatusHeadersTest : public testing::Test {
 protected:
  void require(const std::string& header) {
    if (!std::filesystem::exists(include_folder() / header))
      GTEST_SKIP() << (include_folder() / header) << " is not installed";
  }
};

TEST_F(StatusHeadersTest, ListWhichFunctionsReturnAStatus) {
  for (const LibraryHeaders& library : kLibraries) {
    for (const std::string& header : library.headers) require(header);
    if (IsSkipped()) return;
    size_t count = 0;
    for (const std::string& header : library.headers) {
      for (const Declaration& declaration :
           read_declarations(header, library.prefix, library.status_types)) {
        const bool is_own =
            declaration.returns_status && !kReportsEarlierStatus.contains(declaration.function);
        EXPECT_EQ(find_status_kind(declaration.function), is_own ? library.kind : StatusKind::kNone)
            << header << ": " << declaration.function;
        ++count;
      }
    }
    EXPECT_GE(count, library.least_declarations) << library.prefix;
  }
}

struct EnumSource {
  std::string header;
  std::string first;  // enumerator
  std::span<const StatusName> table;
  std::set<std::string> left_out;  // of the table: no call returns them
};

TEST_F(StatusHeadersTest, NameAndNumberTheStatusesLikeTheTables) {
  const EnumSource sources[] = {
      {"driver_types.h", "cudaSuccess", kCudaRuntimeNames, {"cudaErrorApiFailureBase"}},
      {"cuda.h", "CUDA_SUCCESS", kCudaDriverNames, {}},
      {"cublas_api.h", "CUBLAS_STATUS_SUCCESS", kCublasNames, {}},
      {"cudnn_graph.h", "CUDNN_STATUS_SUCCESS", kCudnnNames, {}},
      {"nccl.h", "ncclSuccess", kNcclNames, {"ncclNumResults"}},
  };
  for (const EnumSource& source : sources) {
    require(source.header);
    if (IsSkipped()) return;
    std::map<int32_t, std::string> expected = read_enum(source.header, source.first);
    std::erase_if(expected,
                  [&](const auto& entry) { return source.left_out.contains(entry.second); });
    std::map<int32_t, std::string> actual;
    for (const StatusName& row : source.table) actual[row.code] = row.name;
    EXPECT_EQ(actual, expected) << source.header;
  }
}

}  // namespace
}  // namespace gpuperf
