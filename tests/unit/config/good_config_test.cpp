#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/probe_config.h"
#include "support.h"

namespace gpuperf {
namespace {

Config parse_good(const std::string& text) {
  auto parsed = parse_config(text);
  if (const auto* errors = std::get_if<std::vector<ConfigError>>(&parsed)) {
    ADD_FAILURE() << render_config_errors("text", *errors);
    return {};
  }
  return std::get<Config>(std::move(parsed));
}

const std::map<std::string, std::vector<std::string>> kBuiltInLibraries = {
    {"cuda", {"libcudart.so*", "libcudart-*.so*", "libcuda.so*"}},
    {"cublas", {"libcublas.so*", "libcublas-*.so*", "libcublasLt.so*", "libcublasLt-*.so*"}},
    {"cudnn", {"libcudnn*.so*"}},
    {"nccl", {"libnccl.so*", "libnccl-*.so*"}},
    {"libtorch", {"libtorch*.so*", "libc10*.so*"}},
    {"llama", {"libllama.*so*"}},
    {"ggml", {"libggml*.so*"}},
};

TEST(GoodConfigTest, TakesThePlainSixSectionFile) {
  const std::string text = read_file(source_path("tests/unit/config/good/spec_example.json"));

  const Config config = parse_good(text);

  const std::vector<ProbeSpec> expected = {
      {.category = "cuda", .function = "cudaMalloc", .symbol = "cudaMalloc"},
      {.category = "cuda", .function = "cudaDeviceSynchronize", .symbol = "cudaDeviceSynchronize"},
      {.category = "cublas", .function = "cublasGemmEx", .symbol = "cublasGemmEx"},
      {.category = "cudnn",
       .function = "cudnnConvolutionForward",
       .symbol = "cudnnConvolutionForward"},
      {.category = "nccl", .function = "ncclAllReduce", .symbol = "ncclAllReduce"},
      {.category = "libtorch",
       .function = "linear_forward",
       .symbol = "_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE"},
      {.category = "custom", .function = "vectorAdd", .symbol = "vectorAdd"},
  };
  EXPECT_EQ(config.probes.probes, expected);
  EXPECT_EQ(config.probes.libraries, kBuiltInLibraries);
  EXPECT_EQ(config.files.at(0).text, text);
  EXPECT_EQ(render_settings_json(config.settings), render_settings_json(Settings{}));
}

TEST(GoodConfigTest, TakesEverySettingAndObjectValues) {
  const Config config =
      parse_good(read_file(source_path("tests/unit/config/good/every_setting.json")));

  const std::vector<ProbeSpec> probes = {
      {.category = "cuda", .function = "cudaMalloc", .symbol = "cudaMalloc"},
      {.category = "cuda",
       .function = "cudaMemcpy",
       .symbol = "cudaMemcpy",
       .library = "/usr/local/cuda/lib64/libcudart.so.13",
       .slow_threshold_ns = 2'500'000,
       .enabled = false,
       .raw_arguments = true},
      {.category = "cuda", .function = "cudaFree", .symbol = "cudaFree", .slow_threshold_ns = 0},
      {.category = "my-lib.v2", .function = "größe", .symbol = "work"},
      {.category = "cudnn",
       .function = "convolutions",
       .symbol = "cudnnConvolution*",
       .form = SymbolForm::kWildcard},
      {.category = "cudnn",
       .function = "all",
       .symbol = "cudnn*",
       .form = SymbolForm::kWildcard,
       .enabled = false},
      {.category = "libtorch",
       .function = "linear_forward",
       .symbol = "torch::nn::LinearImpl::forward",
       .form = SymbolForm::kDemangled},
      {.category = "libtorch",
       .function = "operators",
       .symbol = "at::_ops::*::call",
       .form = SymbolForm::kDemangled},
      {.category = "libtorch",
       .function = "call",
       .symbol = "(anonymous namespace)::Callable<int, std::pair<int, long> >::operator()",
       .form = SymbolForm::kDemangled},
      {.category = "mysql",
       .function = "query",
       .symbol = "mysql:query__start",
       .form = SymbolForm::kUsdt},
      {.category = "mysql", .function = "any", .symbol = "mysql:*", .form = SymbolForm::kUsdt},
  };
  auto libraries = kBuiltInLibraries;
  libraries["cuda"] = {"libcudart.so*"};
  libraries["my-lib.v2"] = {"libmy.so*", "/opt/my/lib/*.so"};
  EXPECT_EQ(config.probes.probes, probes);
  EXPECT_EQ(config.probes.libraries, libraries);
  EXPECT_EQ(render_settings_json(config.settings), R"({
  "slow": {
    "default_threshold_ms": 0.5,
    "worst_per_function": 4,
    "recent": 200,
    "log_per_second": 0,
    "stacks": false,
    "time_split": false,
    "adaptive_factor": 2.5,
    "adaptive_floor_ms": 0.25
  },
  "stats": {
    "interval_ms": 500,
    "max_cells": 1000,
    "max_functions": 64,
    "keep_exited_seconds": 60,
    "max_exited_processes": 10,
    "summary_interval_seconds": 0,
    "gpu_interval_ms": 0,
    "gpu_counters": false
  },
  "ingest": {
    "enabled": false,
    "socket": "/srv/ingest.sock",
    "max_sessions": 16,
    "max_sessions_per_user": 8,
    "max_records_per_second": 5000,
    "sample_every": 10,
    "hooked_calls": false,
    "allocations": true,
    "flush_interval_ms": 100,
    "injector_path": "/srv/libgpuperf_injector.so",
    "cdi_spec": "/srv/cdi/gpuperf.json",
    "device_plugin": true,
    "device_plugin_dir": "/srv/kubelet/device-plugins"
  },
  "sessions": {
    "attach": false
  },
  "trace": {
    "recorder": false,
    "recorder_seconds": 10,
    "recorder_mib": 16,
    "stacks_per_second": 50,
    "min_call_us": 5,
    "long_call_us": 200,
    "max_capture_seconds": 60,
    "max_capture_mib": 32,
    "freeze_on_slow_ms": 250,
    "freeze_on_alert": true,
    "store_mib": 128,
    "retention_days": 2
  },
  "requests": {
    "enabled": true
  },
  "overhead": {
    "budget_percent": 2.5,
    "budget_percent_by_comm": {
      "vllm*": 0.25
    },
    "launch_hooks": false
  },
  "qos": {
    "rules": {
      "decode": "p99 gpuperf_step_seconds{phase=decode} > 0.05 over 2s: freeze, detail"
    },
    "file": "/run/gpuperf/qos",
    "detail_percent": 2.5,
    "release_seconds": 7
  },
  "limits": {
    "memory_mib": 256
  },
  "storage": {
    "path": "/srv/gpuperf",
    "max_mib": 64,
    "history_hours": 6,
    "retention_days": 3
  },
  "metrics": {
    "listen": "[::1]:0",
    "max_series": 5000,
    "max_kernels": 50,
    "page": false
  },
  "grpc": {
    "listen": "localhost:50051",
    "cert_file": "/etc/gpuperf/api.pem",
    "key_file": "/etc/gpuperf/api.key",
    "client_ca_file": "/etc/gpuperf/clients.pem"
  },
  "export": {
    "otlp": {
      "endpoint": "https://collector.example:4317",
      "ca_file": "/etc/gpuperf/ca.pem",
      "cert_file": "/etc/gpuperf/cert.pem",
      "key_file": "/etc/gpuperf/key.pem",
      "headers": {
        "x-tenant": "gpu"
      },
      "resource_attributes": {
        "deployment.environment": "test",
        "k8s.cluster.name": "a b"
      },
      "metrics": false,
      "slow_calls": false,
      "profiles": true,
      "profile_interval_seconds": 30,
      "interval_seconds": 60,
      "timeout_seconds": 5,
      "queue_mib": 2
    }
  },
  "log": {
    "level": "debug"
  }
}
)");
}

TEST(GoodConfigTest, LetsOneFunctionStandInTwoCategories) {
  const Config config =
      parse_good(R"({"cuda_func_sym": {"f": "cudaMalloc"}, "mine_sym": {"f": "cudaMalloc"}})");

  ASSERT_EQ(config.probes.probes.size(), 2u);
  EXPECT_EQ(config.probes.probes[0].category, "cuda");
  EXPECT_EQ(config.probes.probes[1].category, "mine");
}

TEST(GoodConfigTest, KeepsATinyThresholdApartFromNever) {
  EXPECT_EQ(threshold_ns_from_ms(0), 0u);
  EXPECT_EQ(threshold_ns_from_ms(1e-9), 1u);
  EXPECT_EQ(threshold_ns_from_ms(0.001), 1000u);
  EXPECT_EQ(threshold_ns_from_ms(86'400'000), 86'400'000'000'000u);
}

TEST(GoodConfigTest, IgnoresAByteOrderMark) {
  const Config config = parse_good("\xef\xbb\xbf{\"x_sym\": {\"f\": \"f\"}}");

  EXPECT_EQ(config.probes.probes.size(), 1u);
}

TEST(DocumentationTest, ShowsConfigurationsThatAreAccepted) {
  constexpr std::string_view kBegin = "```json\n";
  const std::string page = read_file(source_path("docs/configuration.md"));
  size_t shown = 0;

  for (size_t at = page.find(kBegin); at != page.npos; at = page.find(kBegin, at + 1)) {
    const size_t begin = at + kBegin.size();
    (void)parse_good(page.substr(begin, page.find("```", begin) - begin));
    ++shown;
  }

  EXPECT_EQ(shown, 6u);
}

TEST(DefaultConfigTest, IsTheFileInDeployAndWatchesEveryLibrary) {
  const std::string text = read_file(source_path("deploy/config.json"));

  const Config config = parse_good(std::string(default_config_text()));

  EXPECT_EQ(default_config_text(), text);
  EXPECT_GE(config.probes.probes.size(), 150u);
  std::map<std::string, size_t> per_category;
  for (const ProbeSpec& spec : config.probes.probes) ++per_category[spec.category];
  for (const auto& [category, libraries] : kBuiltInLibraries) {
    const size_t least = category == "ggml" ? 1 : category == "llama" ? 4 : 10;
    EXPECT_GE(per_category[category], least) << category;
  }
}

}  // namespace
}  // namespace gpuperf
