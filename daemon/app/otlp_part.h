#pragma once

#include <memory>
#include <vector>

#include "daemon/app/part.h"
#include "daemon/otlp/otlp_exporter.h"

namespace gpuperf {

// Sends to receivers of OpenTelemetry data. Without a receiver that can be reached the daemon does
// everything else, and says so.
class OtlpPart final : public Part {
 public:
  using Part::Part;
  Status start() override;
  void stop() override { exporter_.reset(); }
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  otlp::OtlpExporter* exporter() const { return exporter_.get(); }  // null = nobody wants the data

 private:
  std::unique_ptr<otlp::OtlpExporter> exporter_;
  std::vector<Problem> sending_problems_;
};

}  // namespace gpuperf
