#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "daemon/store/capture_store.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/files.h"
#include "tests/unit/store/random_capture.h"
#include "tests/unit/store/store_fixture.h"

namespace gpuperf::testing {

// A test with a folder of captures of its own.
class CaptureFolderTest : public ::testing::Test {
 protected:
  CaptureFolderTest() { options_.folder = folder_ / "captures"; }

  std::unique_ptr<CaptureStore> open() { return open(options_.folder); }
  std::unique_ptr<CaptureStore> open(const std::string& folder) {
    CaptureStore::Options options = options_;
    options.folder = folder;
    auto store = CaptureStore::open(options, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    return std::move(store).value();
  }
  Capture make(uint64_t id) {
    Capture capture = RandomCapture(static_cast<uint32_t>(id))
                          .make({.calls = 3, .launches = 9, .work = 9, .names = 5});
    capture.id = id;
    capture.start_unix_ns = kNow;
    return capture;
  }

  FakeClock clock_{0, static_cast<int64_t>(kNow)};
  const TempFolder folder_;
  CaptureStore::Options options_;
};

}  // namespace gpuperf::testing
