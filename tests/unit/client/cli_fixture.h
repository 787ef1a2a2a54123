#pragma once

// The real program against a daemon of ours that has the example answers.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fake_daemon.h"
#include "program.h"

namespace gpuperf::client {

using nlohmann::ordered_json;

class CliTest : public ::testing::Test {
 protected:
  CliTest() { daemon_.answers = make_example_answers(); }
  ProgramOptions with_address() {
    daemon_.start();
    return {.environment = {{"GPUPERF_ADDRESS", daemon_.address()}}};
  }
  ProgramResult run(std::vector<std::string> arguments, ProgramOptions options = {}) {
    daemon_.start();
    arguments.insert(arguments.end(), {"--address", daemon_.address()});
    return run_program(std::move(arguments), std::move(options));
  }

  FakeDaemon daemon_;
};

}  // namespace gpuperf::client
