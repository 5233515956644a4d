// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, removed at the end; in memory below kMemory.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <string>

namespace weir::test {

constexpr const char* kMemory = "/dev/shm";

class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string pattern = (parent / "weir-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name, const std::string& text) const {
    const auto full = path_ / name;
    std::ofstream(full, std::ios::binary) << text;
    return full.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace weir::test
