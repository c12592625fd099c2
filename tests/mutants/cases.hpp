// Appended to the main file of the test programs by tests/mutants/run.py: writes to
// PARSIM_MUTANT_CASES a line for each test case, with the places that it and the processes it
// started met.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "tests/mutants/mutants.hpp"

namespace mutants {

struct Listener : doctest::IReporter {
  explicit Listener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData& data) override {
    name = data.m_name;
    if (unsigned char* bytes = shared_bytes()) std::fill(bytes, bytes + most, 0);
    start = std::chrono::steady_clock::now();
  }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const char* file = std::getenv("PARSIM_MUTANT_CASES");
    const unsigned char* bytes = shared_bytes();
    if (!file || !bytes) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::ofstream out(file, std::ios::app);
    out << seconds.count() << '\t' << !stats.testCaseSuccess << '\t';
    for (std::size_t place = 0; place < most; ++place) {
      if (bytes[place]) out << place << ' ';
    }
    out << '\t' << name << '\n';
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  std::string name;
  std::chrono::steady_clock::time_point start;
};

REGISTER_LISTENER("mutants", 1, Listener);

}  // namespace mutants
