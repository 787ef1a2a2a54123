#include "daemon/otlp/options.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/files.h"

namespace gpuperf::otlp {
namespace {

using Pairs = std::map<std::string, std::string>;

class OtlpOptionsTest : public ::testing::Test {
 protected:
  GetEnvironment environment() {
    return [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
  }
  Result<ExportOptions> read() { return read_options(settings_, environment()); }

  Settings settings_;
  Pairs variables_;
};

TEST_F(OtlpOptionsTest, SendNothingUnlessSomebodyNamesAReceiver) {
  EXPECT_FALSE(is_wanted(settings_, environment()));
}

TEST_F(OtlpOptionsTest, TakeTheReceiverOfTheEnvironmentWhereTheConfigurationHasNone) {
  variables_["OTEL_EXPORTER_OTLP_ENDPOINT"] = "https://collector";

  EXPECT_TRUE(is_wanted(settings_, environment()));
  EXPECT_EQ(read()->endpoint, (Endpoint{true, {"collector", 4317}}));
  settings_.otlp.endpoint = "http://other:1";
  EXPECT_EQ(read()->endpoint, (Endpoint{false, {"other", 1}}));
}

TEST_F(OtlpOptionsTest, SendNothingWithEverySignalOffWhateverTheEnvironmentSays) {
  variables_["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://collector";
  settings_.otlp.slow_calls = false;
  EXPECT_TRUE(is_wanted(settings_, environment()));
  EXPECT_FALSE(are_spans_wanted(settings_, environment()));
  settings_.otlp.metrics = false;
  EXPECT_FALSE(is_wanted(settings_, environment()));
}

TEST_F(OtlpOptionsTest, PutHeadersAndAttributesOfTheConfigurationBeforeThoseOfTheEnvironment) {
  settings_.otlp.endpoint = "http://collector";
  settings_.otlp.headers = {{"X-Tenant", "gpu"}};
  settings_.otlp.resource_attributes = {{"region", "eu"}};
  variables_["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20abc , x-tenant=other";
  variables_["OTEL_RESOURCE_ATTRIBUTES"] = "region=us,k8s.cluster.name=a%2Cb";

  EXPECT_EQ(read()->headers, (Pairs{{"authorization", "Bearer abc"}, {"x-tenant", "gpu"}}));
  EXPECT_EQ(read()->attributes, (Pairs{{"region", "eu"}, {"k8s.cluster.name", "a,b"}}));
}

TEST_F(OtlpOptionsTest, SayWhichVariableIsWrong) {
  settings_.otlp.endpoint = "http://collector";
  variables_["OTEL_RESOURCE_ATTRIBUTES"] = "region";
  EXPECT_EQ(read().status().message(),
            "OTEL_RESOURCE_ATTRIBUTES: \"region\" is not of the form name=value");
  variables_.clear();
  variables_["OTEL_EXPORTER_OTLP_HEADERS"] = "a b=c";
  const std::string message(read().status().message());
  EXPECT_TRUE(message.starts_with("OTEL_EXPORTER_OTLP_HEADERS: header \"a b\"")) << message;
}

TEST_F(OtlpOptionsTest, ReadCertificatesAndSayWhichFileIsNone) {
  const TempFolder folder;
  std::ofstream(folder / "ca.pem") << "-----BEGIN CERTIFICATE-----\n";
  std::ofstream(folder / "text.pem") << "hello\n";
  settings_.otlp.endpoint = "https://collector";
  settings_.otlp.ca_file = folder / "ca.pem";

  EXPECT_EQ(read()->ca_pem, "-----BEGIN CERTIFICATE-----\n");
  settings_.otlp.ca_file = folder / "text.pem";
  EXPECT_EQ(read().status().message(),
            settings_.otlp.ca_file + ": contains no PEM text (-----BEGIN …)");
  settings_.otlp.ca_file = folder / "none.pem";
  EXPECT_EQ(read().status().message(),
            settings_.otlp.ca_file + ": read: No such file or directory");
  settings_.otlp.ca_file = "";
  settings_.otlp.cert_file = folder / "ca.pem";
  EXPECT_EQ(read().status().message(),
            "export.otlp.cert_file and export.otlp.key_file are given together or not at all");
}

TEST(OtlpPairsTest, AreReadAsTheStandardWritesThem) {
  EXPECT_EQ(*parse_pairs(""), Pairs());
  EXPECT_EQ(*parse_pairs(" a=1 ,, b = 2%3D3 , c=,d=100%"),
            (Pairs{{"a", "1"}, {"b", "2=3"}, {"c", ""}, {"d", "100%"}}));
  EXPECT_FALSE(parse_pairs("=1").ok());
}

}  // namespace
}  // namespace gpuperf::otlp
