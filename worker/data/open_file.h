// SPDX-License-Identifier: Apache-2.0
// A regular file that is open for reading. It is read and not mapped: if it shrinks, that is an
// error instead of a signal. All errors name the file.
#pragma once

#include <string>

#include "worker/data/bytes.h"

namespace weir::data {

class OpenFile final : public Bytes {
 public:
  // kNotFound: there is no such file. kInvalid: it is no regular file, or cannot be opened.
  static Result<OpenFile> open(const std::string& path);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() override;

  const std::string& path() const { return path_; }
  std::uint64_t size() const override { return size_; }  // when it was opened
  Status read(std::uint64_t at, std::span<std::byte> to) const override;
  // Time of the last write, in nanoseconds.
  Result<std::int64_t> written_at() const;

  Error invalid(const std::string& reason) const;  // "data file PATH: reason"
  Error gone(const std::string& reason) const;

 private:
  OpenFile(std::string path, int number);

  std::string path_;
  int number_;
  std::uint64_t size_ = 0;
};

}  // namespace weir::data
